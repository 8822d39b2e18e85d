"""The kinds of race: a page each, in the Markdown files beside this module, and which rule is on which page.

A page begins with its title and up to two list items: the rule that its racy code comes to (`shows as`), and
the rules it is the page of (`page of`), as patterns. Exact rules go before patterns, long before short ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

from racecheck.detect.rules import all_rules
from racecheck.report.alerts import NOT_MET, UNTESTED

SUFFIX = ".md"
#: What a report says that is no finding.
NO_FINDINGS = (NOT_MET, UNTESTED, "stall")


@dataclass(frozen=True)
class Page:
    """One kind of race.

    `name` is the file's without its suffix, `shows` the rule of the racy code, `rules` the patterns of those
    that this is the page of: none where another page with the same `shows` is.
    """

    name: str
    text: str
    title: str
    shows: str
    rules: tuple[str, ...]

    @classmethod
    def of(cls, name: str, text: str) -> Page:
        """The page `name` with the Markdown `text`."""
        title, _, rest = text.partition("\n")
        (shows,) = _names(rest, "shows as")
        return cls(name, text, title.removeprefix("# "), shows, _names(rest, "page of"))

    @property
    def code(self) -> tuple[str, str]:
        """The racy code and the fixed code."""
        racy, fixed = re.findall(r"^```python\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)
        return racy, fixed


@cache
def pages() -> tuple[Page, ...]:
    """All pages, by the rule they show; the page of a rule goes before others that show it."""
    found = [
        Page.of(file.name.removesuffix(SUFFIX), file.read_text(encoding="utf-8"))
        for file in files(__name__).iterdir()
        if file.name.endswith(SUFFIX)
    ]
    return tuple(sorted(found, key=lambda page: (page.shows, page.shows not in page.rules, page.name)))


def known_rules() -> frozenset[str]:
    """Every rule that has a page: those of findings, and what reports say besides."""
    return all_rules() | set(NO_FINDINGS)


def page_of(rule: str) -> Page | None:
    """The page of a rule as reports have it, `race/h2d-read-vs-host-write`; None if none has it."""
    if rule not in known_rules():
        return None
    fits = [
        ("*" not in pattern, len(pattern), page)
        for page in pages()
        for pattern in page.rules
        if fnmatchcase(rule, pattern)
    ]
    return max(fits, key=lambda fit: fit[:2])[2]


def others(page: Page) -> list[Page]:
    """Other pages whose racy code comes to the same rule."""
    return [other for other in pages() if other.shows == page.shows and other is not page]


def _names(text: str, label: str) -> tuple[str, ...]:
    line = re.search(rf"^- {label}: (.*)$", text, re.MULTILINE)
    return tuple(re.findall(r"`([^`]+)`", line.group(1))) if line else ()
