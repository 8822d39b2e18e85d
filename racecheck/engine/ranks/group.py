"""What a group of ranks is asked for, and how a difference between their calls is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from torch import Tensor

from racecheck.trace import caller, current_mark, emit, listening, thread_name
from racecheck.trace.records import NO_MARK, NOWHERE, Collective, Loc, Mark

Key = TypeVar("Key")


class Group:
    """A group of one: nobody to meet. In other groups `name` says what a call is for; it must be equal on
    all ranks, which make equal calls in equal order or get `CollectiveMismatch`.

    All calls of a rank come from one thread at a time. `with group:` leaves it in the end, however it ends.
    """

    rank = 0
    size = 1

    def barrier(self, name: str) -> None:
        """Go on once every rank is here."""

    def broadcast(self, name: str, tensor: Tensor | None = None) -> None:
        """Rank 0's `tensor` is copied into everybody's, in order on the current streams; they must be of
        one shape and dtype, and contiguous. Without a tensor rank 0 tells the others what to do: `name`.
        """

    def union(self, name: str, keys: Set[Key]) -> set[Key]:
        """What any rank has."""
        return set(keys)

    def alone(self) -> AbstractContextManager[object]:
        """A context that ranks of one process enter one at a time."""
        return nullcontext()

    def leave(self) -> None:
        """This rank makes no more calls; a rank that waits for one, now or later, is told so."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()


class Call(NamedTuple):
    """A collective call: what for, and where in the engine it was made."""

    name: str
    loc: Loc = NOWHERE
    thread: str = "main"
    mark: Mark = NO_MARK

    @classmethod
    def here(cls, name: str) -> Call:
        """The call that the calling thread is making."""
        return cls(name, caller(), thread_name(), current_mark())

    def tell(self, rank: int) -> None:
        """Put it into the trace as a call of `rank`, if anyone listens."""
        if listening():
            emit(Collective(thread=self.thread, loc=self.loc, mark=self.mark, rank=rank, name=self.name))

    def __str__(self) -> str:
        return f"{self.name!r} at {self.loc}"


class Gone(NamedTuple):
    """A rank that has left the group, after the call `last`."""

    last: Call | None = None


def difference(number: int, made: Mapping[int, Call | Gone]) -> str | None:
    """What is wrong if the ranks in `made` do not all make the same call; `number` counts calls from 1.

    What most ranks do counts as right, of as many what the lower rank does.
    """
    calls = {rank: call for rank, call in sorted(made.items()) if isinstance(call, Call)}
    if not calls or (len(calls) == len(made) and len({call.name for call in calls.values()}) == 1):
        return None
    usual = Counter(call.name for call in calls.values()).most_common(1)[0][0]
    waiting = next(rank for rank, call in calls.items() if call.name == usual)
    odd = next(rank for rank in sorted(made) if rank not in calls or calls[rank].name != usual)
    return (
        f"collective {number}: rank {waiting} calls {calls[waiting]}; rank {odd} skips it and "
        f"{_instead(made[odd])}. All ranks must make equal calls in equal order, or they wait for ever: "
        f"find what made rank {odd} take another way"
    )


def _instead(odd: Call | Gone) -> str:
    if isinstance(odd, Call):
        return f"calls {odd}"
    return "has left without any call" if odd.last is None else f"has left; its last call was {odd.last}"
