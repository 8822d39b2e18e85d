"""One finding on a page: what it is, its timeline, its text, the code of both accesses."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from racecheck.detect.finding import Finding
from racecheck.report.html.code import code
from racecheck.report.html.elements import Child, h
from racecheck.report.html.timeline import timeline
from racecheck.report.picture import Picture
from racecheck.report.story import Line, lines, summary


def finding_article(finding: Finding, picture: Picture | None, key: str, replay: str | None) -> Element:
    """The finding as an article whose heading has the id `key`."""
    return h(
        "article",
        h("h3", f"{finding.rule} on ", h("code", finding.buffer), id=key),
        h("p", finding.missing, class_="missing"),
        timeline(picture, finding, key) if picture else _no_picture(),
        h("dl", *_story(finding, replay), class_="story"),
        *_code(finding, picture),
        h("pre", summary(finding), class_="summary"),
        aria_labelledby=key,
        class_=finding.kind,
    )


def _code(finding: Finding, picture: Picture | None) -> Iterator[Element]:
    """The source of both accesses, where it was found."""
    sources = {lines.place: lines for lines in picture.sources} if picture else {}
    for place in dict.fromkeys((str(finding.first.loc), str(finding.second.loc))):
        if place in sources:
            yield code(sources[place])


def _no_picture() -> Element:
    return h("p", "No timeline: only the first findings have one, and only where the trace was kept.")


def _story(finding: Finding, replay: str | None) -> Iterator[Element]:
    for line in lines(finding, replay):
        yield h("dt", line.label)
        yield h("dd", *_text(line), class_=line.label.replace(" ", "-"))


def _text(line: Line) -> Iterator[Child]:
    if line.label == "replay":
        yield h("code", line.text)
        return
    before, strong, after = line.text.partition(line.strong) if line.strong else (line.text, "", "")
    yield before
    yield h("strong", strong) if strong else None
    yield after
    yield h("span", line.detail, class_="detail") if line.detail else None
