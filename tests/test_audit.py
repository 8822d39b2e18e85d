"""`racecheck.audit()` as its users meet it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import racecheck
from racecheck.errors import Inconclusive, RaceFound, TraceError
from racecheck.judge import Audit
from racecheck.trace import emit
from racecheck.trace import records as r
from racecheck.trace.records import Collective


def stage(times: int, *, wait: bool) -> racecheck.Audit:
    """Stage a named buffer `times` times."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        buffer = racecheck.PinnedBuffer("rows", (4,), torch.int64)
        for step in range(times):
            with racecheck.mark(step=step):
                lease = buffer.lease(0)
                lease.write(torch.full((4,), step))
                lease.copy()
            if wait:
                torch.cuda.synchronize()
    return audit


def test_assert_clean_says_what_is_wrong():
    """The message names the buffer, both lines, the missing edge and the repair."""
    with pytest.raises(RaceFound) as error:
        stage(3, wait=False).assert_clean()
    text = str(error.value)
    for part in ("rows", "step 0", "step 1", "test_audit.py", "nothing orders", "record an event"):
        assert part in text


def test_the_first_line_of_the_message_is_its_title():
    """Rule and buffer, then the finding; pytest's summary shows no more than this line."""
    with pytest.raises(RaceFound) as error:
        stage(3, wait=False).assert_clean()
    title, buffer, *_ = str(error.value).splitlines()
    assert re.fullmatch(r"race/\S+ on rows( \(1 of \d+ findings\))?", title)
    assert buffer.startswith("buffer   rows[0] ")
    assert "\n\n\n" not in str(error.value)


def test_a_hang_has_a_title_too():
    """Ranks that issue different collectives are no pair of accesses."""
    with racecheck.audit() as audit:
        for rank, name in enumerate(("all_reduce", "all_gather")):
            emit(Collective(thread="main", rank=rank, name=name))
    with pytest.raises(RaceFound, match=r"^hang/collective-vs-collective on collectives\nfirst "):
        audit.assert_clean()
    assert audit.report().startswith("verdict: hang\n\nhang/collective-vs-collective on collectives\n")
    assert repr(audit) == "<Audit: hang, findings: 1, rewrites checked: 0>"


def test_report_of_each_verdict():
    """The findings, the certificate, or why there is neither."""
    race, clean, empty = stage(3, wait=False), stage(3, wait=True), stage(1, wait=True)
    assert race.report().startswith("verdict: race\n\nrace/h2d-read-vs-host-write on rows")
    assert "missing  nothing orders" in race.report()
    lines = race.report(width=70).splitlines()
    (summary,) = (line for line in lines if line.startswith("SUMMARY: "))
    assert max(len(line) for line in lines if line != summary) <= 70
    assert summary.startswith("SUMMARY: racecheck: race/h2d-read-vs-host-write on rows[0]: test_audit.py:")
    line = next(
        n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "synchronize" in text
    )
    assert (
        clean.report()
        == f"""\
verdict: clean

2 rewrites of 1 buffer checked, 0 while an earlier read of the buffer was still open
rows  1 slot, 2 rewrites, 0 open
  device sync at test_audit.py:{line} (2)
certificate: 1 slot is enough for every number of steps: premises a-f held (run-ahead 0 observed, no plan
dropped)
"""
    )
    assert "premise (a) broken at test_audit.py:" in race.report()
    assert empty.report() == (
        "verdict: inconclusive\n\nno staged buffer was rewritten in the audited code; run more steps in it\n"
        "certificate: not checked: no slot was written by two steps; run more steps\n"
    )


@pytest.mark.parametrize(("given", "error"), [(-1, ValueError), ("1", TypeError), (True, TypeError)])
def test_a_run_ahead_is_a_number_of_steps(given, error):
    """What is none is refused."""
    with pytest.raises(error, match="run_ahead"), racecheck.audit(run_ahead=given):
        pass


def test_an_audit_says_what_it_is():
    """On one line, also while it runs."""
    with racecheck.audit() as audit:
        assert repr(audit) == "<Audit: inconclusive, findings: 0, rewrites checked: 0>"
    assert repr(stage(3, wait=True)) == "<Audit: clean, findings: 0, rewrites checked: 2>"
    assert repr(stage(3, wait=False)).startswith("<Audit: race, findings: ")


def test_assert_clean_is_silent_on_a_clean_run_and_not_on_an_empty_one():
    """Clean needs evidence."""
    stage(3, wait=True).assert_clean()
    with pytest.raises(Inconclusive, match="run more steps"):
        stage(1, wait=True).assert_clean()


def test_audit_survives_an_exception_in_the_code():
    """What happened up to the exception is judged, the exception goes on."""
    with pytest.raises(KeyError), racecheck.virtual_cuda(), racecheck.audit() as audit:  # noqa: PT012
        pinned = torch.zeros(4, pin_memory=True)
        torch.empty(4, device="cuda").copy_(pinned, non_blocking=True)
        pinned.numpy()[0] = 1
        raise KeyError
    assert audit.verdict == "race"


def test_audits_nest_and_are_independent():
    """An inner audit judges its stretch only."""
    with racecheck.virtual_cuda(), racecheck.audit() as outer:
        pinned = torch.zeros(4, pin_memory=True)
        device = torch.empty(4, device="cuda")
        device.copy_(pinned, non_blocking=True)
        with racecheck.audit() as inner:
            pinned.fill_(1)
    assert (outer.verdict, inner.verdict) == ("race", "inconclusive")


def test_graph_captured_before_the_audit_is_known():
    """Replays of an older graph are judged by the nodes it was captured with."""
    with racecheck.virtual_cuda():
        pinned = torch.zeros(4, pin_memory=True)
        device = torch.zeros(4, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            device.copy_(pinned, non_blocking=True)
        with racecheck.audit() as audit:
            graph.replay()
            pinned.fill_(1)
    assert audit.verdict == "race"
    assert "replay" in audit.findings[0].first.what


def test_same_run_same_story():
    """Verdict, findings and evidence repeat exactly."""

    def story() -> tuple[object, ...]:
        audit = stage(4, wait=False)
        return audit.verdict, [(str(f.first), str(f.second), f.fingerprint, f.repair) for f in audit.findings]

    assert story() == story()


def test_audit_without_a_provider_says_so():
    """Outside the virtual device nothing is recorded: more steps would not help."""
    with racecheck.audit() as audit:
        torch.zeros(4).add_(1)
    assert audit.verdict == "inconclusive"
    assert "under racecheck.virtual_cuda()" in audit.report()
    with pytest.raises(Inconclusive, match="no device work was recorded"):
        audit.assert_clean()


def _rewrites(count: int) -> list[r.Record]:
    """Copies of 8 bytes of slot 0 of a named buffer, each behind a write that waits for nothing."""
    records: list[r.Record] = [
        r.Alloc(thread="main", span=(0, 8), kind="pinned", name="p[0]", buffer="p", slot=0)
    ]
    for number in range(count):
        mark = r.Mark(step=number)
        node = r.Node(kind="h2d", reads=((0, 8),), writes=((100, 108),))
        records.append(r.HostAccess(thread="main", writes=((0, 8),), mark=mark))
        records.append(r.DeviceOp(thread="main", stream="1", node=node, mark=mark))
    return records


@pytest.mark.parametrize("ask", ["verdict", "findings", "first", "premises", "buffers", "repr", "trace"])
def test_every_answer_knows_what_was_heard_so_far(ask):
    """Records are judged in batches; whoever asks, inside the context too, gets them all judged first."""
    with racecheck.audit() as audit:
        for record in _rewrites(3):
            emit(record)
        answers = {
            "verdict": lambda: audit.verdict == "race",
            "findings": lambda: len(audit.findings) == 1,
            "first": lambda: audit.first is not None,
            "premises": lambda: audit.premises.steps == 3,
            "buffers": lambda: audit.buffers == {"p"},
            "repr": lambda: "race, findings: 1" in repr(audit),
            "trace": lambda: len(audit.trace) == 7,
        }
        assert answers[ask]()


def test_a_record_that_makes_no_sense_costs_itself_only():
    """The error comes out where the batch is judged; what was heard besides it still counts."""
    audit = Audit()
    for record in (r.Replay(thread="main", graph="never captured", stream="1"), *_rewrites(2)):
        audit(record)
    with pytest.raises(TraceError, match="never captured"):
        _ = audit.verdict
    assert (audit.verdict, len(audit.trace)) == ("race", 5)
    assert audit.findings[0].repair is not None


def test_a_record_that_comes_while_a_batch_is_taken_is_kept():
    """Another thread asks for the verdict between the look-up of the list and the addition to it."""
    audit = Audit()
    add = audit._pending.append
    audit(Collective(thread="main", rank=0, name="all_reduce"))
    assert audit.verdict == "inconclusive"
    add(Collective(thread="main", rank=1, name="all_gather"))
    assert audit.verdict == "hang"
