"""Every fault in every model: is what shows what the catalogue says, and is the twin clean?"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, NamedTuple

from racecheck.faults.catalogue import find
from racecheck.faults.fault import Fault
from racecheck.faults.run import Seen, run_fault, run_twin


@dataclass(frozen=True)
class Cell:
    """One fault in one model; `seen` is None where it does not apply."""

    fault: Fault
    model: str
    seen: Seen | None
    twin: Seen

    @property
    def problem(self) -> str | None:
        """What speaks against this cell; None if nothing does."""
        wrong = self.seen and fault_problem(self.fault, self.model, self.seen)
        return wrong or twin_problem(self.twin)

    def __str__(self) -> str:
        if self.problem is not None:
            return f"WRONG: {self.problem}"
        if self.seen is None:
            return "does not apply; twin clean"
        on = self.seen.on or ", ".join(name for name in self.seen.stalled if self._is_it(name))
        return f"{self.fault.shows} on {on}; twin clean"

    def _is_it(self, buffer: str) -> bool:
        return self.fault.matches(self.model, buffer)


def fault_problem(fault: Fault, model: str, seen: Seen) -> str | None:
    """How `seen` differs from what the catalogue says of `fault` in `model`; None if it does not."""
    wanted = f"{fault.shows} on {fault.where[model]} was expected"
    if fault.shows == "stall":
        stalls = any(fault.matches(model, buffer) for buffer in seen.stalled)
        held = not (seen.untested or seen.broken)
        return None if seen.verdict == "clean" and held and stalls else f"{wanted}, not {seen}"
    if seen.verdict != fault.shows or seen.on is None or not fault.matches(model, seen.on):
        return f"{wanted}, not {seen}"
    if fault.premise not in seen.broken or bool(fault.premise) != bool(seen.broken):
        broken = f"({seen.broken})" if seen.broken else "none"
        return f"premise ({fault.premise or 'none'}) was expected to be broken, not {broken}"
    return None


def twin_problem(seen: Seen) -> str | None:
    """What keeps the twin from being clean with evidence for every staged buffer; None if nothing does."""
    if seen.broken:
        return f"the twin breaks premise ({seen.broken})"
    if seen.verdict == "clean" and not seen.untested:
        return None
    return f"the twin is {seen}"


class Unit(NamedTuple):
    """Faults of one setting in one model: they share a twin, and so are run by one process."""

    names: tuple[str, ...]
    model: str
    seed: int
    lag: str
    device: str


def run_unit(unit: Unit) -> list[tuple[Seen | None, Seen]]:
    """What the faults of `unit`, and their twin, came to."""
    faults = [find(name) for name in unit.names]
    how: dict[str, Any] = {"seed": unit.seed, "lag": unit.lag, "device": unit.device}
    twin = run_twin(faults[0], unit.model, **how)
    return [(run_fault(one, unit.model, **how) if unit.model in one.where else None, twin) for one in faults]


def cells(
    faults: Iterable[Fault],
    models: Sequence[str],
    *,
    seed: int = 0,
    lag: str = "latest",
    workers: int = 1,
    device: str = "virtual",
) -> Iterator[Cell]:
    """All cells, fault by fault, each as soon as it and those before it are known; by `workers` processes.

    On a real GPU each unit has a process of its own: a corrupted index may break its context.
    """
    faults = list(faults)
    units = _units(faults, models, seed, lag, device)
    each = 1 if device == "cuda" else None
    known: dict[tuple[str, str], Cell] = {}
    with (
        ProcessPoolExecutor(workers, get_context("spawn"), max_tasks_per_child=each)
        if workers > 1 or each
        else nullcontext() as pool
    ):
        outcomes = map(run_unit, units) if pool is None else pool.map(run_unit, units)
        todo = deque((fault.name, model) for fault in faults for model in models)
        for unit, outcome in zip(units, outcomes, strict=True):
            for name, (seen, twin) in zip(unit.names, outcome, strict=True):
                known[name, unit.model] = Cell(find(name), unit.model, seen, twin)
            while todo and todo[0] in known:
                yield known.pop(todo.popleft())


def _pool(workers: int, each: int | None) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, get_context("spawn"), max_tasks_per_child=each)


def _units(faults: Iterable[Fault], models: Sequence[str], seed: int, lag: str, device: str) -> list[Unit]:
    by_setting: dict[int, list[str]] = {}
    for fault in faults:
        by_setting.setdefault(id(fault.setting), []).append(fault.name)
    return [Unit(tuple(names), model, seed, lag, device) for names in by_setting.values() for model in models]
