"""`racecheck explain`: the list, a page by rule and by name, and what it says to a name that is none."""

from __future__ import annotations

import sys

import pytest

from racecheck.cli import main
from racecheck.races import page_of, pages


def test_the_list_has_every_page(capsys: pytest.CaptureFixture[str]) -> None:
    """A line each, with the rule and the title."""
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(pages()) + 2
    for page, line in zip(pages(), lines, strict=False):
        assert line.split(maxsplit=2) == [page.name, page.shows, page.title]


def test_a_pipe_gets_the_page_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """By rule or by name; others with the same rule are named below it."""
    assert main(["explain", "race/h2d-read-vs-host-write"]) == 0
    by_rule = capsys.readouterr().out
    assert main(["explain", "h2d-source-rewritten"]) == 0
    assert capsys.readouterr().out == by_rule
    page = page_of("race/h2d-read-vs-host-write")
    assert page is not None
    assert by_rule.startswith(page.text)
    assert "`racecheck explain captured-copy`: " in by_rule.removeprefix(page.text)


def test_a_terminal_gets_it_laid_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the marks of Markdown."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["explain", "captured-copy"]) == 0
    out = capsys.readouterr().out
    assert "A captured copy reads its source at every replay" in out
    assert "## " not in out
    assert "```" not in out


@pytest.mark.parametrize(
    ("typed", "near"),
    [("race/h2d-read-vs-hots-write", "race/h2d-read-vs-host-write"), ("captured-cpoy", "captured-copy")],
)
def test_an_unknown_rule_is_told_its_neighbours(
    typed: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, with exit code 2."""
    assert main(["explain", typed]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith(f"racecheck explain: '{typed}' is no rule and no page; write {near}")


def test_a_word_like_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is near it."""
    assert main(["explain", "zzz"]) == 2
    assert capsys.readouterr().err.endswith("; racecheck explain lists them\n")
