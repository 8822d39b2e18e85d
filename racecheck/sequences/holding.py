"""The device is late on a GPU, too: gates hold its streams until the host has planned the next step.

    [ plan n   launch n ]  [ plan n+1   launch n+1 ] ...     the host
    gate ................................ opens              what n has queued: held until n+1 is planned

What a step queues is held from before it is queued until the host has planned the step behind it, and no
longer: then the host waits for it. The decisions of a sequence's `lag` are taken one a step: 0 holds the
device, as 0 has it as late as may be on the virtual one; anything else leaves the step alone. A host delay
lets the device do all that is queued. Nothing sleeps: a gate is shut or open, and a late host waits for work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from racecheck.staging.delays import delays
from racecheck.trace.replacing import Patch, replaced

#: Where the host is when it has planned a step, and when it is about to wait for the oldest one in flight.
PLANNED, WAITS = "before_launch", "before_completion_wait"


class Gate(Protocol):
    """Holds one stream, from when it is entered to when it is opened: `racecheck.cuda.gate.Gate`."""

    timed_out: bool

    def __enter__(self) -> Any:
        """Shut it."""

    def open(self) -> None:
        """Let the stream go on."""

    def __exit__(self, *_: Any) -> None:
        """Open it, if nobody has."""


class Holding:
    """The gates of one run of `steps` steps on the streams that plans and forwards are queued on.

    All gates are made before the first is shut: making one allocates pinned memory, which may wait.
    """

    def __init__(
        self,
        make: Callable[[Any], Gate],
        compute: Any,
        plan: Any,
        steps: int,
        host: Sequence[int],
        lag: Sequence[int],
    ) -> None:
        self.held = 0  # steps that were held until the next one had been planned
        self._host, self._lag = host, lag
        self._gates = [[make(stream) for stream in (compute, plan)] for _ in range(steps + 1)]
        self._shut: dict[Gate, int] = {}  # with the step they hold
        self._passed = self._planned = self._waited = 0
        self._planners: set[int] = set()
        self._lock = threading.RLock()

    def begin(self) -> None:
        """The first step comes behind gates."""
        for stream in (0, 1):
            self._hold(stream, 0)

    def on_step(self, batch: Any) -> None:
        """A step is submitted: what the next one queues on the compute stream comes behind a gate."""
        with self._lock:
            self._hold(0, self._planned)

    def point(self, name: str) -> None:
        """A host-delay point is passed."""
        with self._lock:
            self._planners.add(threading.get_ident())
            at, self._passed = self._passed, self._passed + 1
            if name == PLANNED:
                self.held += self._open(before=self._planned) > 0
                self._planned += 1
                self._hold(1, self._planned)  # the next step may be planned ahead
            elif name == WAITS:
                self._waited += 1
                self._open(before=self._waited)
        if at < len(self._host) and self._host[at]:
            torch.cuda.synchronize()

    def wait(self) -> None:
        """The calling thread is about to wait for the device. One that plans lets go what it may wait for.

        Others, such as one that waits for results, are no reason: they wait until the host is done planning.
        """
        with self._lock:
            if threading.get_ident() in self._planners:
                self._open(before=len(self._gates))

    def close(self) -> None:
        """Open all."""
        with self._lock:
            self._open(before=len(self._gates))

    @property
    def too_early(self) -> int:
        """How many gates were open before their time: somebody waited for the device and did not say so."""
        return sum(gate.timed_out for pair in self._gates for gate in pair)

    def _hold(self, stream: int, step: int) -> None:
        in_time = step < len(self._lag) and self._lag[step]
        if step < len(self._gates) and not in_time:
            gate = self._gates[step][stream]
            gate.__enter__()
            self._shut[gate] = step

    def _open(self, before: int) -> int:
        """Open the gates of earlier steps than that; how many there were."""
        due = [gate for gate, step in self._shut.items() if step < before]
        for gate in due:
            del self._shut[gate]
            gate.open()
            if not gate.timed_out:
                gate.__exit__(None, None, None)
        return len(due)


@contextmanager
def held(holding: Holding) -> Iterator[None]:
    """Inside, the points of the host's code are those of `holding`, and so are its waits."""
    with replaced(_patches(holding)), delays(holding.point):
        holding.begin()
        try:
            yield
        finally:
            holding.close()


def _patches(holding: Holding) -> list[Patch]:
    owners = (torch.cuda.Event, torch.cuda.Stream, torch.cuda)
    return [(owner, "synchronize", _announced(holding, owner.synchronize)) for owner in owners]


def _announced(holding: Holding, synchronize: Callable[..., Any]) -> Callable[..., Any]:
    def wait(*given: Any, **named: Any) -> Any:
        holding.wait()
        return synchronize(*given, **named)

    return wait
