"""Child processes that end when they must: at a time limit, at Ctrl-C, and when racecheck itself is killed.

A child is the leader of its own session, so that Ctrl-C on the terminal reaches racecheck only, which then
ends the child's whole group: no half-made git operation, no engine left running in a deleted worktree.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1  # prctl(2)
#: Bytes kept of a child's output; a report of thousands of findings is smaller.
LARGEST_OUTPUT = 64 << 20

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """In a new child: be killed when racecheck is (Linux; elsewhere a killed run leaves its child behind)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass(frozen=True)
class Outcome:
    """How a child ended: exit code (negative: the signal; None: the time limit), output, seconds."""

    code: int | None
    stdout: str
    stderr: str
    seconds: float

    @property
    def last_line(self) -> str:
        """The last line of stderr, else of stdout, that is not blank."""
        for output in (self.stderr, self.stdout):
            lines = [line.strip() for line in output.splitlines() if line.strip()]
            if lines:
                return lines[-1]
        return ""


class Interrupts:
    """Ctrl-C, SIGTERM and SIGHUP as a flag: nothing is torn at an arbitrary line.

    The running child is killed at once; `check` raises at the next safe point.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._child: subprocess.Popen[bytes] | None = None

    @contextmanager
    def caught(self) -> Iterator[Interrupts]:
        """Signals set the flag inside; the handlers of before are put back."""
        before = {number: signal.signal(number, self._stop) for number in _SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def check(self) -> None:
        """`KeyboardInterrupt` if a signal came."""
        if self.stopped:
            raise KeyboardInterrupt

    def watch(self, child: subprocess.Popen[bytes] | None) -> None:
        """`child` is the one to kill (None: none is running)."""
        self._child = child
        if child is not None and self.stopped:  # the signal came while the child was being made
            _kill_group(child)

    def _stop(self, number: int, frame: Any) -> None:
        self.stopped = True
        if self._child is not None:
            _kill_group(self._child)


def run(
    command: Sequence[str], folder: Path, env: Mapping[str, str], timeout: float, interrupts: Interrupts
) -> Outcome:
    """Run `command` in `folder` for at most `timeout` seconds; whatever it started ends with it.

    Raises:
        KeyboardInterrupt: a signal came.
        OSError: the command cannot be started.
    """
    interrupts.check()
    started = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
        interrupts.watch(child)
        code: int | None = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = child.wait(timeout)
        finally:
            interrupts.watch(None)
            _kill_group(child)
            child.wait()
        interrupts.check()
        return Outcome(code, _text(out), _text(err), time.monotonic() - started)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a group of zombies
        os.killpg(child.pid, signal.SIGKILL)


def _text(file: IO[bytes]) -> str:
    """The end of what was written to `file`."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - LARGEST_OUTPUT))
    return file.read().decode("utf-8", "replace")
