"""`traced_threads()` without a device: threads run freely, and say what they hand over."""

from __future__ import annotations

import queue
import threading

from racecheck.trace import Trace, subscribe
from racecheck.trace.locks import TracedLock, TracedRLock
from racecheck.trace.threads import traced_threads


def hand_overs(program) -> list[tuple[str, str, object]]:
    """Kind, thread and name of each record of `program()`."""
    trace = Trace()
    with traced_threads(), subscribe(trace):
        program()
    return [(type(record).__name__, record.thread, getattr(record, "name", None)) for record in trace]


def test_start_and_join_hand_over():
    """The thread follows its starter, the joiner follows the thread; names are numbers, not addresses."""

    def program() -> None:
        thread = threading.Thread(target=lambda: None, name="worker")
        thread.start()
        thread.join()

    told = [entry for entry in hand_overs(program) if entry[2] and entry[2][0] in ("start", "end")]
    began, ended = told[0][2], told[2][2]
    assert told == [
        ("Signal", "main", began),
        ("Await", "worker", began),
        ("Signal", "worker", ended),
        ("Await", "main", ended),
    ]
    assert all(number < 100 for _, number in (began, ended))


def test_a_lock_hands_over_and_is_forgotten():
    """Release publishes, acquire takes over; a lock that died is freed at the next record."""

    def program() -> None:
        lock = threading.Lock()
        with lock:
            pass
        del lock
        with threading.RLock():
            pass

    kinds = [kind for kind, *_ in hand_overs(program)]
    assert kinds == ["Await", "Signal", "EventFree", "Await", "Signal"]


def test_a_join_that_timed_out_orders_nothing():
    """The thread goes on."""
    event = threading.Event()

    def program() -> None:
        thread = threading.Thread(target=event.wait, name="late")
        thread.start()
        thread.join(0)
        names.append(thread)

    names: list[threading.Thread] = []
    told = hand_overs(program)
    event.set()
    names[0].join()
    assert not [
        entry for entry in told if entry[0] == "Await" and entry[1] == "main" and entry[2][0] == "end"
    ]


def test_everything_is_restored_and_closed():
    """Outside, names are Python's, and objects made inside work on in silence."""
    before = threading.Lock, threading.RLock, queue.SimpleQueue, threading.Thread.start, threading.Thread.join
    with traced_threads():
        assert (threading.Lock, threading.RLock) == (TracedLock, TracedRLock)
        lock, items = threading.RLock(), queue.Queue()
    after = threading.Lock, threading.RLock, queue.SimpleQueue, threading.Thread.start, threading.Thread.join
    assert after == before
    trace = Trace()
    with subscribe(trace), lock, lock:
        items.put(1)
        assert items.get() == 1
    assert not trace


def test_a_lock_made_outside_of_all_contexts_is_a_lock():
    """The classes may be used by themselves."""
    lock = TracedLock()
    with lock:
        assert not lock.acquire(blocking=False)
        assert lock.locked()
    assert lock.acquire(timeout=1)
