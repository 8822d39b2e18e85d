from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future

import pytest
import torch

from racecheck.errors import UsageError
from racecheck.prove.orders import _judged, explore_orders
from racecheck.trace import records as r
from racecheck.virtual import orders as orders_module
from racecheck.virtual import reduction
from racecheck.virtual.orders import Orders
from racecheck.virtual.reduction import Order, Reduction
from racecheck.virtual.touches import touches_of

#: More schedules than this are not enumerated.
MOST = 3000


def brute_force(program: Callable[[], Hashable]) -> tuple[set[Hashable], set[bytes], int]:
    """All outcomes and classes of `program`, every schedule run, and how many those are."""
    lag, path = Orders(), list[int]()
    outcomes, classes, count = set(), set(), 0
    while count < MOST:
        lag.begin(path)
        outcomes.add(_judged(program, lag))
        classes.add(Order(lag.noted()).digest())
        count += 1
        tree = [(step.thread, step.enabled) for step in lag.steps]
        while tree and tree[-1][0] == tree[-1][1][-1]:
            tree.pop()
        if not tree:
            return outcomes, classes, count
        taken, enabled = tree.pop()
        path = [thread for thread, _ in tree] + [enabled[enabled.index(taken) + 1]]
    raise AssertionError("the program is too large to be enumerated")


# -- programs ------------------------------------------------------------------------------------


def beside(other: Callable[[], object], own: Callable[[], object]) -> None:
    """`other` in a thread beside `own`: a thread fewer to enumerate."""
    thread = threading.Thread(target=other)
    thread.start()
    own()
    thread.join()


def locked() -> Hashable:
    """Who gets the lock first?"""
    lock, order = threading.Lock(), []

    def work(name: int) -> None:
        with lock:
            order.append(name)

    beside(lambda: work(1), lambda: work(2))
    return tuple(order)


def one_stream() -> Hashable:
    """Two threads fill one tensor on one stream: the later issue wins."""
    stream, x = torch.cuda.Stream(), torch.zeros(1, device="cuda")
    torch.cuda.synchronize()

    def work(value: int) -> None:
        with torch.cuda.stream(stream):
            x.fill_(value)

    beside(lambda: work(1), lambda: work(2))
    torch.cuda.synchronize()
    return x.item()


def staged() -> tuple[torch.Tensor, torch.cuda.Stream]:
    """A pinned tensor, and a stream on which a copy of it is queued."""
    host, stream = torch.ones(4, pin_memory=True), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        host.to("cuda", non_blocking=True)
    return host, stream


def late_record() -> Hashable:
    """A wait for an event orders the rewrite only if the other thread has recorded it before."""
    (host, stream), event = staged(), torch.cuda.Event()

    def rewrite() -> None:
        event.synchronize()
        host.fill_(2)

    beside(lambda: event.record(stream), rewrite)
    return None


def handed_over() -> Hashable:
    """The same through a queue: always ordered."""
    (host, stream), event, done = staged(), torch.cuda.Event(), queue.SimpleQueue()

    def record() -> None:
        event.record(stream)
        done.put(event)

    def rewrite() -> None:
        done.get().synchronize()
        host.fill_(2)

    beside(record, rewrite)
    return None


def late_wait() -> Hashable:
    """A stream waits for an event in one thread, and the other records it."""
    (host, stream), event, other = staged(), torch.cuda.Event(), torch.cuda.Stream()

    def wait() -> None:
        other.wait_event(event)
        other.synchronize()
        host.fill_(2)

    beside(lambda: event.record(stream), wait)
    return None


def two_puts() -> Hashable:
    """Whose item comes out first?"""
    items = queue.SimpleQueue()
    beside(lambda: items.put(1), lambda: items.put(2))
    return items.get(), items.get()


def asked_future() -> Hashable:
    """Whoever asks whether a future is done may hear either."""
    future: Future[None] = Future()
    answers = []
    beside(lambda: future.set_result(None), lambda: answers.append(future.done()))
    return tuple(answers)


def opposite_locks() -> Hashable:
    """Each takes its own lock and wants the other's: sometimes they block each other."""
    one, two = threading.Lock(), threading.Lock()

    def work(first: threading.Lock, second: threading.Lock) -> None:
        with first, second:
            pass

    beside(lambda: work(one, two), lambda: work(two, one))
    return None


#: How many outcomes each has.
PROGRAMS = {
    locked: 2, one_stream: 2, late_record: 2, handed_over: 1, late_wait: 2, two_puts: 2, asked_future: 2,
    opposite_locks: 2,
}  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_reduction_comes_to_all_that_brute_force_comes_to(program) -> None:
    """The same outcomes and verdicts, and a run of every class, in fewer runs."""
    outcomes, classes, count = brute_force(program)
    found = explore_orders(program, sample=5)
    assert set(found.outcomes) == outcomes
    assert len(outcomes) == PROGRAMS[program]
    assert (found.classes, found.strangers, found.complete) == (len(classes), 0, True)
    assert found.runs < count


# -- drawn programs ------------------------------------------------------------------------------


class Shared:
    """What the two threads of a drawn program share."""

    def __init__(self) -> None:
        self.host, self.stream = staged()
        self.other, self.event = torch.cuda.Stream(), torch.cuda.Event()
        self.lock, self.items, self.told = threading.Lock(), queue.SimpleQueue(), []
        self.x = torch.zeros(1, device="cuda")
        torch.cuda.synchronize()

    def do(self, what: str, number: int) -> None:
        """One action of a thread."""
        match what:
            case "record":
                self.event.record(self.stream)
            case "wait":
                self.event.synchronize()
            case "stream wait":
                self.other.wait_event(self.event)
            case "fill":
                with torch.cuda.stream(self.other):
                    self.x.fill_(number)
            case "lock":
                with self.lock:
                    self.told.append(number)
            case "write":
                self.host[number] = 7
            case "put":
                self.items.put(number)


ACTIONS = ("record", "wait", "stream wait", "fill", "lock", "write", "put")


def drawn(seed: int) -> Callable[[], Hashable]:
    """A program of two threads with one action and one or two."""
    draw = random.Random(seed)
    halves = [draw.choices(ACTIONS, k=draw.randint(1, most)) for most in (1, 2)]

    def program() -> Hashable:
        shared = Shared()

        def work(half: int) -> Callable[[], None]:
            def run() -> None:
                for place, what in enumerate(halves[half]):
                    shared.do(what, 2 * half + place)

            return run

        beside(work(0), work(1))
        items = [shared.items.get() for _ in range(sum(half.count("put") for half in halves))]
        torch.cuda.synchronize()
        return tuple(shared.told), tuple(items), shared.x.item()

    return program


def test_drawn_programs() -> None:
    """The same on programs that nobody chose; some have several classes."""
    several = 0
    for seed in range(30):
        outcomes, classes, _ = brute_force(drawn(seed))
        found = explore_orders(drawn(seed))
        assert (set(found.outcomes), found.classes) == (outcomes, len(classes)), seed
        assert found.complete
        several += len(classes) > 1
    assert several


# -- broken reductions ---------------------------------------------------------------------------


def misses(program: Callable[[], Hashable]) -> bool:
    """Does the reduction miss something that brute force finds?"""
    return set(explore_orders(program).outcomes) != brute_force(program)[0]


def test_a_reduction_in_which_nothing_conflicts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs one order only."""
    monkeypatch.setattr(reduction, "conflict", lambda one, other: False)
    assert misses(locked)
    assert misses(late_wait)


def test_a_reduction_that_never_turns_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds the conflicts, and plans nothing."""
    monkeypatch.setattr(Reduction, "_plan", lambda *_: None)
    assert misses(locked)


@pytest.mark.parametrize(
    ("record", "program"), [(r.EventRecord, late_record), (r.DeviceOp, one_stream)], ids=["events", "streams"]
)
def test_a_dependence_that_is_forgotten_is_caught(record, program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that touch nothing."""
    right = touches_of
    forgetful = lambda each: () if isinstance(each, record) else right(each)  # noqa: E731
    monkeypatch.setattr(orders_module, "touches_of", forgetful)
    assert misses(program)


# -- what is no proof ----------------------------------------------------------------------------


def test_who_asks_the_device_is_not_explored_completely() -> None:
    """A query's answer depends on when work retires."""

    def program() -> Hashable:
        _, stream = staged()
        beside(lambda: None, stream.query)
        return None

    assert not explore_orders(program).complete


def test_a_limit_leaves_orders_out() -> None:
    """And says so."""
    found = explore_orders(locked, limit=1)
    assert (found.runs, found.complete) == (1, False)


def test_a_program_that_does_something_else_is_refused() -> None:
    """In the same order of threads it must do the same."""
    runs = []

    def program() -> Hashable:
        runs.append(None)
        return locked() if len(runs) == 1 else None

    with pytest.raises(UsageError, match="does the same whenever its threads take turns alike"):
        explore_orders(program)
