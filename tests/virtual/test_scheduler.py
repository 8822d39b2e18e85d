"""Host threads take turns: one seed is one schedule, lags differ, and nobody is kept out for ever."""

from __future__ import annotations

import concurrent.futures
import queue
import threading

import pytest
import torch
from threaded import run_threads, traced

import racecheck
from racecheck.virtual.lag import SWITCH, Recording, Seeded
from racecheck.virtual.token import token_of

LAGS = ["eager", "latest", "seed:0", "seed:1", "seed:2", [0, 1, 0, 2, 1]]


def four_threads() -> None:
    """Copies, a queue, a lock and an event, in four threads."""
    source, target = torch.zeros(8, pin_memory=True), torch.empty(8, device="cuda")
    items: queue.Queue[int] = queue.Queue(2)
    lock, done = threading.Lock(), threading.Event()

    def produce() -> None:
        for item in range(4):
            items.put(item)
        done.set()

    def consume() -> None:
        for _ in range(4):
            with lock:
                source.fill_(items.get())
                target.copy_(source, non_blocking=True)

    def watch() -> None:
        done.wait()
        with lock:
            torch.cuda.synchronize()

    def work() -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.ones(4, device="cuda").add_(1)
        event = stream.record_event()
        while not event.query():
            pass

    run_threads(produce, consume, watch, work)


def letters(lag) -> str:
    """In which order two threads passed their traced calls."""
    seen: list[str] = []

    def say(letter: str) -> None:
        for _ in range(4):
            torch.zeros(1)
            seen.append(letter)

    with racecheck.virtual_cuda(lag):
        run_threads(lambda: say("a"), lambda: say("b"))
    return "".join(seen)


@pytest.mark.parametrize("lag", ["latest", "seed:7"])
def test_one_seed_is_one_trace(lag):
    """Fifty runs of four threads write the same file, but for addresses."""
    first = traced(four_threads, lag)
    assert '"signal"' in first
    assert '"device_op"' in first
    assert all(traced(four_threads, lag) == first for _ in range(49))


def test_seeds_differ():
    """Threads interleave in many ways."""
    assert letters("latest") == letters("eager") == "aaaabbbb"
    orders = {letters(f"seed:{seed}") for seed in range(20)}
    assert len(orders) >= 8
    assert all(sorted(order) == sorted("aaaabbbb") for order in orders)


def test_a_decision_list_says_who_goes_on():
    """1 at the first call runs the other thread, which then runs until it ends; the token says the same."""
    recording = Recording(Seeded(3))
    seen = letters(recording)
    assert seen == letters(recording.decisions) == letters(token_of(recording.decisions))
    assert {letters([0] * zeros + [1]) for zeros in range(8)} > {"aaaabbbb", "bbbbaaaa"}


def test_one_thread_is_asked_nothing():
    """Without others there is no decision."""

    class Asked:
        name = "asked"
        kinds: list[str] = []  # noqa: RUF012

        def decide(self, kind: str, options: int) -> int:
            self.kinds.append(kind)
            return 0

    with racecheck.virtual_cuda(Asked()):
        torch.ones(4, device="cuda").add(1).tolist()
        with threading.Lock():
            pass
    assert SWITCH not in Asked.kinds
    with racecheck.virtual_cuda(Asked()):
        run_threads(lambda: None)
    assert SWITCH in Asked.kinds


def unguarded(lag) -> tuple[str, int]:
    """Two threads stage through one buffer and no lock; the verdict, and what the second got."""
    with racecheck.virtual_cuda(lag), racecheck.audit() as audit:
        source = torch.zeros(4, pin_memory=True)
        got: dict[int, list[float]] = {}

        def stage(value: int) -> None:
            source.fill_(value)
            got[value] = source.to("cuda", non_blocking=True).tolist()

        run_threads(lambda: stage(1), lambda: stage(2))
    return audit.verdict, int(got[1][0])


@pytest.mark.parametrize("lag", LAGS)
def test_a_missing_lock_is_a_race_under_every_lag(lag):
    """The verdict does not depend on who came first."""
    assert unguarded(lag)[0] == "race"


def test_a_missing_lock_has_a_witness():
    """Under some decisions the first thread's rows are the second's."""
    assert {unguarded([0] * zeros + [1])[1] for zeros in range(12)} == {1, 2}


def test_many_calls_in_a_row_do_not_keep_others_out():
    """A thread that polls something that is no traced call, between calls, ends when another says so."""
    with racecheck.virtual_cuda("latest"):
        stop: list[bool] = []

        def poll() -> None:
            while not stop:
                torch.zeros(1)

        run_threads(poll, lambda: stop.append(True))


@pytest.mark.parametrize("lag", ["eager", "latest", "seed:1"])
@pytest.mark.parametrize("kind", ["event", "flag", "lock", "queue", "alive", "semaphore"])
def test_polling_does_not_keep_others_out(kind, lag):
    """Each way to ask again and again lets the thread it waits for go on."""
    with racecheck.virtual_cuda(lag):
        flag, lock, items, semaphore = (
            threading.Event(), threading.Lock(), queue.Queue(), threading.Semaphore(0)
        )  # fmt: skip
        lock.acquire()
        recorded = torch.cuda.Event()

        def other() -> None:
            torch.ones(4, device="cuda")
            flag.set()
            lock.release()
            items.put(1)
            semaphore.release()

        thread = threading.Thread(target=other)
        thread.start()
        torch.ones(4, device="cuda")
        recorded.record()
        polls = {
            "event": recorded.query,
            "flag": flag.is_set,
            "lock": lambda: lock.acquire(False),
            "queue": lambda: not items.empty(),
            "alive": lambda: not thread.is_alive(),
            "semaphore": lambda: semaphore.acquire(blocking=False),
        }
        while not polls[kind]():
            pass
        thread.join()


def test_an_inner_context_runs_its_own_threads_first():
    """Threads of the outer one go on when it is left."""
    order: list[str] = []
    with racecheck.virtual_cuda("seed:1"):
        outer = threading.Thread(target=lambda: order.append("outer"), name="outer")
        outer.start()
        with racecheck.virtual_cuda([1] * 5):
            order.clear()
            run_threads(lambda: order.append("inner"))
            inner = list(order)
        outer.join()
    assert "inner" in inner
    assert "outer" not in order[: order.index("inner")]


def test_an_inner_context_may_need_a_thread_of_the_outer_one():
    """If nobody inside can run, those outside do."""
    with racecheck.virtual_cuda():
        start, end = threading.Event(), threading.Event()
        thread = threading.Thread(target=lambda: (start.wait(), end.set()))
        thread.start()
        with racecheck.virtual_cuda():
            start.set()
            end.wait()
        thread.join()


def test_a_pool_made_before_the_context_takes_part():
    """Its workers are covered by the modes, and their work orders."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        pool.submit(int).result()
        with racecheck.virtual_cuda():
            work = [pool.submit(lambda i=i: (torch.ones(2, device="cuda") * i).tolist()) for i in range(4)]
            assert [future.result(timeout=60) for future in work] == [[float(i)] * 2 for i in range(4)]


def test_a_thread_that_outlives_the_context_runs_on():
    """It waits for real, and so does everyone who waits for it."""
    ended: list[bool] = []
    with racecheck.virtual_cuda():
        event, lock = threading.Event(), threading.Lock()
        lock.acquire()
        threads = [
            threading.Thread(target=lambda: (event.wait(), ended.append(True))),
            threading.Thread(target=lambda: (lock.acquire(), ended.append(True))),
        ]
        for thread in threads:
            thread.start()
    assert not ended
    event.set()
    lock.release()
    for thread in threads:
        thread.join()
    assert ended == [True, True]


def test_a_pool_that_outlives_the_context_works_on():
    """Its workers wait for real."""
    with racecheck.virtual_cuda():
        pool = concurrent.futures.ThreadPoolExecutor(1)
        assert pool.submit(lambda: 1).result() == 1
    assert pool.submit(lambda: 2).result() == 2
    pool.shutdown()


def test_an_exception_in_a_thread_is_told_before_its_joiner_goes_on(monkeypatch):
    """The hook runs in the thread's turn."""
    told: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(str(args.exc_value)))

    def fail() -> None:
        torch.zeros(1)
        raise ValueError("boom")

    with racecheck.virtual_cuda("seed:5"):
        run_threads(fail)
        assert told == ["boom"]
