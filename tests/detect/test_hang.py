"""Ranks whose collectives differ: where, who skipped what, and when that is certain."""

from __future__ import annotations

import pytest
from programs import Program

from racecheck.detect import Finding
from racecheck.detect.collectives import Collectives
from racecheck.report.json import finding_dict
from racecheck.report.text import describe_finding
from racecheck.trace.records import Collective


def ranks(*sequences: str) -> Program:
    """One rank after the other issues the letters of its sequence; a step for each call."""
    program = Program()
    for rank, names in enumerate(sequences):
        for position, name in enumerate(names):
            program.at(position).collective(rank, name)
    return program


def hang(*sequences: str) -> Finding:
    """The finding that the sequences come to."""
    detector = ranks(*sequences).judge()
    (finding,) = detector.findings
    assert (detector.verdict, finding.kind, finding.buffer) == ("hang", "hang", "collectives")
    return finding


@pytest.mark.parametrize("sequences", [(), ("ab",), ("ab", "ab"), ("aaa", "aaa", "aaa")])
def test_equal_sequences_are_no_hang(sequences):
    """Also those of one rank, or of none."""
    assert ranks(*sequences).judge().findings == []


def test_a_rank_that_skips_a_call():
    """The position, the call, both lines, and what the odd rank goes on with."""
    finding = hang("abcd", "acd")
    assert finding.position == 2
    assert finding.missing == (
        "collective 2: rank 0 issues b at program.py:2 and waits for ever; rank 1 skips it and goes on with c"
    )
    assert str(finding.first) == "rank 0 issues b at program.py:2 (thread rank 0, step 1)"
    assert str(finding.second) == "rank 1 issues c at program.py:6 (thread rank 1, step 1)"
    assert finding.reasons == [
        "rank 0: b at program.py:2 (thread rank 0, step 1)",
        "rank 1: c at program.py:6 (thread rank 1, step 1)",
    ]
    assert finding.rule == "hang/collective-vs-collective"


def test_of_two_ranks_the_one_that_skipped_is_the_odd_one():
    """Whichever number it has."""
    finding = hang("acd", "abcd")
    assert finding.missing.endswith("rank 0 skips it and goes on with c")
    assert finding.first.what == "rank 1 issues b"


def test_a_rank_that_ends_early():
    """It leaves the loop, and the others wait in the call it never makes."""
    finding = hang("aab", "a")
    assert finding.position == 2
    assert finding.missing == (
        "collective 2: rank 0 issues a at program.py:2 and waits for ever; "
        "rank 1 skips it and issues nothing more"
    )
    assert finding.second.what == "rank 1 issues nothing after a"
    assert finding.rule == "hang/collective-vs-nothing"


def test_of_several_ranks_most_are_right():
    """Three do the same: the fourth is the odd one, and all are listed."""
    finding = hang("ab", "ax", "ab", "ab")
    assert (finding.first.what, finding.second.what) == ("rank 0 issues b", "rank 1 issues x")
    assert finding.missing.endswith("rank 1 issues x instead")
    assert len(finding.reasons) == 4


def test_two_names_at_one_position_are_certain_at_once():
    """Fewer calls of a rank are so only when the trace has ended."""
    calls = Collectives()
    for rank, name, split in ((0, "a", None), (0, "b", None), (1, "a", None), (1, "c", 1), (0, "c", 1)):
        calls.feed(Collective(thread="main", rank=rank, name=name))
        assert calls.split == split


def test_an_earlier_difference_counts_more():
    """A third rank may differ before the place where two differed first."""
    calls = Collectives()
    for rank, name in ((0, "a"), (0, "b"), (1, "a"), (1, "c"), (2, "z")):
        calls.feed(Collective(thread="main", rank=rank, name=name))
    assert calls.diverged() == (0, {0: "a", 1: "a", 2: "z"})


def test_a_race_and_a_stale_operand_come_first():
    """The verdict is the first of race, stale and hang; all three are told."""
    program = Program().alloc("P").write("P").h2d("P", "D").write("P").want("D", "x")
    program.collective(0, "a").collective(1, "b")
    detector = program.judge()
    assert detector.verdict == "race"
    assert [finding.kind for finding in detector.findings] == ["race", "stale", "hang"]


def test_the_fingerprint_depends_on_functions_only():
    """Not on the position, nor on how many calls came before."""
    assert hang("abc", "ac").fingerprint == hang("aabc", "aac").fingerprint
    assert hang("ab", "a").fingerprint != hang("ab", "ac").fingerprint


def test_reports_name_position_and_ranks():
    """Text without bytes or repairs; in JSON the position has a key of its own."""
    finding = hang("ab", "a")
    text = describe_finding(finding)
    assert text.startswith(
        "hang/collective-vs-nothing on collectives\nfirst    rank 0 issues b at program.py:2"
    )
    assert "wrong    collective 2: rank 0 issues b" in text
    assert "bytes" not in text
    assert "repair" not in text
    plain = finding_dict(finding)
    assert (plain["kind"], plain["position"]) == ("hang", 2)
    assert plain["accesses"][1]["what"] == "rank 1 issues nothing after a"
