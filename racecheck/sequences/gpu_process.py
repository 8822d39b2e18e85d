"""A process that serves sequences on a GPU, each on an engine of its own.

A process that has used CUDA cannot be forked, so every sequence's engine is built anew there, which takes
seconds where a fork takes a tenth of one. What a run leaves behind that the next would feel (a CUDA error
stays until its process ends; a kernel on a corrupted schedule may never end) goes with the process: the next
sequence gets a new one.
"""

from __future__ import annotations

import multiprocessing
import queue
import signal
import threading
from multiprocessing.connection import Connection
from typing import Any

from racecheck.errors import UsageError
from racecheck.sequences.process import PATIENCE, EngineProcess, Served, died, next_job, portable, stuck
from racecheck.sequences.run import Outcome
from racecheck.sequences.story import StepSequence
from racecheck.sequences.target import Target

#: Seconds that a process has to end by itself.
GOODBYE = 20
#: Seconds that building an engine may take: kernels may be compiled.
BUILD_PATIENCE = 600


def engine_on(device: str, target: Target) -> Served:
    """The engine of `target` on `device`, "virtual" or "cuda"; close it."""
    return EngineProcess(target) if device == "virtual" else GpuProcess(target)


class GpuProcess:
    """The client's end.

    Raises:
        UsageError: there is no GPU, it cannot be watched, or the engine cannot be built.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self.hoped_for: tuple[str, ...] = self._start()

    def run(self, sequence: StepSequence, explain: bool = False) -> Outcome:
        """What `sequence` comes to; with `explain` with reasons and repairs."""
        try:
            return self._run((sequence, explain))
        except _Gone as gone:
            if gone.code:
                return died(gone.code)
        try:  # it had ended by itself, perhaps before it was asked
            return self._run((sequence, explain))
        except _Gone as gone:
            return died(gone.code)

    def _run(self, job: tuple[StepSequence, bool]) -> Outcome:
        self._ask(job)
        try:
            outcome, goes_on = self._answer(PATIENCE)
        except _Stuck:
            return stuck()
        if not goes_on:
            self._end()
        return outcome  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._end()

    def _start(self) -> Any:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._target), daemon=True)
        self._process.start()
        theirs.close()
        try:
            return self._answer(BUILD_PATIENCE)
        except _Stuck:
            raise UsageError(
                f"the engine was not built within {BUILD_PATIENCE:g} s; see what else uses the GPU"
            ) from None
        except _Gone:
            raise RuntimeError("the engine's process has ended without a word; look at stderr") from None
        except BaseException:
            self._end(patience=0)
            raise

    def _ask(self, job: tuple[StepSequence, bool]) -> None:
        """Send it, to a new process if the one there was has ended meanwhile."""
        if self._process.is_alive():
            try:
                self._connection.send(job)
                return
            except OSError:
                self._end()
        self._start()
        self._connection.send(job)

    def _answer(self, patience: float) -> Any:
        """The process's next word. A thread waits for it, as the process may stop in the middle of it.

        Raises:
            _Stuck: it did not come in time, and the process was ended.
            _Gone: the process ended before.
            Exception: what the process raised; it is at its end.
        """
        received: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=_receive, args=(self._connection, received), daemon=True).start()
        try:
            answer = received.get(timeout=patience)
        except queue.Empty:
            self._end(patience=0)
            raise _Stuck from None
        if isinstance(answer, (EOFError, OSError)):
            self._end()
            raise _Gone(self._process.exitcode or 0)
        if isinstance(answer, BaseException):
            self._end()
            raise answer
        return answer

    def _end(self, patience: float = GOODBYE) -> None:
        """Wait for the process's own end, but not for ever: CUDA's may wait for work that never ends."""
        self._process.join(patience)
        self._process.kill()
        self._process.join()


class _Stuck(Exception):
    """No answer in time."""


class _Gone(Exception):
    """The process has ended."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _receive(connection: Connection, received: queue.SimpleQueue[Any]) -> None:
    try:
        received.put(connection.recv())
    except Exception as error:  # the process has ended, perhaps in the middle of a word
        received.put(error)


# -- the server's end --------------------------------------------------------------------------------


def _serve(connection: Connection, target: Target) -> None:
    """Serve sequences on this process's GPU until nobody asks any more, or the GPU is of no use here."""
    from racecheck.provider import own_device
    from racecheck.sequences.on_gpu import outcome_here
    from racecheck.sequences.watch import hoped_for

    multiprocessing.current_process().daemon = False  # it may have children: an engine's workers
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
