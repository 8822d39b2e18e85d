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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import index
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
        run, costs = getattr(engine, "run", None), getattr(engine, "costs", tuple)
    if not callable(run):
        what = f"the factory returned {_a(engine)}, which has no run(requests, steps, on_step)"
        _fail(file, what, "return an object that has")
    with _told(file, "run()"):
        tokens = _tokens(file, run(requests, steps, on_step))
    with _told(file, "costs()"):
        return tokens, _costs(file, costs())


def find_factory(file: ScenarioFile) -> Callable[[EngineSettings], ServingEngine]:
    """What the import path of `file` names. Modules beside the scenario can be imported."""
    module_name, _, name = file.scenario.engine.partition(":")
    folder = str(file.path.parent.resolve())
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
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

    An exception in the reference engine is a bug in racecheck. An engine that ends the process would take
    racecheck's exit code with it.
    """
    try:
        yield
    except UsageError as error:
        wrong, _, instead = str(error).partition("; ")
        raise file.error(key, wrong, instead or "mend it") from error
    except (Exception, SystemExit) as error:
        if isinstance(error, RacecheckError) or file.scenario.engine == REFERENCE_ENGINE:
            raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        wrong = f"{what} raised {_line(error)}, at {relative(frame.filename)}:{frame.lineno}"
        raise file.error(("engine",), wrong, "mend it there") from error


def _tokens(file: ScenarioFile, returned: Any) -> dict[str, Tokens]:
    """What `run` returned, if it is by request id, and lists of tuples of whole numbers or of bytes."""
    if not isinstance(returned, Mapping):
        _fail(file, f"run() returned {_a(returned)}", "return a dictionary of tokens by request id")
    tokens: dict[str, Tokens] = {}
    for request, items in returned.items():
        if not isinstance(request, str):
            _fail(
                file, f"run() returned tokens of {_a(request)}", "return a dictionary by request id, in text"
            )
        if not isinstance(items, list | tuple):
            what = f"run() returned {_a(items)} as the tokens of {request}"
            _fail(file, what, "return a list of what it got")
        tokens[request] = [_item(file, request, item) for item in items]
    return tokens


def _item(file: ScenarioFile, request: str, item: Any) -> tuple[int, ...] | bytes:
    """A frame as plain numbers, whatever kind of whole number an engine has; or sound."""
    wrong = item
    if isinstance(item, bytes):
        return item
    if isinstance(item, tuple):
        wrong = next((part for part in item if not hasattr(part, "__index__")), item)
        with suppress(TypeError):  # a tensor has the method too, and only of one number an answer
            return tuple(map(index, item))
    what = f"run() returned {_a(wrong)} among the tokens of {request}"
    _fail(file, what, "return tuples of whole numbers, or bytes")


def _costs(file: ScenarioFile, returned: Any) -> list[SlotCost]:
    """What `costs` returned, if that is what a report can show."""
    from racecheck.staging import SlotCost

    costs = list(returned)
    for cost in costs:
        if not isinstance(cost, SlotCost):
            what = f"costs() returned {_a(cost)} in its list"
            _fail(file, what, "make each by racecheck.staging.slot_cost")
    return costs


def _fail(file: ScenarioFile, wrong: str, instead: str) -> NoReturn:
    raise file.error(("engine",), wrong, instead)


def _line(error: BaseException) -> str:
    try:
        words = str(error).split()
    except Exception:  # the exceptions of an engine are its own
        words = []
    return f"{type(error).__name__}: {' '.join(words)}".removesuffix(": ")


def _a(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
