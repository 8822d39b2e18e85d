"""Threads hand over through every primitive of the standard library; without one they race."""

from __future__ import annotations

import concurrent.futures
import queue
import threading

import pytest
import torch

import racecheck

N = 64


def by_lock(first, second):
    """A lock passed from hand to hand."""
    lock, done = threading.Lock(), []

    def work() -> None:
        with lock:
            first()
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    while True:
        with lock:
            if done:
                break
    second()
    return thread


def by_event(first, second):
    """`threading.Event`."""
    event = threading.Event()
    thread = threading.Thread(target=lambda: (first(), event.set()))
    thread.start()
    event.wait()
    second()
    return thread


def by_condition(first, second):
    """`threading.Condition`."""
    condition, done = threading.Condition(), []

    def work() -> None:
        first()
        with condition:
            done.append(True)
            condition.notify()

    thread = threading.Thread(target=work)
    with condition:
        thread.start()
        condition.wait_for(lambda: done)
    second()
    return thread


def by_semaphore(first, second):
    """`threading.Semaphore`."""
    semaphore = threading.Semaphore(0)
    thread = threading.Thread(target=lambda: (first(), semaphore.release()))
    thread.start()
    semaphore.acquire()
    second()
    return thread


def by_barrier(first, second):
    """`threading.Barrier`."""
    barrier = threading.Barrier(2)
    thread = threading.Thread(target=lambda: (first(), barrier.wait()))
    thread.start()
    barrier.wait()
    second()
    return thread


def by_queue(first, second):
    """`queue.Queue`."""
    items: queue.Queue[int] = queue.Queue()
    thread = threading.Thread(target=lambda: (first(), items.put(1)))
    thread.start()
    items.get()
    second()
    return thread


def by_simple_queue(first, second):
    """`queue.SimpleQueue`."""
    items: queue.SimpleQueue[int] = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: (first(), items.put(1)))
    thread.start()
    items.get()
    second()
    return thread


def by_executor(first, second):
    """`concurrent.futures`."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        executor.submit(first).result()
        second()


def by_join(first, second):
    """`Thread.join`."""
    thread = threading.Thread(target=first)
    thread.start()
    thread.join()
    second()


HAND_OVERS = [
    by_lock,
    by_event,
    by_condition,
    by_semaphore,
    by_barrier,
    by_queue,
    by_simple_queue,
    by_executor,
    by_join,
]


def run(hand_over, *, wait: bool) -> str:
    """The first thread copies (and waits or not), the second rewrites the source."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        source, target = torch.zeros(N, pin_memory=True), torch.empty(N, device="cuda")

        def first() -> None:
            source.fill_(1)
            target.copy_(source, non_blocking=True)
            if wait:
                torch.cuda.current_stream().synchronize()

        thread = hand_over(first, lambda: source.fill_(2))
        if thread is not None:
            thread.join()
    return audit.verdict


@pytest.mark.parametrize("hand_over", HAND_OVERS)
def test_hand_over_orders(hand_over):
    """What the first thread waited for is the second's to rewrite; what it did not wait for races."""
    assert run(hand_over, wait=True) == "clean"
    assert run(hand_over, wait=False) == "race"


def test_without_a_hand_over_threads_race():
    """Two threads that only happen to run one after the other."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        source, target = torch.zeros(N, pin_memory=True), torch.empty(N, device="cuda")

        def copy() -> None:
            target.copy_(source, non_blocking=True)
            torch.cuda.current_stream().synchronize()

        for work in (copy, lambda: source.fill_(2)):
            thread = threading.Thread(target=work)
            thread.start()
            while thread.is_alive():
                pass
    assert audit.verdict == "race"


def test_locks_are_restored_and_outlive_the_context():
    """Outside, `threading.Lock` is Python's; a traced lock still locks."""
    before = threading.Lock, threading.RLock, queue.SimpleQueue
    with racecheck.virtual_cuda():
        lock = threading.RLock()
    assert (threading.Lock, threading.RLock, queue.SimpleQueue) == before
    with lock, lock:
        assert lock._is_owned()
