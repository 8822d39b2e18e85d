"""Ranks as threads of one process, each with a device of its own (virtual or real)."""

from __future__ import annotations

import threading
from collections.abc import Set
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from racecheck.engine.errors import CollectiveMismatch
from racecheck.engine.ranks.group import Call, Gone, Group, Key, difference

Value = TypeVar("Value")


class Source(NamedTuple):
    """What rank 0 broadcasts, and when it is there."""

    tensor: Tensor
    ready: torch.cuda.Event


class Meeting:
    """Where the ranks of one process meet. They wait for one another, and for no clock."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.single_file = threading.Lock()
        self._changed = threading.Condition()
        self._here: dict[int, tuple[Call, Any]] = {}
        self._last: dict[int, Call] = {}
        self._gone: set[int] = set()
        self._values: list[Any] = []
        self._round = 0
        self._wrong: str | None = None

    def meet(self, rank: int, call: Call, number: int, value: Value) -> list[Value]:
        """What each rank has brought, by rank, once all of them make this call, their `number`-th."""
        with self._changed:
            this = self._round
            self._here[rank] = call, value
            self._last[rank] = call
            self._look(number)
            self._changed.wait_for(lambda: self._round > this or self._wrong is not None)
            if self._round == this:
                raise CollectiveMismatch(self._wrong)
            return self._values  # all must come again before it can change

    def leave(self, rank: int, number: int) -> None:
        """`rank` will not make its `number`-th call."""
        with self._changed:
            self._gone.add(rank)
            self._look(number)

    def _look(self, number: int) -> None:
        """Somebody has come or gone: is that a difference, or is everybody here?"""
        calls = {rank: call for rank, (call, _) in self._here.items()}
        gone = {rank: Gone(self._last.get(rank)) for rank in self._gone}
        self._wrong = self._wrong or difference(number, {**calls, **gone})
        if self._wrong is None and len(calls) == self._size:
            self._values = [self._here[rank][1] for rank in range(self._size)]
            self._here = {}
            self._round += 1
        self._changed.notify_all()


class LocalGroup(Group):
    """One rank of several in this process; `create` makes all of them.

    The rank's device is the one that is current in the threads that make its calls.
    """

    def __init__(self, meeting: Meeting, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._meeting = meeting
        self._number = 0

    @classmethod
    def create(cls, size: int) -> list[Self]:
        """A group of `size` ranks: what each of them gets, by rank."""
        meeting = Meeting(size)
        return [cls(meeting, rank, size) for rank in range(size)]

    def barrier(self, name: str) -> None:
        """Go on once every rank is here."""
        self._meet(self._call(name), None)

    def broadcast(self, name: str, tensor: Tensor | None = None) -> None:
        """Peer copies, each on its rank's stream; rank 0's stream goes on when all of them are done."""
        call = self._call(name)
        if tensor is None:
            self._meet(call, None)
            return
        stream = torch.cuda.current_stream()
        source = self._meet(call, Source(tensor, stream.record_event()))[0]
        if self.rank:
            stream.wait_event(source.ready)
            tensor.copy_(source.tensor, non_blocking=True)
        # They meet again: only now has every rank recorded what rank 0 is to wait for.
        copied = self._meet(call, stream.record_event())[1:]
        if self.rank == 0:
            for event in copied:
                stream.wait_event(event)

    def union(self, name: str, keys: Set[Key]) -> set[Key]:
        """What any rank has."""
        return set[Key]().union(*self._meet(self._call(name), keys))

    def alone(self) -> AbstractContextManager[object]:
        """A context that ranks enter one at a time."""
        return self._meeting.single_file

    def leave(self) -> None:
        """This rank makes no more calls."""
        self._meeting.leave(self.rank, self._number + 1)

    def _call(self, name: str) -> Call:
        self._number += 1
        call = Call.here(name)
        call.tell(self.rank)
        return call

    def _meet(self, call: Call, value: Value) -> list[Value]:
        return self._meeting.meet(self.rank, call, self._number, value)
