"""Each primitive orders what it promises, and nothing that its own locks happen to order."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
import time

import pytest
import torch

import racecheck

LAGS = ["latest", "eager", "seed:1", "seed:2", "seed:3"]
QUEUES = [queue.Queue, queue.LifoQueue, queue.PriorityQueue, lambda: queue.SimpleQueue()]


class Buffer:
    """Staged memory: `use` copies from it and waits, `rewrite` must come after that."""

    def __init__(self) -> None:
        self.source, self.target = torch.zeros(8, pin_memory=True), torch.empty(8, device="cuda")

    def use(self) -> None:
        """A device read that the calling thread has waited for."""
        self.target.copy_(self.source, non_blocking=True)
        torch.cuda.current_stream().synchronize()

    def rewrite(self) -> None:
        """Clean only if a hand-over orders it after `use`."""
        self.source.fill_(2)


def verdict(program, lag: str) -> str:
    """Of `program(buffer)`: what it returns are threads to be joined under the audit."""
    with racecheck.virtual_cuda(lag), racecheck.audit() as audit:
        for thread in program(Buffer()) or ():
            thread.join()
    return audit.verdict


def start(*targets) -> list[threading.Thread]:
    """Threads that run `targets`."""
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    return threads


def afterwards(first, second):
    """Two threads; `second` runs later than `first` by the clock alone, which orders nothing."""
    return start(first, lambda: (time.sleep(9), second()))


# -- what is promised ----------------------------------------------------------------------------


def task_done_to_join(buffer):
    """`join` follows each `task_done`, also of several workers."""
    tasks: queue.Queue[int] = queue.Queue()
    other = Buffer()
    for index in range(2):
        tasks.put(index)
    threads = start(
        *(lambda use=use: (tasks.get(), use(), tasks.task_done()) for use in (buffer.use, other.use))
    )
    tasks.join()
    buffer.rewrite()
    other.rewrite()
    return threads


def get_to_put_that_needs_the_room(buffer):
    """The second put to a queue of one item follows the first get, whether or not it had to wait."""
    items: queue.Queue[int] = queue.Queue(1)
    items.put(1)
    threads = start(lambda: (buffer.use(), items.get()))
    time.sleep(5)
    items.put(2)
    buffer.rewrite()
    return threads


def event_that_is_asked(buffer):
    """`is_set` that answers True."""
    event = threading.Event()
    threads = start(lambda: (buffer.use(), event.set()))
    while not event.is_set():
        pass
    buffer.rewrite()
    return threads


def event_that_was_cleared(buffer):
    """A wait for the second set."""
    event = threading.Event()
    event.set()
    event.clear()
    threads = start(lambda: (buffer.use(), event.set()))
    event.wait()
    buffer.rewrite()
    return threads


def permit_beyond_the_first(buffer):
    """The second acquire of a semaphore of one."""
    permits = threading.BoundedSemaphore(1)
    permits.acquire()
    threads = start(lambda: (buffer.use(), permits.release()))
    with permits:
        buffer.rewrite()
    return threads


def barrier_action(buffer):
    """What the barrier's action did comes before all departures, the first arrival's too."""
    barrier = threading.Barrier(2, action=buffer.use)
    threads = start(barrier.wait, lambda: (time.sleep(1), barrier.wait()))
    threads[0].join()
    buffer.rewrite()
    return threads


def future_of_the_programs_own(buffer):
    """`set_result` to `exception`."""
    future: concurrent.futures.Future[int] = concurrent.futures.Future()
    threads = start(lambda: (buffer.use(), future.set_result(1)))
    assert future.exception() is None
    buffer.rewrite()
    return threads


def future_that_is_polled(buffer):
    """`done` that answers True."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(buffer.use)
        while not future.done():
            time.sleep(0)
        buffer.rewrite()


def cancelled_future(buffer):
    """`cancel` to `result`, which raises."""
    future: concurrent.futures.Future[int] = concurrent.futures.Future()
    threads = start(lambda: (buffer.use(), future.cancel()))
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()
    buffer.rewrite()
    return threads


def failed_work(buffer):
    """An exception of the work is a result."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:

        def fail() -> None:
            buffer.use()
            raise TimeoutError

        with pytest.raises(TimeoutError):
            pool.submit(fail).result()
        buffer.rewrite()


def waited_futures(buffer):
    """`wait` follows all that it returns as done, without `result`."""
    other = Buffer()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        concurrent.futures.wait([pool.submit(buffer.use), pool.submit(other.use)])
        buffer.rewrite()
        other.rewrite()


def completed_futures(buffer):
    """`as_completed`."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for _ in concurrent.futures.as_completed([pool.submit(buffer.use)]):
            buffer.rewrite()


def done_callback(buffer):
    """A callback follows its registration, whichever thread runs it."""
    future: concurrent.futures.Future[int] = concurrent.futures.Future()
    threads = start(lambda: (time.sleep(5), future.set_result(1)))
    buffer.use()
    future.add_done_callback(lambda _: buffer.rewrite())
    return threads


def submitted_work(buffer):
    """Work follows its submission, on a worker that has been there before."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        buffer.use()
        pool.submit(buffer.rewrite)


def pool_that_was_shut_down(buffer):
    """Leaving a pool follows all its work."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        pool.submit(buffer.use)
    buffer.rewrite()


def condition_of_the_programs_own(buffer):
    """Its lock is the program's: who holds it follows whoever held it before."""
    condition = threading.Condition()
    return afterwards(lambda: by(condition, buffer.use), lambda: by(condition, buffer.rewrite))


def by(lock, work) -> None:
    """`work` under `lock`."""
    with lock:
        work()


PROMISED = [
    task_done_to_join, get_to_put_that_needs_the_room, event_that_is_asked, event_that_was_cleared,
    permit_beyond_the_first, barrier_action, future_of_the_programs_own, future_that_is_polled,
    cancelled_future, failed_work, waited_futures, completed_futures, done_callback, submitted_work,
    pool_that_was_shut_down, condition_of_the_programs_own,
]  # fmt: skip


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("program", PROMISED, ids=lambda program: program.__name__)
def test_a_promised_edge_orders(program, lag):
    """The rewrite is clean under every lag."""
    assert verdict(program, lag) == "clean"


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("make", QUEUES)
def test_an_item_hands_over(make, lag):
    """From the put to the get of that item, in any kind of queue."""

    def program(buffer):
        items = make()
        threads = start(lambda: (buffer.use(), items.put(1)))
        items.get()
        buffer.rewrite()
        return threads

    assert verdict(program, lag) == "clean"


# -- what is luck --------------------------------------------------------------------------------


def gets_before_puts(buffer, items):
    """A consumer that is done hands nothing to a later producer."""
    items.put(1)
    return afterwards(lambda: (buffer.use(), items.get()), lambda: (items.put(2), buffer.rewrite()))


def another_item(buffer, items):
    """Who gets one item follows nobody who put another one."""
    items.put(0)
    if isinstance(items, queue.LifoQueue):
        return afterwards(buffer.use, lambda: (items.get(), buffer.rewrite()))
    return afterwards(lambda: (buffer.use(), items.put(1)), lambda: (items.get(), buffer.rewrite()))


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("make", QUEUES)
@pytest.mark.parametrize("program", [gets_before_puts, another_item])
def test_a_queue_orders_nothing_else(program, make, lag):
    """Its internal locks would."""
    assert verdict(lambda buffer: program(buffer, make()), lag) == "race"


def free_permits(buffer):
    """A semaphore with room for both."""
    permits = threading.Semaphore(2)
    return afterwards(lambda: by(permits, buffer.use), lambda: by(permits, buffer.rewrite))


def event_set_before(buffer):
    """The set that came first is the one that the waiter needs."""
    event = threading.Event()
    event.set()
    return afterwards(lambda: (buffer.use(), event.set()), lambda: (event.wait(), buffer.rewrite()))


def event_waited_before(buffer):
    """Who has waited hands nothing to who sets or clears."""
    event = threading.Event()
    event.set()
    return afterwards(
        lambda: (event.wait(), buffer.use(), event.is_set()), lambda: (event.clear(), buffer.rewrite())
    )


def next_round(buffer):
    """Two rounds of a barrier with different threads: nobody of the one meets anybody of the other."""
    barrier = threading.Barrier(2)
    late = [
        lambda: (time.sleep(9), barrier.wait(), buffer.rewrite()),
        lambda: (time.sleep(9), barrier.wait()),
    ]
    return start(barrier.wait, lambda: (buffer.use(), barrier.wait()), *late)


def finished_work(buffer):
    """Work that is done hands nothing to a later submission: the case of an engine's result thread."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(buffer.use)
        time.sleep(9)
        last = pool.submit(int)
        buffer.rewrite()
        last.result()


def future_that_timed_out(buffer):
    """A time that is up is no result."""
    future: concurrent.futures.Future[int] = concurrent.futures.Future()

    def second() -> None:
        with pytest.raises(concurrent.futures.TimeoutError):
            future.result(20)
        buffer.rewrite()

    return afterwards(lambda: (buffer.use(), future.running()), second)


def rooms_of_a_wide_queue(buffer):
    """A bounded queue that never was full."""
    items: queue.Queue[int] = queue.Queue(3)
    items.put(1)
    return afterwards(lambda: (buffer.use(), items.get()), lambda: (items.put(2), buffer.rewrite()))


ACCIDENTS = [
    free_permits, event_set_before, event_waited_before, next_round, finished_work, future_that_timed_out,
    rooms_of_a_wide_queue,
]  # fmt: skip


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("program", ACCIDENTS, ids=lambda program: program.__name__)
def test_an_accidental_order_is_a_race(program, lag):
    """The two never overlap in these runs, and the program promises no order."""
    assert verdict(program, lag) == "race"


def test_a_lock_of_the_program_orders_by_who_came_first():
    """Mutual exclusion is an order of this run; another run may turn it round."""

    def program(buffer):
        lock = threading.Lock()
        return afterwards(lambda: by(lock, buffer.use), lambda: by(lock, buffer.rewrite))

    assert verdict(program, "latest") == "clean"


def test_a_subclass_that_hands_out_other_objects_follows_every_put():
    """An item that cannot be told from the others may come from any of them."""

    class Doubling(queue.Queue):
        def _get(self):
            return [super()._get()]

    def program(buffer):
        items = Doubling()
        threads = start(lambda: (buffer.use(), items.put(1)))
        assert items.get() == [1]
        buffer.rewrite()
        return threads

    assert verdict(program, "latest") == "clean"


def test_the_same_object_twice_is_matched_in_order():
    """Two threads put None; who gets the first follows the first."""

    def program(buffer):
        items: queue.Queue[None] = queue.Queue()
        first, second = start(lambda: items.put(None), lambda: (time.sleep(5), buffer.use(), items.put(None)))
        second.join()
        threads = start(lambda: (items.get(), items.get(), buffer.rewrite()))
        return [first, *threads]

    assert verdict(program, "latest") == "clean"
