"""An audit of a whole process that nobody changed: what `racecheck exec` and `RACECHECK=1` begin.

Hand-overs between threads are traced from the start, the GPU from PyTorch's first use of it, so that a
program may still fork before. A process that never uses the GPU is left alone. When one ends, its verdict
goes to the file that `RACECHECK_REPORT` names; without one it is printed, and a race makes the exit code 66.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from racecheck.report.channel import VARIABLE, process_name
from racecheck.trace.threads import traced_threads

if TYPE_CHECKING:
    from racecheck.judge import Audit

#: Exit code of a program in which a race, a stale operand or a hang was found.
FOUND = 66
OPTIONS = "RACECHECK_OPTIONS"


@dataclass(frozen=True)
class Options:
    """How a process is audited: see `racecheck.audit`; on the virtual device with this `lag`."""

    device: str = "cuda"
    lag: str = "latest"
    capture: str = "auto"
    operators: bool = False
    exact: bool = False
    begun: str = ""  # a folder with a file for each process whose audit has begun and not ended

    def to_environment(self) -> str:
        """What `from_environment` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Options:
        """The options that `racecheck exec` left."""
        return cls(**json.loads(os.environ.get(OPTIONS, "{}")))


def start() -> None:
    """Begin in this process."""
    _Process(Options.from_environment()).wait_for_torch()


class _Process:
    """One process: waits for PyTorch, then for the first use of a GPU, then audits to the end."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._stack = ExitStack()
        self._audit: Audit | None = None
        self._parents: ExitStack | None = None  # what a forked child must not close
        self._pid = os.getpid()
        self._exit = os._exit
        self._report = os.environ.get(VARIABLE)
        self._noted: Path | None = None

    def wait_for_torch(self) -> None:
        """Be told of the import, of forks, and of every end that a process can see coming."""
        self._stack.enter_context(traced_threads())
        os._exit = self._end  # it skips `atexit`
        atexit.register(self.finish)
        os.register_at_fork(after_in_child=self._forked)
        sys.meta_path.insert(0, _AfterTorch(self))

    def torch_is_here(self) -> None:
        """PyTorch has been imported."""
        import torch

        if self._options.device == "virtual":
            self._begin()
        else:
            torch.cuda._lazy_call(self._begin)  # called when CUDA is initialised, or at once

    def _begin(self) -> None:
        import racecheck

        options = self._options
        if self._audit is not None:
            return
        if options.device == "virtual":
            self._stack.enter_context(racecheck.virtual_cuda(options.lag, exact=options.exact))
        self._listen()

    def _listen(self) -> None:
        from multiprocessing.util import register_after_fork

        import racecheck

        options = self._options
        self._audit = self._stack.enter_context(
            racecheck.audit(capture=options.capture, operators=options.operators, exact=options.exact)
        )
        self._note()
        _at_end_of_child(self)
        register_after_fork(self, _at_end_of_child)  # a child of multiprocessing's forgets its parent's

    def _forked(self) -> None:
        """In a child: the parent's audit is none of its own, and a GPU that the parent used out of its reach.

        The virtual device is forked along, and goes on.
        """
        self._pid = os.getpid()
        if self._audit is not None:
            self._parents = self._stack.pop_all()  # closing it would end what the child still uses
            self._audit = None
            if self._options.device == "virtual":
                self._listen()

    def _note(self) -> None:
        if self._options.begun:
            self._noted = Path(self._options.begun) / f"{self._pid}-{time.monotonic_ns()}"
            with suppress(OSError):
                self._noted.write_text(process_name(), "utf-8", "backslashreplace")

    def _end(self, status: int) -> NoReturn:
        try:
            self.finish()
        finally:
            self._exit(status)

    def finish(self) -> None:
        """Judge, and say so."""
        audit, self._audit = self._audit, None
        if audit is None or os.getpid() != self._pid:
            return
        if self._report is not None:  # the program may have emptied its environment
            os.environ[VARIABLE] = self._report
        self._stack.close()
        if self._noted is not None:
            self._noted.unlink(missing_ok=True)
        if self._report is not None:
            return  # the audit has delivered its verdict as it was left
        print(f"racecheck: {audit.report()}", file=sys.stderr, flush=True)
        if audit.verdict not in ("clean", "inconclusive"):
            sys.stdout.flush()
            self._exit(FOUND)


def _at_end_of_child(process: _Process) -> None:
    """The children of `multiprocessing` end without `atexit`."""
    from multiprocessing.util import Finalize

    Finalize(None, process.finish, exitpriority=-100)


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Lets the import of torch happen, and tells when it has. Many only ask whether there is a torch."""

    def __init__(self, process: _Process) -> None:
        self._process = process

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of torch that the others find, loaded by way of this."""
        if name != "torch":
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._loaded)
        return spec

    def _loaded(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._process.torch_is_here()


class _Loader(importlib.abc.Loader):
    """The `real` loader's doing, then the news."""

    def __init__(self, real: importlib.abc.Loader, then: Callable[[], None]) -> None:
        self._real = real
        self._then = then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the real loader does."""
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """The real loader's, then the news."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._real
        self._real.exec_module(module)
        self._then()
