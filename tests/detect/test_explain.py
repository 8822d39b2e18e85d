"""Every reason has a program in which it must be given, and a near twin in which it must not."""

from __future__ import annotations

import pytest
from programs import Program

from racecheck.detect.advice import advise
from racecheck.detect.explain import explain
from racecheck.trace import records as r


def staged() -> Program:
    """One pinned write and its copy on stream s."""
    return Program().alloc("P").write("P").h2d("P", "D")


CASES = {
    "nothing": (staged().write("P"), "waits for nothing that covers stream s"),
    "recorded before": (
        Program().alloc("P").write("P").record("e").h2d("P", "D").sync("e").write("P"),
        "came after that record",
    ),
    "never recorded": (staged().sync("e").write("P"), "was never recorded"),
    "other stream": (
        staged().record("e", "t").sync("e").write("P"),
        "covers stream t; the first access is on stream s",
    ),
    "pending": (staged().record("e").sync("e", how="query", done=False).write("P"), "answered pending"),
    "other stream's sync": (staged().sync_stream("t").write("P"), "waits for stream t"),
    "re-recorded": (
        staged().record("e").record("e", "t").sync("e").write("P"),
        "stands for the later record",
    ),
    "other thread": (
        staged().record("e").sync("e", thread="t").write("P"),
        "nothing hands that over to main",
    ),
    "too late": (staged().record("e").write("P").sync("e"), "comes after the access it should protect"),
    "stream wait before": (
        Program().record("e", "s").op("s", writes="D").wait("t", "e").op("t", reads="D"),
        "came after that record",
    ),
    "threads": (Program().write("P", thread="a").read("P", thread="b"), "thread b waits for nothing"),
}


@pytest.mark.parametrize("case", CASES)
def test_reason_is_given(case):
    """The sentence names what is there and the rule it fails; no other case's sentence appears."""
    program, words = CASES[case]
    (finding,) = program.judge().findings
    # a finding belongs to the trace it was found in: judge and explain the same records
    reasons = explain(program.records, finding)
    assert any(words in reason for reason in reasons), reasons
    others = [text for name, (_, text) in CASES.items() if text != words and name != case]
    assert not any(text in reason for text in others for reason in reasons)


def test_reasons_name_the_lines():
    """The wait's and the record's line stand in the sentence."""
    program, _ = CASES["recorded before"]
    (finding,) = program.judge().findings
    (reason,) = explain(program.records, finding)
    assert "program.py:5" in reason
    assert "program.py:3" in reason


def test_a_foreign_trace_gives_no_reasons():
    """Records that are not in the trace cannot be explained by it."""
    (finding,) = staged().write("P").judge().findings
    assert explain(staged().write("P").records, finding) == []


def kinds(program: Program) -> list[str]:
    """The repairs of the only finding, by their first words."""
    (finding,) = program.judge().findings
    advise(program.records, finding)
    return [" ".join(text.split()[:2]) for text in finding.repairs]


def test_repairs_cheapest_first():
    """Moving a misplaced record beats a new wait, which beats memory."""
    assert kinds(Program().alloc("P").write("P").record("e").h2d("P", "D").sync("e").write("P")) == [
        "record the", "record an", "give P", "write a",
    ]  # fmt: skip
    assert kinds(staged().write("P")) == ["record an", "give P", "write a"]


def test_a_second_slot_is_offered_only_if_it_helps():
    """Without a wait two slots race at the third write: only fresh memory or a wait helps."""
    program = Program().alloc("P")
    for step in range(4):
        program.line(1).at(step).write("P").h2d("P", "D")
    assert kinds(program) == ["record an", "write a"]
    waited = Program().alloc("P")
    for step in range(4):
        waited.line(1).at(step).write("P").h2d("P", "D").record(f"e{step}")
        if step:
            waited.sync(f"e{step - 1}")
    assert "give P" in kinds(waited)


def test_memory_repairs_are_for_host_rewrites_of_live_copies():
    """A replay has its address baked in, and a device write is not the host's to move."""
    node = r.Node(kind="h2d", reads=((0x8000, 0x8040),), writes=((0x4000, 0x4040),))
    replayed = Program().capture("g", node).replay("g")
    replayed._add(r.HostAccess, "main", writes=((0x8000, 0x8040),))
    assert kinds(replayed) == ["record an"]
    assert kinds(Program().op("s", writes="D").op("t", writes="D")) == ["record an"]


def test_moving_the_record_of_another_step_is_not_proposed():
    """The event of step 0 waited for in step 1 is not the one to record after step 1's copy."""
    program = Program().alloc("P")
    for step in range(3):
        program.line(1).at(step).write("P").h2d("P", "D").record(f"e{step}")
        if step:
            program.sync(f"e{step - 1}")
    assert "record the" not in kinds(program)


def test_recycled_block_is_repaired_by_its_pool():
    """Bytes from a pool that did not wait: another temporary may be the same block again."""
    program = staged().alloc("P", reuse=True, buffer=None).write("P")
    assert kinds(program) == ["record an", "take the"]


def test_read_at_any_time_is_repaired_by_a_host_wait():
    """A stream wait does not hold a read that follows only its call."""
    program = Program().alloc("P").op("s", "hostfn", writes="P").op("s", "h2d", writes="D", any_reads="P")
    (finding,) = program.judge().findings
    advise(program.records, finding)
    assert "wait for it on the host" in str(finding.repair)
    assert "(any order)" not in str(finding.repair)
    assert "follows only its call" in finding.reasons[0]
