"""docs/reports.md says what is there, and its example runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from racecheck.report.drawing import MOST_PICTURES
from racecheck.report.neighbourhood import MOST

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reports.md").read_text()


def test_the_example_writes_two_pages(tmp_path: Path) -> None:
    """What a reader copies runs as it is."""
    names: dict[str, Any] = {}
    exec(PAGE.partition("```python\n")[2].partition("```")[0], names)
    names["test_page"](tmp_path)
    one, more = ((tmp_path / f"{name}.html").read_text() for name in ("one", "more"))
    assert one.count('<section class="chapter"') == 1
    assert more.count('<section class="chapter"') == 2
    assert "race/h2d-read-vs-host-write on " in one


def test_limits_are_those_of_the_code() -> None:
    """How many squares a timeline has, and how many findings have one."""
    assert f"{MOST + MOST // 2} squares at most" in PAGE
    assert f"The first {MOST_PICTURES} findings of a run have\na timeline" in PAGE
