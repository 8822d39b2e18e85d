"""Regenerate docs/races/README.md, the index of the pages in racecheck/races: `python docs/explain.py`."""

from __future__ import annotations

from pathlib import Path

from racecheck.races import SUFFIX, Page, pages

INDEX = Path(__file__).resolve().parent / "races" / "README.md"
PAGES = "../../racecheck/races"

INTRODUCTION = """\
# Kinds of race

A page for each: the story, a timeline, code that has it, the same code without it, and where it was seen. All
code on the pages runs, on a machine without a GPU too:

```
with racecheck.virtual_cuda(), racecheck.audit() as audit:
    ...  # the code of a page
print(audit.report())
```

A test runs it like this: the racy code must come to the rule that the page says, the fixed code to no
finding.

    racecheck explain                                 the list
    racecheck explain race/h2d-read-vs-host-write     the page of a rule that a report names
    racecheck explain captured-copy                   a page by its name

A rule is made of what the two accesses do, in alphabetical order: `h2d-read` is a copy to the device that
reads its source, `host-write` a write of the CPU. `*` in the table stands for anything; an exact rule goes
before a pattern, a long pattern before a short one.
"""


def row(page: Page) -> str:
    """A page in the table: the rules it is the page of, or the one it shares with another."""
    rules = ", ".join(f"`{rule}`" for rule in page.rules) or f"`{page.shows}` too"
    return f"| {rules} | [{page.title}]({PAGES}/{page.name}{SUFFIX}) |"


def index() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, "| rule | page |", "|---|---|", *map(row, pages())]) + "\n"


if __name__ == "__main__":
    INDEX.write_text(index(), encoding="utf-8")
