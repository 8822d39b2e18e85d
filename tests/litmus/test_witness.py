"""Wrong bytes behind gates, with the virtual device in place of a GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import fake_gate
import pytest
import torch
from fake_gate import FakeGate, NoGate, bench

from racecheck.litmus import judge, load, parse
from racecheck.litmus import program as p
from racecheck.litmus.device_ops import device_work, spread, value_of
from racecheck.litmus.expressible import obstacle
from racecheck.litmus.gates import Plan
from racecheck.litmus.held import LIMIT_S, attempt
from racecheck.litmus.on_gpu import row
from racecheck.litmus.schedules import in_program_order
from racecheck.litmus.witness import Witness, verdict, warm_up, witness
from racecheck.virtual import virtual_cuda
from racecheck.virtual.events import Event

COLLECTION = Path(__file__).parents[2] / "scenarios" / "litmus"
FILES = {path.stem: path for path in sorted(COLLECTION.glob("*.litmus"))}
RUN = [name for name, path in FILES.items() if obstacle(load(path)) is None]
RACE = "alloc pinned P / alloc device D / host_write P / h2d P -> D on s / host_write P"
SAFE = RACE.replace("on s", "on s / sync s")


@pytest.fixture(autouse=True)
def no_gates():
    """Each test has gates of its own."""
    fake_gate.gates.clear()


def program(short: str, expect: str = "SAFE") -> p.Program:
    """The program whose lines are separated by " / " in `short`; its first line is line 2."""
    return parse(f"# expect: {expect}\n" + short.replace(" / ", "\n") + "\n")


@pytest.mark.parametrize("name", RUN)
def test_every_program_shows_what_its_verdict_says_and_never_waits_behind_its_gate(name):
    """Every race forced, no other bytes wrong, no run inconclusive, every gate opened in time."""
    done = row(judge(load(FILES[name])), bench(), 4)
    assert done.ok, done
    assert not done.witness.inconclusive
    assert not done.witness.not_forced
    assert bool(done.witness.wrong) == (load(FILES[name]).expect == "RACE")
    assert all(gate.is_open and not gate.timed_out for gate in fake_gate.gates)


# -- the checks must be able to fail -------------------------------------------------------------


def test_a_wait_behind_the_gate_is_noticed():
    """A plan that opens too late: the run shows nothing, and says so."""
    safe = program(SAFE)
    plan = Plan(tuple(safe.statements), 3, None, len(safe.statements))
    with virtual_cuda("latest"):
        found = attempt(safe, plan, {}, FakeGate)
    assert found.timed_out
    assert found.outcome is None
    assert (
        found.inconclusive == f"the host waited behind the gate, which opened by itself after {LIMIT_S:g} s"
    )


def test_no_further_run_after_a_wait_behind_a_gate(monkeypatch):
    """It would take as long again."""
    monkeypatch.setattr("racecheck.litmus.behind.Behind.blocks", lambda self, statement: False)
    safe = program(SAFE)
    shown = witness(safe, bench(), in_program_order(safe), 50)
    assert (shown.tries, shown.inconclusive) == (1, 1)
    assert str(shown).startswith("inconclusive in all of 1: the host waited behind the gate")
    done = row(judge(safe), bench(), 50)
    assert not done.ok


def test_a_window_that_closed_too_early_is_inconclusive():
    """A gate that holds nothing, on a device that is never late."""
    racing = program(RACE, "RACE")
    never_late = bench("eager", NoGate)
    shown = witness(racing, never_late, in_program_order(racing), 3)
    assert (shown.tries, shown.wrong, shown.inconclusive) == (3, 0, 3)
    assert shown.why == "line 5 was done before line 6 began (line 5 held until line 6 was done)"
    assert not row(judge(racing), never_late, 3).ok


def test_wrong_bytes_of_a_safe_program_are_seen(monkeypatch):
    """Streams that do not wait for events."""
    monkeypatch.setattr(Event, "wait", lambda self, *_: None)
    loaded = load(FILES["cross-stream-05-fixed"])
    shown = witness(loaded, bench(), in_program_order(loaded), 4)
    assert shown.wrong
    assert not row(judge(loaded), bench(), 4).ok


def test_another_result_in_program_order_is_refused():
    """Before anything is held."""
    safe = program(SAFE)
    other = dataclasses.replace(bench(), expected=lambda _: (("line 5: h2d to D", "00"),))
    with pytest.raises(AssertionError, match="other bytes than the virtual device: line 5: h2d to D"):
        warm_up(safe, other)
    done = row(judge(safe), other, 1)
    assert not done.ok
    assert not done.fatal
    assert done.problem.startswith("AssertionError: in program order")


def test_a_lost_device_ends_the_session():
    """A CUDA error stays for the life of the process."""

    def lost(program):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    done = row(judge(program(SAFE)), dataclasses.replace(bench(), expected=lost), 1)
    assert done.fatal
    assert not done.ok


def test_a_race_that_cannot_be_forced_is_not_claimed():
    """With the reason."""
    racing = program(
        "alloc pinned P / alloc device D / [a] h2d P -> D on s / [a] sync s / [b] d2h D -> P on t", "RACE"
    )
    done = row(judge(racing), bench(), 3)
    assert str(done.witness) == "not forced: line 4 and line 6: the host waits for the first in line 5"
    assert done.witness.tries == 0


# -- verdicts and words --------------------------------------------------------------------------


def test_what_no_call_tells_is_said():
    """Pageable memory is in no trace."""
    done = row(judge(load(FILES["bucket-key-01-broken"])), bench(), 1)
    assert done.ok
    assert done.ordering == "operands in pageable memory, which nobody follows"
    assert "pageable memory" in row(judge(load(FILES["deferred-consumer-01-broken"])), bench(), 1).ordering


@pytest.mark.parametrize(
    ("name", "expected"),
    [("safe-03", "SAFE"), ("bucket-key-03-broken", "STALE"), ("cross-stream-15-broken", "RACE")],
)
def test_the_calls_of_a_run_have_the_verdict(name, expected):
    """Stale operands included; what is listed as pending is held for it."""
    assert verdict(load(FILES[name]), bench()) == expected


def test_a_graph_that_writes_what_was_given_back():
    """Nothing can be said of a tensor that died."""
    replayed = program("alloc device D / graph g { kernel writes D as v } / release D / replay g on s")
    assert verdict(replayed, bench()) == "SAFE"


def test_what_a_witness_says():
    """Counts, the consumer, what was held, and what was inconclusive."""
    shown = Witness(50, 48, 2, 3, "line 4 held until line 5 was done", ("line 5: host_read P",), "why")
    assert str(shown) == (
        "wrong bytes 48 of 50 in line 5: host_read P, line 4 held until line 5 was done; 2 inconclusive: why"
    )
    assert str(Witness(50, plans=1)) == "never wrong in 50 (1 way to hold)"


# -- the operator --------------------------------------------------------------------------------


def test_the_operator_tells_every_byte_it_reads_and_who_it_is():
    """One other byte, or another name, changes what it leaves."""
    left = set()
    with virtual_cuda("eager"):
        for who, at in [("a", None), ("b", None), *(("a", at) for at in range(40))]:
            read = torch.zeros(40, dtype=torch.uint8)
            if at is not None:
                read[at] = 1
            seen = torch.zeros(16, dtype=torch.uint8).cuda()
            device_work()([read.cuda()], [], seen, who, "")
            left.add(tuple(seen.tolist()))
    assert len(left) == 42


def test_a_named_value_is_the_same_on_the_host_and_on_the_device():
    """In any number of bytes."""
    with virtual_cuda("eager"):
        for size in (1, 16, 40):
            target, seen = (torch.zeros(n, dtype=torch.uint8).cuda() for n in (size, 16))
            device_work()([], [target], seen, "who", "v")
            assert target.tolist() == spread(value_of("value", "v"), size).tolist()
