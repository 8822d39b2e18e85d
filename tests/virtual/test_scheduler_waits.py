"""Waiting under the scheduler: each primitive blocks and wakes, time is virtual, a deadlock is an error."""

from __future__ import annotations

import concurrent.futures
import os
import queue
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from threaded import run_threads

import racecheck
from racecheck.errors import DeadlockError, UsageError

LONG = 10_000.0  # seconds that nobody waits for real
LAGS = ["latest", "seed:0", "seed:1", "seed:2"]


def lock_waits(order):
    """`threading.Lock`."""
    lock = threading.Lock()
    lock.acquire()
    return (lambda: (lock.acquire(), order.append(2))), (lambda: (order.append(1), lock.release()))


def rlock_waits(order):
    """`threading.RLock`, held twice."""
    lock, held = threading.RLock(), threading.Event()

    def keep():
        with lock, lock:
            held.set()
            torch.zeros(1)
            order.append(1)

    def wait():
        held.wait()
        with lock:
            order.append(2)

    return wait, keep


def condition_waits(order):
    """`threading.Condition` over a lock that is held twice."""
    condition = threading.Condition()

    def wait():
        with condition, condition:
            condition.wait_for(lambda: order)
            order.append(2)

    def notify():
        with condition:
            order.append(1)
            condition.notify_all()

    return wait, notify


def event_waits(order):
    """`threading.Event`."""
    event = threading.Event()
    return (lambda: (event.wait(), order.append(2))), (lambda: (order.append(1), event.set()))


def semaphore_waits(order):
    """`threading.Semaphore`."""
    semaphore = threading.Semaphore(0)
    return (lambda: (semaphore.acquire(), order.append(2))), (lambda: (order.append(1), semaphore.release()))


def barrier_waits(order):
    """`threading.Barrier`."""
    barrier = threading.Barrier(2)
    return (lambda: (barrier.wait(), order.append(2))), (lambda: (order.append(1), barrier.wait()))


def queue_waits(order):
    """`queue.Queue`, empty and full."""
    items = queue.Queue(1)
    return (lambda: (items.get(), order.append(2), items.get())), (
        lambda: (order.append(1), items.put(0), items.put(0))
    )


def simple_queue_waits(order):
    """`queue.SimpleQueue`."""
    items = queue.SimpleQueue()
    return (lambda: (items.get(), order.append(2))), (lambda: (order.append(1), items.put(0)))


def future_waits(order):
    """`concurrent.futures.Future`."""
    future = concurrent.futures.Future()
    return (lambda: (future.result(), order.append(2))), (lambda: (order.append(1), future.set_result(0)))


def join_waits(order):
    """`Thread.join`."""
    thread = threading.Thread(target=lambda: order.append(1))
    started = threading.Event()
    return (lambda: (started.wait(), thread.join(), order.append(2))), (
        lambda: (thread.start(), started.set())
    )


WAITS = [
    lock_waits, rlock_waits, condition_waits, event_waits, semaphore_waits, barrier_waits, queue_waits,
    simple_queue_waits, future_waits, join_waits,
]  # fmt: skip


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("waits", WAITS)
def test_a_waiting_thread_goes_on_when_it_is_woken(waits, lag):
    """Never before, whatever the schedule."""
    for turned in (False, True):
        with racecheck.virtual_cuda(lag):
            order: list[int] = []
            wait, wake = waits(order)
            run_threads(*((wake, wait) if turned else (wait, wake)))
        assert order == [1, 2]


def test_waits_with_a_timeout_end_at_once_when_nobody_can_run():
    """Each of them says that the time is up, and clocks say that it passed."""
    real = time.monotonic()
    with racecheck.virtual_cuda():
        start = time.monotonic()
        lock, items, never = threading.Lock(), queue.Queue(), threading.Event()
        lock.acquire()
        assert not lock.acquire(timeout=LONG)
        assert not never.wait(LONG)
        assert not threading.Semaphore(0).acquire(timeout=LONG)
        with pytest.raises(queue.Empty):
            items.get(timeout=LONG)
        with pytest.raises(threading.BrokenBarrierError):
            threading.Barrier(2).wait(LONG)
        with pytest.raises(concurrent.futures.TimeoutError):
            concurrent.futures.Future().result(LONG)
        condition = threading.Condition()
        with condition:
            assert not condition.wait_for(lambda: False, LONG)
        thread = threading.Thread(target=never.wait)
        thread.start()
        thread.join(LONG)
        assert thread.is_alive()
        time.sleep(LONG)
        assert time.monotonic() - start >= 9 * LONG
        never.set()
        thread.join()
    assert time.monotonic() - real < LONG


def test_sleepers_wake_in_the_order_of_their_deadlines():
    """Ties go to the thread that was started first; timers and pools take part."""
    order: list[str] = []
    with racecheck.virtual_cuda():
        timer = threading.Timer(LONG, lambda: order.append("timer"))
        timer.start()
        run_threads(*(lambda i=i: (time.sleep(i % 3), order.append(str(i))) for i in range(5)))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            work = [pool.submit(time.sleep, seconds) for seconds in (60, 20)]
            assert [work.index(done) for done in concurrent.futures.as_completed(work)] == [1, 0]
            with pytest.raises(concurrent.futures.TimeoutError):
                list(concurrent.futures.as_completed([pool.submit(time.sleep, LONG)], timeout=1))
        timer.join()
    assert order == ["0", "3", "1", "4", "2", "timer"]


def test_a_timeout_does_not_expire_while_another_thread_can_run():
    """The one who sets the event gets there first, however short the wait."""
    with racecheck.virtual_cuda():
        event = threading.Event()

        def work() -> None:
            for _ in range(500):
                torch.zeros(1)
            event.set()

        thread = threading.Thread(target=work)
        thread.start()
        assert event.wait(1e-9)
        thread.join()


def test_a_deadlock_is_an_error_that_names_everyone():
    """Two locks in two orders: the opener raises, the others are unwound, their finally blocks run."""
    unwound: list[str] = []

    def both(first, second) -> None:
        try:
            with first:
                time.sleep(1)
                with second:
                    pass
        finally:
            unwound.append(threading.current_thread().name)

    threads: list[threading.Thread] = []

    def program() -> None:
        with racecheck.virtual_cuda():
            a, b = threading.Lock(), threading.Lock()
            for name, order in (("left", (a, b)), ("right", (b, a))):
                threads.append(threading.Thread(target=both, args=order, name=name))
                threads[-1].start()
            for thread in threads:
                thread.join()

    with pytest.raises(DeadlockError) as raised:
        program()
    for thread in threads:
        thread.join()
    assert sorted(unwound) == ["left", "right"]
    message = str(raised.value)
    assert "main waits for the end of left at test_scheduler_waits.py:" in message
    assert "left waits for a lock that right holds at test_scheduler_waits.py:" in message
    assert "right waits for a lock that left holds" in message


@pytest.mark.parametrize(
    "wait",
    [
        lambda: queue.Queue().get(),
        lambda: threading.Event().wait(),
        lambda: threading.Barrier(2).wait(),
        lambda: [lock := threading.Lock(), lock.acquire(), lock.acquire()],
        lambda: concurrent.futures.Future().result(),
    ],
)
def test_a_thread_alone_that_waits_for_ever_is_a_deadlock(wait):
    """There is nobody who could wake it."""
    with pytest.raises(DeadlockError, match="main waits for"), racecheck.virtual_cuda():
        wait()


def test_a_deadlock_in_a_pool_ends_its_workers():
    """An idle worker is not to blame; the pool shuts down on the way out."""

    def program() -> None:
        with racecheck.virtual_cuda(), concurrent.futures.ThreadPoolExecutor(3) as pool:
            pool.submit(int).result()
            pool.submit(threading.Event().wait).result()

    with pytest.raises(DeadlockError) as raised:
        program()
    assert str(raised.value).count("waits for") == 2


def test_a_wait_that_another_thread_may_end_is_no_deadlock():
    """A thread from before the context comes in; waits take their time for real."""
    release, here = os.pipe()

    def outsider() -> None:
        os.read(release, 1)
        event.set()

    thread = threading.Thread(target=outsider)
    thread.start()
    with racecheck.virtual_cuda():
        event = threading.Event()
        os.write(here, b"x")
        assert event.wait(LONG)
        thread.join()
    for end in (release, here):
        os.close(end)


def test_a_thread_that_hides_does_not_hold_up_the_others():
    """It waits in a way that no trace shows: another goes on, with a warning that says where it hangs."""
    with racecheck.virtual_cuda(patience=0.01):
        said: list[bool] = []
        thread = threading.Thread(target=lambda: said.append(True))
        thread.start()

        def spin() -> None:
            while not said:
                pass
            thread.join()

        with pytest.warns(
            RuntimeWarning, match=r"main .* 0.01 s, at test_scheduler_waits.py:\d+; .*reproduced"
        ):
            spin()
        assert said


def test_a_lock_from_before_the_context_does_not_hang():
    """Its holder waits for its turn, the other for the lock."""
    old = threading.Lock()

    def work() -> None:
        with old:
            torch.zeros(1)
            time.sleep(0.01)

    with racecheck.virtual_cuda([1, 1], patience=0.01), pytest.warns(RuntimeWarning, match="no traced call"):
        run_threads(work, work)


def test_an_event_from_before_the_context_needs_no_patience():
    """Conditions make their waiters' locks when they wait."""
    event, items = threading.Event(), queue.Queue()
    with racecheck.virtual_cuda(patience=LONG):
        run_threads(lambda: (event.wait(), items.put(1)), lambda: items.get(), event.set)


def test_an_interrupt_reaches_the_thread_that_waits_for_its_turn():
    """It is raised where the main thread waits."""
    main = threading.main_thread().ident
    with racecheck.virtual_cuda():
        never = threading.Event()
        thread = threading.Thread(target=lambda: signal.pthread_kill(main, signal.SIGINT))
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            never.wait(LONG)
        thread.join()


def test_a_forked_child_has_one_thread():
    """It does not wait for those that it has not got."""
    code = (
        "import os, threading, torch, racecheck\n"
        "with racecheck.virtual_cuda([1, 1, 1, 1]):\n"
        "    event = threading.Event()\n"
        "    thread = threading.Thread(target=lambda: (torch.zeros(1), event.wait()))\n"
        "    thread.start()\n"
        "    child = os.fork()\n"
        "    torch.zeros(1)\n"
        "    with threading.Lock(): pass\n"
        "    if not child: os._exit(7)\n"
        "    event.set(); thread.join()\n"
        "    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 7


def test_no_patience_is_refused():
    """One line that says what to write."""
    with pytest.raises(UsageError, match="patience above 0"), racecheck.virtual_cuda(patience=0):
        pass


def test_clocks_and_sleep_are_restored():
    """Outside of the context time is real, also after nested ones."""
    before = time.sleep, time.monotonic, time.time, time.perf_counter, threading.Event.is_set
    with racecheck.virtual_cuda(), racecheck.virtual_cuda():
        start = time.monotonic()
        time.sleep(LONG)
        assert LONG <= time.monotonic() - start < 1.5 * LONG
    assert before == (time.sleep, time.monotonic, time.time, time.perf_counter, threading.Event.is_set)


def test_an_idle_pool_of_an_earlier_context_wakes_nobody():
    """A pool left open does not keep a later deadlock from being seen."""
    with racecheck.virtual_cuda():
        pool = concurrent.futures.ThreadPoolExecutor(1)
        pool.submit(int).result()
    try:
        with racecheck.virtual_cuda(), pytest.raises(DeadlockError):
            threading.Event().wait()
    finally:
        pool.shutdown()
