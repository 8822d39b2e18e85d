"""Measure a scenario: each runner with one slot, two, and so on, and every finding laid to its resource."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from racecheck.detect.syncs import accidental_syncs
from racecheck.matrix.table import ACCIDENT, CLEAN, PROVED, RACE, UNTESTED, Cell, Entry, Matrix
from racecheck.report.result import Row
from racecheck.scenario.load import ScenarioFile
from racecheck.scenario.plan import Overrides, RowPlan, model_spec, plan_rows
from racecheck.scenario.run import OnStep, References, run_row
from racecheck.scenario.workload import build_requests
from racecheck.trace import Trace, subscribe

if TYPE_CHECKING:  # staging imports torch, which takes seconds
    from racecheck.staging import SlotCost

#: What `needs` calls the rotation of a ring that has a place for each step in flight.
RING = "run-ahead"


@dataclass
class Measured:
    """One row. `accidents`: by buffer, blocking calls of something else that it is safe by."""

    row: Row
    accidents: Mapping[str, Sequence[str]] = field(default_factory=dict)
    broken: Sequence[str] | None = None  # premises, if known


def plans_of(file: ScenarioFile, most: int, overrides: Overrides) -> list[RowPlan]:
    """The rows of the matrix of `file`: every runner that is asked for, with 1 to `most` slots."""
    return [
        plan
        for slots in range(1, most + 1)
        for plan in plan_rows(file, replace(overrides, slots=slots, device="virtual"))
    ]


def measure(plan: RowPlan, references: References, on_step: OnStep | None = None) -> Measured:
    """Run one row, and see what its safety rests on."""
    requests = build_requests(plan.file, plan.seed, model_spec(plan.file))
    references.of(plan, requests, on_step)  # has a trace of its own
    trace = Trace()
    with subscribe(trace.append):
        row = run_row(plan, references, on_step)
    accidents: dict[str, list[str]] = {}
    for sync in accidental_syncs(trace):
        for buffer in sync.protects:
            accidents.setdefault(staged(buffer), []).append(f"{sync.what} at {sync.loc}")
    premises = row.premises
    known = premises is not None and premises.unchecked is None
    return Measured(row, accidents, tuple(premises.letters) if premises is not None and known else None)


def matrix_of(file: ScenarioFile, measured: Sequence[Measured]) -> Matrix:
    """The matrix of one scenario from its rows, of which there is at least one."""
    first = measured[0].row
    cells = _Cells(measured, bound=file.scenario.run_ahead + 1)
    return Matrix(
        scenario=first.scenario,
        run_ahead=file.scenario.run_ahead,
        lag=first.lag or "",
        seed=first.seed,
        steps=first.steps,
        slots=sorted({each.row.slots for each in measured}),
        entries=list(cells.entries()),
    )


def staged(buffer: str) -> str:
    """The staged buffer of which `buffer` is the pinned or the device side."""
    return buffer.removesuffix(" (device)")


_WRONG = (RACE, "stale", "hang")
#: From worst to best.
_ORDER = (*_WRONG, UNTESTED, ACCIDENT, CLEAN, PROVED)


class _Cells:
    """The rows of one scenario, taken apart by resource. `bound`: the slots that the theorem asks for."""

    def __init__(self, measured: Sequence[Measured], bound: int) -> None:
        self._measured = measured
        self._bound = bound
        self._costs: dict[str, SlotCost] = {}
        self._rotated: dict[str, set[str]] = {}  # by resource: what its slots go round with
        for cost in (cost for each in measured for cost in each.row.costs):
            self._costs.setdefault(cost.resource, cost)
            self._rotated.setdefault(cost.resource, set()).update(cost.needs)

    def entries(self) -> Iterator[Entry]:
        """What costs name, then what owns the other buffers; each with the runners that it is about."""
        rows = [each.row for each in self._measured]
        buffers = sorted({name for row in rows for name in (*row.evidence.buffers, *row.raced)})
        runners = list(dict.fromkeys(row.runner for row in rows))
        for resource in dict.fromkeys((*self._costs, *map(self._owner, buffers))):
            if RING in self._rotated.get(resource, ()):
                yield self._ring(resource)
            else:
                own = (self._of_runner(resource, runner) for runner in runners)
                yield from (entry for entry in own if entry is not None)

    def _owner(self, buffer: str) -> str:
        """The resource that stages `buffer`: `kv` of `kv.indices`."""
        fitting = [name for name in self._costs if buffer.startswith(f"{name}.")]
        return max(fitting, key=len) if fitting else buffer.partition(".")[0]

    def _of_runner(self, resource: str, runner: str) -> Entry | None:
        """None if the runner neither rotates the resource nor has it race."""
        own = [each for each in self._measured if each.row.runner == runner]
        cells = {each.row.slots: self._cell(resource, each, each.row.slots) for each in own}
        raced = any(cell.verdict in _WRONG for cell in cells.values())
        if resource in self._costs and runner not in self._rotated[resource] and not raced:
            return None
        return Entry(resource, runner, cells, *self._bytes(resource))

    def _ring(self, resource: str) -> Entry:
        """One cell, the worst of all rows: its places are a matter of the run-ahead."""
        slots = self._costs[resource].slots
        cells = [self._cell(resource, each, slots) for each in self._measured]
        worst = min(cells, key=lambda cell: _ORDER.index(cell.verdict))
        return Entry(resource, RING, {slots: worst}, *self._bytes(resource), rotates=False)

    def _bytes(self, resource: str) -> tuple[int | None, int | None]:
        cost = self._costs.get(resource)
        return (None, None) if cost is None else (cost.pinned, cost.device)

    def _cell(self, resource: str, measured: Measured, slots: int) -> Cell:
        """What the row says of `resource`, which has so many slots."""
        row, broken = measured.row, measured.broken or ()
        found = [each for each in row.findings if self._owner(staged(each.buffer)) == resource]
        if found:
            return Cell(found[0].kind, sorted({staged(each.buffer) for each in found}), broken=broken)
        own = {name: each for name, each in row.evidence.buffers.items() if self._owner(name) == resource}
        if not own or not all(buffer.rewrites for buffer in own.values()):
            return Cell(UNTESTED, broken=broken)
        lines = sorted({line for name in own for line in measured.accidents.get(name, ())})
        if lines:
            return Cell(ACCIDENT, lines=lines, broken=broken)
        proved = measured.broken is not None and not broken and slots >= self._bound
        return Cell(PROVED if proved else CLEAN, broken=broken)
