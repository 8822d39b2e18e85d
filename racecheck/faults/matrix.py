"""Every fault in every model: is what shows what the catalogue says, and is the twin clean?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

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
            return "twin clean"
        on = self.seen.on or ", ".join(name for name in self.seen.stalled if self._is_it(name))
        return f"{self.fault.shows} on {on}; twin clean"

    def _is_it(self, buffer: str) -> bool:
        return self.fault.matches(self.model, buffer)


def fault_problem(fault: Fault, model: str, seen: Seen) -> str | None:
    """How `seen` differs from what the catalogue says of `fault` in `model`; None if it does not."""
    wanted = f"{fault.shows} on {fault.where[model]} was expected"
    if fault.shows == "stall":
        stalls = any(fault.matches(model, buffer) for buffer in seen.stalled)
        return None if seen.verdict == "clean" and not seen.untested and stalls else f"{wanted}, not {seen}"
    if seen.verdict != fault.shows or seen.on is None or not fault.matches(model, seen.on):
        return f"{wanted}, not {seen}"
    return None


def twin_problem(seen: Seen) -> str | None:
    """What keeps the twin from being clean with evidence for every staged buffer; None if nothing does."""
    if seen.verdict == "clean" and not seen.untested:
        return None
    return f"the twin is {seen}"


@dataclass
class Twins:
    """What the twins came to: faults of one setting share theirs."""

    seed: int
    lag: str
    _known: dict[object, Seen] = field(default_factory=dict)

    def of(self, fault: Fault, model: str) -> Seen:
        """The twin of `fault` in `model`."""
        key = (id(fault.setting), model)
        if key not in self._known:
            self._known[key] = run_twin(fault, model, seed=self.seed, lag=self.lag)
        return self._known[key]


def cells(
    faults: Iterable[Fault],
    models: Sequence[str],
    *,
    seed: int = 0,
    lag: str = "latest",
    tell: Callable[[str], None] = lambda doing: None,
) -> Iterable[Cell]:
    """All cells, fault by fault; `tell` is called before each with what is being run."""
    twins = Twins(seed, lag)
    for fault in faults:
        for model in models:
            tell(f"{fault.name} in {model}")
            run = partial(run_fault, fault, model, seed=seed, lag=lag)
            yield Cell(fault, model, run() if model in fault.where else None, twins.of(fault, model))
