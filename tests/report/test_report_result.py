from __future__ import annotations

import pytest
from samples import make_evidence, make_finding, make_row

from racecheck.report import Expected, Report, WrongTokens
from racecheck.report.result import compare, worst


@pytest.mark.parametrize(
    ("verdict", "expected", "code"),
    [
        ("clean", None, 0),
        ("race", None, 1),
        ("stale", None, 1),
        ("hang", None, 1),
        ("inconclusive", None, 3),
        ("clean", "clean", 0),
        ("race", "race", 0),
        ("hang", "hang", 0),
        ("inconclusive", "inconclusive", 0),
        ("race", "clean", 1),
        ("clean", "race", 1),
        ("stale", "race", 1),
        ("clean", "inconclusive", 1),
        ("inconclusive", "clean", 3),
        ("inconclusive", "race", 3),
    ],
)
def test_exit_code_of_a_row(verdict: str, expected: str | None, code: int) -> None:
    """A probe answers by its verdict, a row with an expectation by whether that holds."""
    row = make_row(verdict, expected)
    assert Report([row]).exit_code == code
    assert row.ok == (code == 0)


def test_a_broken_row_outweighs_an_untested_one() -> None:
    """One row that is wrong makes the command fail, whatever the others are."""
    rows = [make_row("inconclusive", "clean"), make_row("race", "race"), make_row("clean", "clean")]
    assert Report(rows).exit_code == 3
    assert Report([*rows, make_row("clean", "race")]).exit_code == 1


def test_the_first_finding_must_name_the_expected_buffer() -> None:
    """A race on another buffer is not the race that was expected."""
    right = make_row("race", expected="race")
    assert make_row("race", expected=Expected("race", "sampler.rows")).ok
    other = make_row("race", expected=Expected("race", "kv.page_table"))
    assert right.ok
    assert other.problem == "expected race on kv.page_table, the first finding names sampler.rows"


@pytest.mark.parametrize(
    ("buffers", "problem"),
    [
        (("sampler.rows", "kv.*"), None),
        (("*",), None),
        (("sampler.rows",), "findings also name kv.indices"),
        (("kv.*", "position.ids"), "no finding names position.ids and findings also name sampler.rows"),
    ],
)
def test_the_set_of_buffers_that_race(buffers: tuple[str, ...], problem: str | None) -> None:
    """Each name or pattern must be met, nothing else may race; device twins are the buffer."""
    names = ("sampler.rows", "kv.indices", "kv.indices (device)")
    row = make_row("race", Expected("race", buffers=buffers), findings=[make_finding(name) for name in names])
    assert row.raced == ["kv.indices", "sampler.rows"]
    assert row.problem == problem


@pytest.mark.parametrize("expected", [None, "clean"])
def test_wrong_tokens_speak_against_a_clean_verdict(expected: str | None) -> None:
    """A certificate that the values contradict never passes."""
    row = make_row("clean", expected, witness=[WrongTokens("r1", 0, (1,), (2,), 1, 1)])
    assert Report([row]).exit_code == 1
    assert "tokens differ" in str(row.problem)


def test_the_worst_verdict_of_all_rows() -> None:
    """race, stale, hang, inconclusive, clean, in this order."""
    assert worst(["clean", "inconclusive", "hang", "stale", "race"]) == "race"
    assert worst(["clean", "inconclusive", "hang"]) == "hang"
    assert worst(["clean", "inconclusive"]) == "inconclusive"
    assert worst(["clean"]) == "clean"
    assert Report([make_row("clean"), make_row("race")]).verdict == "race"


def test_open_windows_are_summed_over_buffers() -> None:
    """A row's figure covers every buffer of it."""
    evidence = make_evidence(open_windows=2)
    evidence.buffers["other"] = make_evidence(open_windows=3).buffers["sampler.rows"]
    assert make_row(evidence=evidence).open_windows == 5


def test_the_first_buffer_is_that_of_the_first_finding() -> None:
    """In the order in which they were found."""
    assert make_row("race", findings=[make_finding("b"), make_finding("a")]).buffer == "b"
    assert make_row("clean").buffer is None


def test_compare_names_what_differs() -> None:
    """By request, the first frame that differs, and how many do."""
    want = {"r1": [(1, 2), (3, 4), (5, 6)], "r0": [(1, 1)]}
    got = {"r1": [(1, 2), (3, 0), (0, 6)], "r0": [(1, 1)]}
    assert compare(want, got) == [WrongTokens("r1", 1, (3, 4), (3, 0), 2, 3)]


def test_compare_what_both_runs_reached() -> None:
    """A run cut off by its steps may have got less far, or one step further."""
    assert compare({"r0": [(1,), (2,)], "r1": []}, {"r0": [(1,)], "r1": [(5,)]}) == []
    assert compare({"r0": [(1,)]}, {}) == []


def test_compare_what_must_be_whole() -> None:
    """A request that both runs served to its end has as many tokens in both; a missing one is wrong."""
    want, got = {"r0": [(1,), (2,)], "r1": [(5,)]}, {"r0": [(1,)], "r1": [(5,), (6,)]}
    assert compare(want, got) == []
    assert compare(want, got, {"r0", "r1"}) == [
        WrongTokens("r0", 1, (2,), (), 1, 2),
        WrongTokens("r1", 1, (), (6,), 1, 2),
    ]


def test_sound_is_shown_from_where_it_differs() -> None:
    """A chunk may be a megabyte: the first bytes that differ will do."""
    want, got = bytes(1000), bytes(500) + b"\1" * 500
    [wrong] = compare({"r0": [(3,), want]}, {"r0": [(3,), got]})
    assert (wrong.position, wrong.expected, wrong.found) == (1, (0,) * 32, (1,) * 32)
