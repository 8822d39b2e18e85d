"""A process that serves sequences on a GPU, each on an engine of its own.

A process that has used CUDA cannot be forked, so every sequence's engine is built anew there, which takes
seconds where a fork takes a tenth of one. What a run leaves behind that the next would feel (a CUDA error
stays until its process ends; a kernel on a corrupted schedule may never end) goes with the process: the next
sequence gets a new one.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from racecheck.sequences.process import PATIENCE, EngineProcess, Served, died, next_job, portable, stuck
from racecheck.sequences.run import Outcome
from racecheck.sequences.story import StepSequence
from racecheck.sequences.target import Target

#: Seconds that a process has to end by itself.
GOODBYE = 20

Serve = Callable[[Connection, Target], None]


def engine_on(device: str, target: Target) -> Served:
    """The engine of `target` on `device`, "virtual" or "cuda"; close it."""
    return EngineProcess(target) if device == "virtual" else GpuProcess(target)


class GpuProcess:
    """The client's end. `serve` runs in the process, until it is asked for nothing more or should not go on.

    Raises:
        UsageError: there is no GPU, it cannot be watched, or the engine cannot be built.
    """

    def __init__(self, target: Target, serve: Serve | None = None, patience: float = PATIENCE) -> None:
        self._target, self._serve, self._patience = target, serve or _serve, patience
        self.hoped_for: tuple[str, ...] = self._start()

    def run(self, sequence: StepSequence, explain: bool = False) -> Outcome:
        """What `sequence` comes to; with `explain` with reasons and repairs."""
        if not self._process.is_alive():
            self._start()
        self._connection.send((sequence, explain))
        if not self._connection.poll(self._patience):
            self._end(patience=0)
            return stuck()
        try:
            answer = self._connection.recv()
        except EOFError:
            self._end()
            return died(self._process.exitcode or 0)
        if isinstance(answer, BaseException):
            raise answer
        outcome, goes_on = answer
        if not goes_on:
            self._end()
        return outcome  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._end()

    def _end(self, patience: float = GOODBYE) -> None:
        """Wait for the process's own end, but not for ever: CUDA's may wait for work that never ends."""
        self._process.join(patience)
        self._process.kill()
        self._process.join()

    def _start(self) -> Any:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=self._serve, args=(theirs, self._target), daemon=True)
        self._process.start()
        theirs.close()
        try:
            answer = self._connection.recv()
        except EOFError:
            raise RuntimeError("the engine's process has ended without a word; look at stderr") from None
        if isinstance(answer, BaseException):
            raise answer
        return answer


# -- the server's end --------------------------------------------------------------------------------


def _serve(connection: Connection, target: Target) -> None:
    """Serve sequences on this process's GPU until nobody asks any more, or the GPU is of no use here."""
    from racecheck.provider import own_device
    from racecheck.sequences.on_gpu import outcome_here
    from racecheck.sequences.watch import hoped_for

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client hears it, and closes the connection
    try:
        with own_device(target.devices):
            connection.send(hoped_for(target.build()))
            while (job := next_job(connection)) is not None:
                outcome = outcome_here(target, *job)
                goes_on = _is_usable()
                connection.send((outcome, goes_on))
                if not goes_on:
                    return
    except Exception as error:
        connection.send(portable(error))


def _is_usable() -> bool:
    """Does CUDA still answer in this process? An error of a kernel's stays until its end."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True
