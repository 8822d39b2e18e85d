from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

from samples import make_evidence, make_finding, make_row, make_stall

from racecheck.detect.evidence import BufferEvidence
from racecheck.report import Report
from racecheck.report.json import as_dict, render
from racecheck.staging import SlotCost
from racecheck.trace.records import Loc


def test_one_object_with_the_keys_of_the_format() -> None:
    """The keys of `racecheck-report/1`, in their order."""
    text = render(Report([make_row("race", "race"), make_row("clean", "clean", slots=2)]))
    report = json.loads(text)
    assert text.endswith("}\n")
    assert list(report) == [
        "format", "verdict", "ok", "scenario", "device", "lag", "seed", "steps",
        "rows", "findings", "evidence", "witness",
    ]  # fmt: skip
    assert (report["format"], report["verdict"]) == ("racecheck-report/1", "race")
    assert (report["scenario"], report["device"], report["lag"]) == ("small", "virtual", "latest")
    assert [(row["slots"], row["verdict"], row["ok"]) for row in report["rows"]] == [
        (1, "race", True),
        (2, "clean", True),
    ]


def test_ok_says_whether_all_is_as_it_must_be() -> None:
    """An expected race is, an unexpected one and an untested row are not; a probe must be clean."""
    for rows, ok in (
        ([make_row("race", "race"), make_row("clean", "clean")], True),
        ([make_row("race", "race"), make_row("race", "clean")], False),
        ([make_row("inconclusive", "clean")], False),
        ([make_row("clean")], True),
        ([make_row("race")], False),
    ):
        assert as_dict(Report(rows))["ok"] is ok


def test_a_row_says_how_many_slots_the_others_have() -> None:
    """The evidence of a row of one slot lists slots 0 and 1: the second is another runner's."""
    [row] = as_dict(Report([make_row(slots=1, other_slots=2)]))["rows"]
    assert (row["slots"], row["other_slots"]) == (1, 2)


def test_a_finding_has_both_accesses_and_what_would_order_them() -> None:
    """Code location, step, phase, resource, slot and buffer of each, the missing edge, the repair."""
    [finding] = as_dict(Report([make_row("race")]))["findings"]
    assert (finding["runner"], finding["slots"], finding["buffer"]) == ("main", 1, "sampler.rows")
    assert finding["accesses"][0] == {
        "role": "h2d-read",
        "what": "h2d copy reads",
        "on": "stream 1",
        "device": True,
        "location": {"file": "engine/sampler.py", "line": 88, "function": "stage"},
        "since": None,
        "ended": None,
        "step": 4,
        "phase": "plan",
        "resource": "sampler",
        "slot": 0,
        "buffer": "sampler.rows",
    }
    assert finding["accesses"][1]["step"] == 5
    assert finding["accesses"][1]["slot"] == 0, "without a mark, the slot of the bytes"
    assert finding["missing_edge"] == "nothing orders the h2d copy reads before the host write"
    assert (finding["repair"], finding["certain"], finding["count"]) == ("wait for the copy", True, 3)
    assert finding["rule"] == "race/h2d-read-vs-host-write"
    assert re.fullmatch("[0-9a-f]{16}", finding["fingerprint"])


def test_no_address_is_in_it() -> None:
    """Addresses differ from run to run; offsets in the buffer do not."""
    here = as_dict(Report([make_row("race", findings=[make_finding(span=(1 << 40, (1 << 40) + 16))])]))
    there = as_dict(Report([make_row("race", findings=[make_finding(span=(1 << 41, (1 << 41) + 16))])]))
    assert here == there
    assert here["findings"][0]["bytes"] == [0, 16]


def test_the_order_in_which_evidence_came_does_not_show() -> None:
    """Threads may meet buffers and orderings in another order."""
    rows = []
    for names in ("ab", "ba"):
        evidence = make_evidence()
        for name in names:
            reasons = Counter({f"event sync at {other}": 2 for other in names})
            evidence.buffers[name] = BufferEvidence(4, 1, {1, 0}, 5, reasons)
        rows.append(make_row(evidence=evidence))
    assert render(Report(rows[:1])) == render(Report(rows[1:]))


def test_evidence_of_all_rows_is_summed() -> None:
    """At the top the whole command's figures, in a row its own."""
    rows = [make_row(evidence=make_evidence(6, 2)), make_row(slots=2, evidence=make_evidence(4, 1))]
    report = as_dict(Report(rows))
    assert (report["evidence"]["rewrites"], report["evidence"]["open_windows"]) == (10, 3)
    assert report["evidence"]["buffers"]["sampler.rows"] == {
        "rewrites": 10,
        "open_windows": 3,
        "staged": 12,
        "slots": [0, 1],
        "ordered_by": {"event sync at engine/loop.py:7": 10},
    }
    assert [row["evidence"]["rewrites"] for row in report["rows"]] == [6, 4]
    assert rows[0].evidence.rewrites == 6, "summing changes no row"


def test_stalls_of_all_rows_are_summed() -> None:
    """One entry a wait, its counts added up; what never held anything up is left out."""
    rows = []
    for count, back, buffer in ((3, 8, "ring"), (2, 6, "rows"), (0, 1, "other")):
        evidence, stall = make_evidence(), make_stall(count=count, back=back, buffers={buffer})
        if not count:
            stall.loc = Loc("engine/other.py", 1, "f")
        evidence.held[stall.what, stall.loc, stall.waited_loc] = stall
        rows.append(make_row(evidence=evidence))
    report = as_dict(Report(rows))
    [total] = report["evidence"]["stalls"]
    assert (total["count"], total["calls_back"], total["allows_rewriting"]) == (5, 6, ["ring", "rows"])
    assert [[stall["count"] for stall in row["evidence"]["stalls"]] for row in report["rows"]] == [
        [3],
        [2],
        [],
    ]


def test_a_witness_names_the_row_and_the_request() -> None:
    """Which request got what instead of what."""
    [witness] = as_dict(Report([make_row("race")]))["witness"]
    assert witness == {
        "scenario": "small", "runner": "main", "slots": 1, "request": "r1", "position": 2,
        "expected": (7, 8), "found": (7, 9), "wrong": 4, "of": 9,
    }  # fmt: skip


def test_what_rows_do_not_share_is_null_at_the_top() -> None:
    """Two scenarios have no one name; each row still has its own."""
    report = as_dict(Report([make_row(), make_row(scenario="other")]))
    assert report["scenario"] is None
    assert [row["scenario"] for row in report["rows"]] == ["small", "other"]


def test_a_write_found_by_comparing_bytes_names_both_ends() -> None:
    """It happened somewhere between two lines."""
    finding = make_finding()
    second = type(finding.second)(**{**vars(finding.second), "since": Loc("engine/plan.py", 3, "f")})
    report = as_dict(Report([make_row("race", findings=[make_finding(second=second)])]))
    assert report["findings"][0]["accesses"][1]["since"] == {
        "file": "engine/plan.py",
        "line": 3,
        "function": "f",
    }


def test_a_write_before_something_ended_says_what() -> None:
    """No call of the program came after it."""
    since = Loc("engine/plan.py", 3, "f")
    second = replace(make_finding().second, loc=since, since=since, ended="thread worker ended")
    report = as_dict(Report([make_row("race", findings=[make_finding(second=second)])]))
    assert report["findings"][0]["accesses"][1]["ended"] == "thread worker ended"


def test_a_row_says_what_its_slots_cost() -> None:
    """By resource: bytes of a slot, slots, and which runner needs how many."""
    cost = SlotCost(resource="kv", slots=3, pinned=2048, device=2048, needs={"main": 3})
    [row] = as_dict(Report([make_row(costs=[cost])]))["rows"]
    assert row["costs"] == [
        {
            "resource": "kv", "slots": 3, "pinned_bytes_per_slot": 2048, "device_bytes_per_slot": 2048,
            "needs": {"main": 3},
        }
    ]  # fmt: skip
