"""`racecheck explain`: what a kind of race is, with racy code, fixed code and where it was seen."""

from __future__ import annotations

import difflib
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from racecheck.errors import UsageError
from racecheck.races import Page, known_rules, others, page_of, pages
from racecheck.words import counted


def explain(
    rule: Annotated[
        str | None,
        typer.Argument(metavar="[RULE]", help="A rule of a report, or a page that the list names."),
    ] = None,
) -> int:
    """Tell the story of a kind of race, with code that shows it and the repair; without RULE list all.

    RULE is as reports have it (race/h2d-read-vs-host-write), or a page's name (captured-copy).
    """
    if rule is None:
        print(listing())
        return 0
    page = find(rule)
    also = "".join(f"\n`racecheck explain {other.name}`: {other.title}\n" for other in others(page))
    text = page.text + (f"\n## The same rule\n{also}" if also else "")
    if sys.stdout.isatty():
        Console().print(Markdown(text))
    else:
        print(text, end="")
    return 0


def find(rule: str) -> Page:
    """The page called `rule`, or that of the rule.

    Raises:
        UsageError: there is none; the message has the nearest names.
    """
    named = {page.name: page for page in pages()}
    page = named.get(rule) or page_of(rule)
    if page is None:
        near = difflib.get_close_matches(rule, [*named, *sorted(known_rules())], n=3, cutoff=0.4)
        remedy = f"write {' or '.join(near)}" if near else "racecheck explain lists them"
        raise UsageError(f"racecheck explain: {rule!r} is no rule and no page; {remedy}")
    return page


def listing() -> str:
    """A line a page: name, the rule of its code, title."""
    rows = [(page.name, page.shows, page.title) for page in pages()]
    name, shows = (max(len(row[column]) for row in rows) for column in (0, 1))
    lines = [f"{row[0]:{name}}  {row[1]:{shows}}  {row[2]}" for row in rows]
    return "\n".join([*lines, "", f"{counted(len(rows), 'page')}; racecheck explain NAME or RULE shows one"])
