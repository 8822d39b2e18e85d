"""A capture in progress, and the plan of the graph it becomes.

Captured work depends on what its stream holds at that moment, and a stream comes to hold the work of others
by waiting for an event recorded in the same capture. So the steps form a directed acyclic graph. Steps that
were captured on one stream follow one another: each such lane needs one queue at replay, and only the edges
between lanes need a wait.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from racecheck.trace import records as r
from racecheck.virtual.faults import cuda_error
from racecheck.virtual.queues import Queue, Scheduler, Work

if TYPE_CHECKING:
    from racecheck.virtual.state import StreamState


class Position(NamedTuple):
    """Where a capturing stream, or an event recorded on one, stands: the steps that come before.

    `covers` has a bit for each of them; `tips` are those that no other one of them follows.
    """

    covers: int
    tips: tuple[int, ...]

    def joined(self, other: Position) -> Position:
        """After both."""
        mine = {tip for tip in self.tips if tip in other.tips or not other.covers >> tip & 1}
        theirs = {tip for tip in other.tips if not self.covers >> tip & 1}
        return Position(self.covers | other.covers, tuple(sorted(mine | theirs)))


START = Position(0, ())


@dataclass(eq=False, slots=True)
class Step:
    """One captured node: its trace node, and how to run it.

    `after` are the steps it follows directly; `lane` is the captured stream it is on, 0 the capture's own.
    """

    node: r.Node
    run: Any
    loc: r.Loc
    after: tuple[int, ...]
    lane: int


@dataclass(eq=False)
class Capture:
    """A capture in progress. Side streams that wait for one of its events join it."""

    graph: Any
    pool: Hashable  # the handle of the memory pool
    steps: list[Step] = field(default_factory=list)
    streams: list[StreamState] = field(default_factory=list)
    error: str | None = None
    mode: str = "global"  # capture_error_mode
    thread: int = field(default_factory=threading.get_ident)

    def forbids_here(self) -> bool:
        """Does this capture forbid the calling thread to wait for or ask about any work?"""
        return self.mode == "global" or (self.mode == "thread_local" and self.thread == threading.get_ident())

    def add(self, stream: StreamState, node: r.Node, run: Any, loc: r.Loc) -> None:
        """Work issued to one of the capture's streams."""
        index, position = len(self.steps), stream.position
        self.steps.append(Step(node, run, loc, position.tips, self.streams.index(stream)))
        stream.position = Position(position.covers | 1 << index, (index,))

    def join(self, stream: StreamState, position: Position) -> None:
        """`stream` follows what an event of this capture stands for, and is captured from now on.

        Raises:
            RuntimeError: it cannot be: it is the legacy stream, or part of another capture.
        """
        if stream.capture is None and stream.number == 0:
            raise self.broken("the legacy default stream cannot become part of a capture")
        if stream.capture is None:
            stream.capture, stream.position = self, START
            self.streams.append(stream)
        elif stream.capture is not self:
            stream.capture.error = "merge"
            raise self.broken("the wait would merge two captures")
        stream.position = stream.position.joined(position)

    def broken(self, why: str) -> Exception:
        """The capture is invalid from now on, as on a GPU; the error that says why."""
        self.error = why
        return cuda_error(f"operation not permitted when stream is capturing: {why}")

    def unjoined(self) -> bool:
        """Is there captured work that the capture's own stream does not follow?"""
        return self.streams[0].position.covers != (1 << len(self.steps)) - 1


class Plan:
    """How to launch the steps of a finished capture."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self._runs = [step.run for step in steps]
        self._drawing = [i for i, step in enumerate(steps) if getattr(step.run, "draw", None) is not None]
        self._is_line = all(step.after == (index - 1,) for index, step in enumerate(steps) if index)
        foreign = [tuple(i for i in step.after if steps[i].lane != step.lane) for step in steps]
        self._edges = [] if self._is_line else foreign

    @property
    def after(self) -> tuple[tuple[int, ...], ...]:
        """What each step follows directly; empty if that is just the one before."""
        return () if self._is_line else tuple(step.after for step in self.steps)

    def put(self, scheduler: Scheduler, stream: StreamState) -> Work:
        """Queue all steps on `stream`, one item each; the item that completes the launch."""
        runs = self._runs
        if self._drawing:
            runs = runs.copy()
            for index in self._drawing:
                runs[index] = runs[index].launched()
        if self._is_line and runs:
            return scheduler.put_all(stream.queue, runs)
        start = scheduler.put(stream.queue, None)
        return self._put_lanes(scheduler, stream, start, runs) if runs else start

    def _put_lanes(self, scheduler: Scheduler, stream: StreamState, start: Work, runs: list[Any]) -> Work:
        works: list[Work] = []
        ends: dict[int, Work] = {}
        for step, edges, run in zip(self.steps, self._edges, runs, strict=True):
            after = tuple(works[index] for index in edges) if step.after else (start,)
            works.append(scheduler.put(_queue(scheduler, stream, step.lane), run, after))
            ends[step.lane] = works[-1]
        return scheduler.put(stream.queue, None, tuple(ends.values()))


def _queue(scheduler: Scheduler, stream: StreamState, lane: int) -> Queue:
    """The queue of a lane in launches on `stream`; they follow one another, so it serves all graphs."""
    while len(stream.branches) < lane:
        stream.branches.append(scheduler.new_queue())
    return stream.branches[lane - 1] if lane else stream.queue
