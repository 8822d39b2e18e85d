"""The engine of a scenario: found by import path, built, run, and held to a small protocol.

    engine = "package.module:factory"

`factory(settings)` gets `EngineSettings` and returns an object with `run(requests, steps, on_step)`, and
perhaps `costs()`. docs/scenarios.md has the protocol; the reference engine goes through it too.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from racecheck.errors import RacecheckError, UsageError
from racecheck.report.result import Tokens
from racecheck.scenario.lines import KeyPath
from racecheck.scenario.load import ScenarioFile
from racecheck.scenario.model import REFERENCE_ENGINE
from racecheck.scenario.problems import nearest
from racecheck.trace.location import relative

if TYPE_CHECKING:  # the engine and staging import torch, which takes seconds
    from racecheck.engine import Request
    from racecheck.staging import SlotCost


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """What a row asks of its engine.

    `slots` by runner ("main", "piecewise", "eager"); nothing is said to the serial reference, whose
    `run_ahead` is 0. `walks` by name, those that run otherwise than the model has it. `seed` is for weights.
    `ranks`: run so many of them in this process, each on a device of its own.
    """

    model: str
    preset: str
    run_ahead: int
    slots: Mapping[str, int]
    walks: Mapping[str, str]
    seed: int
    ranks: int = 1


class ServingEngine(Protocol):
    """What a factory returns. `costs() -> Iterable[SlotCost]` may be there too."""

    def run(
        self, requests: Sequence[Request], steps: int, on_step: Callable[[Any], None] | None
    ) -> Mapping[str, Tokens]:
        """Serve `requests` for at most `steps` steps, calling `on_step` after each; tokens by request id."""


def serve(
    file: ScenarioFile,
    settings: EngineSettings,
    requests: Sequence[Request],
    steps: int,
    on_step: Callable[[Any], None] | None,
    key: KeyPath = ("engine",),
) -> tuple[dict[str, Tokens], list[SlotCost]]:
    """Build the engine of `file` and run `requests` on it: their tokens, and what its slots cost.

    `ScenarioError` (one line) if the engine is not what the protocol says, fails of itself, or refuses the
    settings, for which `key` is to blame.
    """
    factory = find_factory(file)
    with _told(file, "the factory", key):
        engine = factory(settings)
    if not callable(getattr(engine, "run", None)):
        what = f"the factory returned {_a(engine)}, which has no run(requests, steps, on_step)"
        _fail(file, what, "return an object that has")
    with _told(file, "run()"):
        tokens = engine.run(requests, steps, on_step)
    costs = []
    if hasattr(engine, "costs"):
        with _told(file, "costs()"):
            costs = list(engine.costs())
    return _checked(file, tokens), costs


def find_factory(file: ScenarioFile) -> Callable[[EngineSettings], ServingEngine]:
    """What the import path of `file` names. Modules beside the scenario can be imported."""
    module_name, _, name = file.scenario.engine.partition(":")
    folder = str(file.path.parent.resolve())
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        _fail(
            file,
            f"{module_name} cannot be imported ({_line(error)})",
            "install it, or put it beside this file",
        )
    factory: Any = getattr(module, name, None)
    if factory is None:
        public = [known for known in vars(module) if not known.startswith("_")]
        _fail(file, f"{module_name} has no {name!r}", nearest(name, public or ["a function of this name"]))
    try:
        inspect.signature(factory).bind(None)
    except TypeError as error:
        _fail(
            file, f"{name} cannot be called with the settings alone ({error})", f"write def {name}(settings)"
        )
    except ValueError:
        pass  # built in C, without a signature to look at
    return factory  # type: ignore[no-any-return]


@contextmanager
def _told(file: ScenarioFile, what: str, key: KeyPath = ("engine",)) -> Iterator[None]:
    """What an engine refuses, and how one of someone else's fails, is told as one line.

    An exception in the reference engine is a bug in racecheck.
    """
    try:
        yield
    except UsageError as error:
        wrong, _, instead = str(error).partition("; ")
        raise file.error(key, wrong, instead or "mend it") from error
    except Exception as error:
        if isinstance(error, RacecheckError) or file.scenario.engine == REFERENCE_ENGINE:
            raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        wrong = f"{what} raised {_line(error)}, at {relative(frame.filename)}:{frame.lineno}"
        raise file.error(("engine",), wrong, "mend it there") from error


def _checked(file: ScenarioFile, tokens: Any) -> dict[str, Tokens]:
    """`tokens` if they are by request id, and tuples of whole numbers or bytes."""
    if not isinstance(tokens, Mapping):
        _fail(file, f"run() returned {_a(tokens)}", "return a dictionary of tokens by request id")
    for request, items in tokens.items():
        wrong = next((item for item in items if not isinstance(item, tuple | bytes)), None)
        if wrong is not None:
            what = f"run() returned {_a(wrong)} among the tokens of {request}"
            _fail(file, what, "return tuples of whole numbers, or bytes")
    return dict(tokens)


def _fail(file: ScenarioFile, wrong: str, instead: str) -> NoReturn:
    raise file.error(("engine",), wrong, instead)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def _a(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
