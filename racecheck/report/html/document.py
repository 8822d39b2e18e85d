"""The whole page: head, table of verdicts, a chapter for each."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element

from racecheck.report.html.arrows import markers
from racecheck.report.html.chapter import Chapter, chapter_of
from racecheck.report.html.elements import Child, h, raw
from racecheck.report.html.elements import render as as_text
from racecheck.report.html.evidence import evidence, table
from racecheck.report.html.finding import finding_article
from racecheck.report.result import Report, Row, worst
from racecheck.report.story import buffer
from racecheck.words import counted

if TYPE_CHECKING:
    from racecheck.judge import Audit


def render(report: Report) -> str:
    """`report` as a page: what `racecheck run --html` writes."""
    names = ", ".join(dict.fromkeys(row.scenario for row in report.rows))
    return page(names or "nothing was run", report.rows)


def page(title: str, results: Sequence[Row | Audit | Chapter]) -> str:
    """A page called `title` with a chapter for each of `results`, as text to be written in UTF-8."""
    chapters = [chapter_of(result) for result in results]
    body = h(
        "body",
        h("a", "Skip to the findings", class_="skip", href="#chapters"),
        markers(),
        h("header", h("h1", title), _headline(chapters)),
        h("main", _matrix(chapters), h("div", *_chapters(chapters), id="chapters")),
    )
    style, script = _asset("report.css"), _asset("report.js")
    body.append(raw("script", script))
    head = h(
        "head",
        h("meta", charset="utf-8"),
        h("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="color-scheme", content="light dark"),
        h("title", f"{title} - racecheck"),
        raw("style", style),
    )
    return f"<!DOCTYPE html>\n{as_text(h('html', head, body, lang='en'))}\n"


@cache
def _asset(name: str) -> str:
    return (files("racecheck.report") / "assets" / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    return f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def badge(verdict: str) -> Element:
    """A verdict as a word in its colour."""
    return h("span", verdict, class_=f"badge {verdict}")


def _headline(chapters: Sequence[Chapter]) -> Element:
    found = sum(len(chapter.findings) for chapter in chapters)
    words = f" {counted(found, 'finding')}" if found else " no finding"
    words += f" in {counted(len(chapters), 'verdict')}" if len(chapters) > 1 else ""
    return h("p", badge(worst(chapter.verdict for chapter in chapters)), words, class_="headline")


def _matrix(chapters: Sequence[Chapter]) -> Element | None:
    """Every verdict on a line, with what was expected and the figures behind it."""
    if len(chapters) < 2:
        return None
    more = list(dict.fromkeys(key for chapter in chapters for key in chapter.figures))
    expected = ["As expected"] if any(chapter.expected for chapter in chapters) else []
    head = ["What", "Verdict", *expected, "Findings", "Rewrites", "Open", *more]
    rows: list[list[Child]] = [
        [
            h("a", chapter.title, href=f"#c{number}"),
            badge(chapter.verdict),
            *([chapter.expected or "-"] if expected else []),
            *map(str, _figures(chapter)),
            *(chapter.figures.get(key, "-") for key in more),
        ]
        for number, chapter in enumerate(chapters, 1)
    ]
    return h("section", h("h2", "Verdicts"), table("Verdicts", head, rows))


def _figures(chapter: Chapter) -> tuple[int, int, int]:
    open_windows = sum(buffer.open_windows for buffer in chapter.evidence.buffers.values())
    return len(chapter.findings), chapter.evidence.rewrites, open_windows


def _chapters(chapters: Sequence[Chapter]) -> Iterator[Element]:
    for number, chapter in enumerate(chapters, 1):
        key = f"c{number}"
        settings = ", ".join(f"{name} {value}" for name, value in chapter.settings.items())
        yield h(
            "section",
            h("h2", f"{chapter.title}: ", badge(chapter.verdict), id=key),
            h("p", settings, class_="settings") if settings else None,
            h("p", chapter.problem, class_="problem") if chapter.problem else None,
            *(h("p", note) for note in chapter.notes),
            *_findings(chapter, key),
            *evidence(chapter),
            class_="chapter",
            aria_labelledby=key,
        )


def _findings(chapter: Chapter, key: str) -> Iterator[Element]:
    """The first finding in full, the others to be opened."""
    pictures = [*chapter.pictures, *[None] * len(chapter.findings)]
    for at, (finding, picture) in enumerate(zip(chapter.findings, pictures, strict=False), 1):
        article = finding_article(finding, picture, f"{key}f{at}", chapter.replay)
        if at == 1:
            yield article
        else:
            title = h("summary", f"Finding {at}: {finding.rule} on ", h("code", buffer(finding)))
            yield h("details", title, article, class_="more")
