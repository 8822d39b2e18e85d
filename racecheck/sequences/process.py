"""A process that builds an engine once and serves every sequence in a fork of itself.

Each run so begins in exactly the state of a newly built engine: nothing that an earlier sequence left (slots,
caches, addresses, a corrupted table) can change what a later one comes to, and a run that dies or never ends
takes nothing with it. A fork of an engine costs about a tenth of building it.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NoReturn, Protocol

from racecheck.errors import RacecheckError, UsageError
from racecheck.sequences.run import Outcome, perform
from racecheck.sequences.steering import Steering
from racecheck.sequences.story import StepSequence
from racecheck.sequences.target import Target
from racecheck.sequences.watch import hoped_for

#: Seconds after which a run counts as stuck: it takes a hundredth of that.
PATIENCE = 120


class Served(Protocol):
    """An engine that serves one sequence after the other. `hoped_for` are the events that it can come to."""

    hoped_for: tuple[str, ...]

    def run(self, sequence: StepSequence, explain: bool = False) -> Outcome:
        """What `sequence` comes to; with `explain` with reasons and repairs."""

    def close(self) -> None:
        """It is needed no more."""


class EngineProcess:
    """The client's end, on the virtual device. `hoped_for` are the events that the engine can come to.

    Raises:
        UsageError: this system cannot fork, or the engine cannot be built.
    """

    def __init__(self, target: Target) -> None:
        if not hasattr(os, "fork"):
            raise UsageError("sequences are run in forks of a process; run them on Linux or macOS")
        # Not a fork of this process: it may have threads, and threads do not survive one.
        context = multiprocessing.get_context("forkserver")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, target), daemon=True)
        self._process.start()
        theirs.close()
        self.hoped_for: tuple[str, ...] = self._answer()

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid or 0

    def run(self, sequence: StepSequence, explain: bool = False) -> Outcome:
        """What `sequence` comes to, always the same; with `explain` with reasons and repairs."""
        self._connection.send((sequence, explain))
        outcome: Outcome = self._answer()
        return outcome

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join()

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self) -> Any:
        try:
            answer = self._connection.recv()
        except EOFError:
            raise RuntimeError("the engine's process has ended without a word; look at stderr") from None
        if isinstance(answer, BaseException):
            raise answer
        return answer


# -- the server's end --------------------------------------------------------------------------------


def _serve(connection: Connection, target: Target) -> None:
    """Build, then fork for every sequence, until nobody asks any more."""
    import racecheck

    multiprocessing.current_process().daemon = False  # it may have children: an engine's workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client hears it, and closes the connection
    steering = Steering()
    with (
        racecheck.virtual_cuda(lag=steering, devices=target.devices),
        racecheck.audit(run_ahead=target.ahead) as audit,
    ):
        try:
            engine = target.build()
        except Exception as error:
            connection.send(portable(error))
            return
        connection.send(hoped_for(engine))
        # When the collector runs must not depend on this process, and it must not touch every page.
        gc.collect()
        gc.freeze()
        gc.disable()
        with suppress(BrokenPipeError):  # the client has gone meanwhile
            while (job := next_job(connection)) is not None:
                _in_fork(connection, partial(perform, engine, target.vocab, audit, steering, *job))


def next_job(connection: Connection) -> tuple[StepSequence, bool] | None:
    """What the client asks for; None: it has gone."""
    try:
        job: tuple[StepSequence, bool] = connection.recv()
        return job
    except EOFError:
        return None


def _in_fork(connection: Connection, work: Callable[[], Outcome]) -> None:
    """Send what `work` comes to in a fork, or how that ended."""
    child = os.fork()
    if child == 0:
        _child(connection, work)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        connection.send(died(status))


def _child(connection: Connection, work: Callable[[], Outcome]) -> NoReturn:
    code = 1
    try:
        signal.alarm(PATIENCE)
        try:
            answer: Any = work()
        except Exception as error:
            answer = portable(error)
        connection.send(answer)
        code = 0
    except BrokenPipeError:
        code = 0  # nobody wants to know
    finally:
        os._exit(code)


def died(status: int) -> Outcome:
    """What a run comes to whose process ended with this exit code, or by the signal of that number."""
    if status == -signal.SIGALRM:
        return stuck()
    how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
    return Outcome(verdict="crash", signature=f"crash {how}", on=how, message=f"The process died of {how}.")


def stuck() -> Outcome:
    """What a run comes to that does not end."""
    message = f"The run had not ended after {PATIENCE} s."
    return Outcome(verdict="stuck", signature="stuck", message=message)


def portable(error: Exception) -> Exception:
    """`error`, if it is one of racecheck's for the user; else its traceback, which cannot travel."""
    if isinstance(error, RacecheckError):
        return UsageError(str(error))
    return RuntimeError("".join(traceback.format_exception(error)))
