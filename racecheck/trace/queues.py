"""The edges of queues: from putting an item to getting that item, and from a task's end to `join`.

A bounded queue has room for so many items: the k-th get makes the room for the k-th put beyond those, and
happens before it. Nothing else is ordered: who gets an item hands nothing to those who put more.
"""

from __future__ import annotations

import queue
import threading
from typing import Any

from racecheck.trace.handover import Handover, StandIn, Tokens, state_of
from racecheck.trace.locks import HostThreads, current_threads
from racecheck.trace.primitives import QuietSemaphore
from racecheck.trace.replacing import Patch, original, replaces


def queue_patches(threads: HostThreads) -> list[Patch]:
    """Methods that tell what they hand over, and a `SimpleQueue` that can."""
    return [
        (queue, "SimpleQueue", SimpleQueue),
        *((queue.Queue, name, _method(threads, name, _Passing)) for name in ("put", "get")),
        *((queue.Queue, name, _method(threads, name, _Counting)) for name in ("task_done", "join")),
    ]


def _method(threads: HostThreads, name: str, stand_in: type[StandIn]) -> Any:
    real = original(queue.Queue, name)

    @replaces(real)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        items = state_of(self, threads, lambda: _Items(self, threads))
        return real(stand_in(self, items=items), *args, **kwargs)

    return method


class _Items:
    """What is under way in one queue. An item is known by its identity: it must come out as it went in."""

    def __init__(self, owner: Any, threads: HostThreads) -> None:
        self.threads = threads
        self.done: dict[int, Handover] = {}  # by thread: its latest `task_done`
        self._newest_first = isinstance(owner, queue.LifoQueue)
        self._under_way: dict[int, list[Handover]] = {}
        self._room = Tokens(threads, "room", owner.maxsize) if owner.maxsize > 0 else None

    def put(self, item: object) -> None:
        if self._room is not None:
            self._room.take()
        put = Handover(self.threads, "item")
        put.publish()
        self._under_way.setdefault(id(item), []).append(put)

    def got(self, item: object, left: int) -> None:
        puts = self._under_way.get(id(item))
        if puts:
            puts.pop(-1 if self._newest_first else 0).follow()
        else:  # a subclass hands out something else than was put: it may come from any of them
            for put in [put for puts in self._under_way.values() for put in puts]:
                put.follow()
        if not puts:
            self._under_way.pop(id(item), None)
        if not left:
            self._under_way.clear()
        if self._room is not None:
            self._room.give()


class _Passing(StandIn):
    items: _Items

    def _put(self, item: Any) -> None:
        self.items.put(item)
        self.thing._put(item)

    def _get(self) -> Any:
        item = self.thing._get()
        self.items.got(item, self.thing._qsize())
        return item


class _Counting(StandIn):
    """`task_done` writes the count of unfinished tasks, `join` waits until it reads none."""

    items: _Items

    @property
    def unfinished_tasks(self) -> int:
        left: int = self.thing.unfinished_tasks
        if not left:
            for done in list(self.items.done.values()):
                done.follow()
        return left

    @unfinished_tasks.setter
    def unfinished_tasks(self, left: int) -> None:
        me = threading.get_ident()
        if me not in self.items.done:
            self.items.done[me] = Handover(self.items.threads, "tasks")
        self.items.done[me].publish()
        self.thing.unfinished_tasks = left


class QuietSimpleQueue(queue._PySimpleQueue):  # type: ignore[name-defined, misc]
    """The standard library's own Python twin of `SimpleQueue`, which can be scheduled; hands nothing over."""

    def __init__(self) -> None:
        super().__init__()
        self._count = QuietSemaphore(0)


class SimpleQueue(QuietSimpleQueue):
    """`queue.SimpleQueue`."""

    def __init__(self) -> None:
        super().__init__()
        self._threads = current_threads()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Put `item`; never blocks."""
        put = Handover(self._threads, "item")
        put.publish()
        super().put((put, item))

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The oldest item.

        Raises:
            queue.Empty: there is none, and `block` is false or `timeout` is over.
        """
        put, item = super().get(block, timeout)
        put.follow()
        return item
