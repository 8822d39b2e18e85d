"""Every legal schedule of small programs, against an enumeration without any cleverness."""

from __future__ import annotations

import random
import threading

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import racecheck
from racecheck.errors import DeadlockError, Inconclusive, UnsupportedOperation, UsageError
from racecheck.virtual import Raised, explore
from racecheck.virtual.history import History
from racecheck.virtual.lag import SWITCH
from racecheck.virtual.machine import Machine, machine

REPEATABLE = settings(derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))


class TooMany(Exception):
    """The plain enumeration would take too long."""


class Plain:
    """Follows a list of answers, then takes 0, and remembers how many answers there were."""

    name = "plain"

    def __init__(self, path: list[int]) -> None:
        self.path, self.options = path, []

    def decide(self, kind: str, options: int) -> int:
        """The next of the list."""
        self.options.append(options)
        if len(self.options) > len(self.path):
            self.path.append(0)
        return self.path[len(self.options) - 1]


def brute_force(program, most: int) -> tuple[set[object], int]:
    """All outcomes of `program`, and how many schedules it has; every one of them is run to its end."""
    outcomes, count, path = set(), 0, []
    while True:
        lag = Plain(path)
        with racecheck.virtual_cuda(lag):
            outcomes.add(program())
        count += 1
        if count > most:
            raise TooMany
        while path and path[-1] + 1 == lag.options[len(path) - 1]:
            path.pop()
        if not path:
            return outcomes, count
        path[-1] += 1


# -- by hand -------------------------------------------------------------------------------------


def writer_and_reader(ordered: bool):
    """One stream writes 1 over 0, another reads."""
    x = torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    writes, reads = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(writes):
        x.fill_(1)
    if ordered:
        reads.wait_event(writes.record_event())
    with torch.cuda.stream(reads):
        return int(x.item())


def test_a_racing_read_sees_the_old_and_the_new_value():
    """And nothing else. The tokens show each again, with the ordinary device."""
    found = explore(lambda: writer_and_reader(ordered=False))
    assert set(found.outcomes) == {0, 1}
    assert found.complete
    for outcome, token in found.outcomes.items():
        with racecheck.virtual_cuda(token):
            assert writer_and_reader(ordered=False) == outcome


def test_an_ordered_read_sees_one_value():
    """`assert_one_outcome` returns it, and names the tokens when there are two."""
    assert explore(lambda: writer_and_reader(ordered=True)).assert_one_outcome() == 1
    with pytest.raises(AssertionError, match=r"2 outcomes.* with lag 'd1\..* with lag 'd1\."):
        explore(lambda: writer_and_reader(ordered=False)).assert_one_outcome()


def test_a_copy_between_two_host_writes():
    """The block holds 1, then 2; the copy reads either, the one issued after both reads 2."""

    def program():
        host = torch.ones(1, dtype=torch.int64, pin_memory=True)
        first = host.to("cuda", non_blocking=True)
        host.fill_(2)
        second = host.to("cuda", non_blocking=True)
        return first, second

    assert set(explore(program).outcomes) == {((1,), (2,)), ((2,), (2,))}


def test_three_writers_in_every_order_of_their_last():
    """Three streams each write their number: any may be the last."""

    def program():
        x = torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
        for number in (1, 2, 3):
            with torch.cuda.stream(torch.cuda.Stream()):
                x.fill_(number)
        torch.cuda.synchronize()
        return x.item()

    found = explore(program)
    assert set(found.outcomes) == {1.0, 2.0, 3.0}
    assert found.schedules < brute_force(program, 1000)[1]


def test_pinned_memory_read_without_a_call_is_part_of_the_state():
    """The host reads through numpy and hides what it saw at once; only its variable remembers."""

    def program():
        device = torch.ones(1, device="cuda")
        host = torch.zeros(1, pin_memory=True)
        view = host.numpy()
        torch.cuda.synchronize()
        host.copy_(device, non_blocking=True)
        seen = float(view[0])
        view[0] = 0.0
        torch.cuda.synchronize()
        view[0] = 0.0
        other = torch.zeros(1, device="cuda")
        other.fill_(3)
        return seen

    assert set(explore(program).outcomes) == {0.0, 1.0}


def test_a_poll_answers_pending_at_most_so_often():
    """From never to `polls` times; the device runs on its own after that."""

    def program():
        torch.zeros(1, device="cuda")
        event = torch.cuda.Event()
        event.record()
        polls = 0
        while not event.query():
            polls += 1
        return polls

    for polls in (1, 4):
        found = explore(program, polls=polls)
        assert set(found.outcomes) == set(range(polls + 1))
        for polls, token in found.outcomes.items():
            with racecheck.virtual_cuda(token):
                assert program() == polls


def test_what_a_timed_event_says_is_an_outcome():
    """Two streams: the second event may be reached after either amount of work."""

    def program():
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.zeros(1, device="cuda")
        last.record()
        last.synchronize()
        return round(first.elapsed_time(last) * 1000)

    assert set(explore(program).outcomes) == {1, 2}


def test_a_recycled_pinned_block_depends_on_the_copy():
    """The pool hands the block out again if its copy is done: the host may see the old address or not."""

    def program():
        device = torch.zeros(128, device="cuda")
        host = torch.zeros(128, pin_memory=True)
        device.copy_(host, non_blocking=True)
        old = host.data_ptr()
        del host
        return torch.empty(128, pin_memory=True).data_ptr() == old

    assert set(explore(program).outcomes) == {True, False}


def test_an_exception_is_an_outcome():
    """With its type and what it says; an error of racecheck's own is not."""

    def program():
        if writer_and_reader(ordered=False):
            raise ValueError("too new\nand more")
        return "old"

    assert set(explore(program).outcomes) == {"old", Raised("ValueError", "too new")}
    with pytest.raises(UnsupportedOperation):
        explore(lambda: torch.cuda.ExternalStream(1))


def test_random_numbers_start_alike_in_every_run():
    """On the device, on the host, and in Python."""

    def program():
        return torch.rand(2, device="cuda"), torch.rand(2), random.random()

    assert len(explore(program).outcomes) == 1


def test_threads_are_told_apart_and_need_not_confuse_it():
    """A thread that is waited for at once: one outcome, however often threads are numbered anew."""

    def program():
        x = torch.zeros(1, device="cuda")
        thread = threading.Thread(target=lambda: x.add_(1))
        thread.start()
        thread.join()
        return x

    assert explore(program).assert_one_outcome() == (1.0,)


def test_every_kind_of_question_is_enumerated():
    """Also one after the other with no work between: which thread goes on makes a state of its own."""

    def program():
        return [machine().scheduler.lag.decide(SWITCH, 3) for _ in range(2)]

    found = explore(program)
    assert set(found.outcomes) == {(one, two) for one in range(3) for two in range(3)}
    assert (found.schedules, found.states, found.pruned) == (9, 4, 0)


# -- limits and refusals -------------------------------------------------------------------------


def test_a_limit_is_never_silent():
    """Not complete, and so no certificate."""
    found = explore(lambda: writer_and_reader(ordered=True), limit=1)
    assert not found.complete
    with pytest.raises(Inconclusive, match="higher limit"):
        found.assert_one_outcome()


def test_a_program_that_is_not_deterministic_is_refused():
    """It takes another path each time."""
    runs = []

    def program():
        runs.append(None)
        for _ in range(len(runs) % 3 + 1):
            torch.zeros(1, device="cuda").fill_(1)

    with pytest.raises(UsageError, match="does the same whenever"):
        explore(program)


def test_other_bytes_on_the_same_path_are_refused_too():
    """The decisions are the same, but not the state."""
    runs = []

    def program():
        runs.append(None)
        host = torch.full((1,), float(len(runs)), pin_memory=True)
        return host.to("cuda", non_blocking=True).item()

    with pytest.raises(UsageError, match="does the same whenever"):
        explore(program)


@pytest.mark.parametrize("bad", [{"limit": 0}, {"polls": 0}])
def test_no_limit_and_no_polls(bad):
    """One line that says what to write."""
    with pytest.raises(UsageError, match="at least 1"):
        explore(lambda: 0, **bad)


def test_an_outcome_must_be_comparable():
    """An object is equal to itself only."""
    with pytest.raises(UsageError, match="numbers, text"):
        explore(object)


# -- against the plain enumeration ---------------------------------------------------------------

STREAM, SLOT = st.integers(0, 1), st.integers(0, 1)
STEP = st.one_of(
    st.tuples(st.just("fill"), STREAM, SLOT, st.integers(1, 3)),
    st.tuples(st.just("add"), STREAM, SLOT, SLOT),
    st.tuples(st.just("h2d"), STREAM, SLOT, SLOT),
    st.tuples(st.just("d2h"), STREAM, SLOT, SLOT),
    st.tuples(st.just("write"), SLOT, st.integers(4, 6)),
    st.tuples(st.just("peek"), SLOT),
    st.tuples(st.just("read"), STREAM, SLOT),
    st.tuples(st.just("record"), STREAM),
    st.tuples(st.just("wait"), STREAM),
    st.tuples(st.just("query"), STREAM),
    st.tuples(st.just("sync"), STREAM),
)


def interpret(steps) -> tuple[object, ...]:
    """Run the steps; what the host saw on the way, and all memory at the end."""
    device = [torch.zeros(1, dtype=torch.int64, device="cuda") for _ in range(2)]
    host = [torch.full((1,), 7 + i, pin_memory=True) for i in range(2)]
    torch.cuda.synchronize()
    streams, event, seen = [torch.cuda.Stream(), torch.cuda.Stream()], torch.cuda.Event(), []
    for name, *where in steps:
        with torch.cuda.stream(streams[where[0]]):
            match name, where:
                case "fill", (_, slot, value):
                    device[slot].fill_(value)
                case "add", (_, one, two):
                    device[one].add_(device[two])
                case "h2d", (_, one, two):
                    device[one].copy_(host[two], non_blocking=True)
                case "d2h", (_, one, two):
                    host[one].copy_(device[two], non_blocking=True)
                case "write", (slot, value):
                    host[slot].numpy()[0] = value
                case "peek", (slot,):
                    seen.append(int(host[slot].numpy()[0]))
                case "read", (_, slot):
                    seen.append(device[slot].item())
                case "record", (_,):
                    event.record()
                case "wait", (stream,):
                    streams[stream].wait_event(event)
                case "query", (stream,):
                    seen.append(streams[stream].query())
                case _:
                    streams[where[0]].synchronize()
    torch.cuda.synchronize()
    return (*seen, *(int(tensor.item()) for tensor in (*device, *host)))


def compare(steps) -> None:
    """`explore` and the plain enumeration find the same outcomes."""
    try:
        outcomes, count = brute_force(lambda: interpret(steps), 300)
    except TooMany:
        assume(False)
    found = explore(lambda: interpret(steps))
    assert set(found.outcomes) == outcomes
    assert found.complete
    assert found.schedules <= count


@settings(REPEATABLE, max_examples=30)
@given(st.lists(STEP, min_size=3, max_size=7))
def test_both_find_the_same_outcomes(steps):
    """Pruning loses none, and never costs a run."""
    compare(steps)


#: A choice that is remembered, and after everything came to rest another one that shows.
LATER = [("sync", 0), ("sync", 1), ("fill", 0, 1, 3), ("query", 0)]


@pytest.mark.parametrize(
    ("owner", "forgotten", "steps"),
    [
        (History, "took", [("fill", 0, 0, 1), ("fill", 1, 0, 2), *LATER]),
        (History, "read", [("fill", 1, 0, 1), ("read", 0, 0), *LATER]),
        (History, "returned", [("d2h", 0, 0, 0), ("peek", 0), ("sync", 0), ("write", 0, 5), *LATER]),
        (Machine, "learn", [("fill", 0, 0, 1), ("query", 0), *LATER]),
    ],
)
def test_a_state_that_leaves_something_out_loses_an_outcome(monkeypatch, owner, forgotten, steps):
    """The bytes of memory, what blocking calls read, what lay in pinned memory, what queries said."""
    compare(steps)
    monkeypatch.setattr(owner, forgotten, lambda self, *facts, **more: None)
    with pytest.raises(AssertionError):
        compare(steps)


def _shared() -> tuple[torch.Tensor, torch.Tensor]:
    pinned, device = torch.zeros(2, pin_memory=True), torch.ones(2, device="cuda")
    torch.cuda.synchronize()
    return pinned, device


def host_reads_twice():
    """The copy lands before, between or after two reads of the host."""
    pinned, device = _shared()
    pinned.copy_(device, non_blocking=True)
    return pinned[0].item(), pinned[1].item()


def host_lists_twice():
    """The same, read past torch's operations."""
    pinned, device = _shared()
    pinned.copy_(device, non_blocking=True)
    return pinned.tolist()[0], pinned.tolist()[0]


def host_writes_and_puts_back():
    """The copy may catch what the host wrote for a moment."""
    pinned, device = _shared()
    device.copy_(pinned, non_blocking=True)
    pinned.add_(1)
    pinned.sub_(1)
    return device[0].item()


def streams_in_any_order_after_the_host_looked():
    """Nothing was done when the host looked; then a wait for both finds either order."""
    done = []
    for name in "ab":
        racecheck.host_function(lambda name=name: done.append(name), stream=torch.cuda.Stream())
    before = len(done)
    torch.cuda.synchronize()
    return before, *done


BETWEEN = {
    host_reads_twice: {(0, 0), (0, 1), (1, 1)},
    host_lists_twice: {(0, 0), (0, 1), (1, 1)},
    host_writes_and_puts_back: {0, 1},
    streams_in_any_order_after_the_host_looked: {(n, *order) for n in (0, 1, 2) for order in ("ab", "ba")},
}


@pytest.mark.parametrize("program", BETWEEN, ids=lambda program: program.__name__)
def test_the_device_gets_on_between_any_two_calls(program):
    """Every place between two accesses of the host, and before a wait, is one where work may be done."""
    found = explore(program)
    assert set(found.outcomes) == BETWEEN[program]
    assert found.complete
    for outcome, token in found.outcomes.items():
        with racecheck.virtual_cuda(token):
            assert program() == outcome


def test_a_deadlock_of_some_schedules_is_an_outcome():
    """The others end well; the token leads into it."""

    def program() -> int:
        first, second = threading.Lock(), threading.Lock()

        def other() -> None:
            with first, second:
                pass

        thread = threading.Thread(target=other)
        thread.start()
        with second, first:
            pass
        thread.join()
        return 1

    found = explore(program)
    kinds = {getattr(outcome, "kind", outcome): token for outcome, token in found.outcomes.items()}
    assert set(kinds) == {1, "DeadlockError"}
    with pytest.raises(DeadlockError), racecheck.virtual_cuda(kinds["DeadlockError"]):
        program()
