"""Measure a scenario: each runner with one slot, two, and so on, and every finding laid to its resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from racecheck.detect.syncs import accidental_syncs
from racecheck.matrix.table import ACCIDENT, CLEAN, PROVED, RACE, UNTESTED, Cell, Entry, Matrix
from racecheck.report.result import Row
from racecheck.scenario.load import ScenarioFile
from racecheck.scenario.plan import Overrides, RowPlan, plan_rows
from racecheck.scenario.run import OnStep, References, run_row
from racecheck.scenario.workload import build_requests
from racecheck.trace import Trace, subscribe

#: Says of a run which premises of the slot theorem it broke, by letter; None if that is not known.
Premises = Callable[[Row, Trace], Sequence[str] | None]
#: What `needs` calls the rotation of a ring that has a place for each step in flight.
RING = "run-ahead"


def unknown_premises(row: Row, trace: Trace) -> None:
    """Nobody has checked them: a clean run stays a clean run."""


@dataclass
class Measured:
    """One row. `accidents`: by buffer, blocking calls of something else that it is safe by."""

    row: Row
    accidents: Mapping[str, Sequence[str]] = field(default_factory=dict)
    broken: Sequence[str] | None = None  # premises, if known


def plans_of(file: ScenarioFile, most: int, overrides: Overrides) -> list[RowPlan]:
    """The rows of the matrix of `file`: every runner that is asked for, with 1 to `most` slots."""
    from dataclasses import replace

    return [
        plan
        for slots in range(1, most + 1)
        for plan in plan_rows(file, replace(overrides, slots=slots, device="virtual"))
    ]


def measure(
    plan: RowPlan,
    references: References,
    on_step: OnStep | None = None,
    premises: Premises = unknown_premises,
) -> Measured:
    """Run one row, and see what its safety rests on."""
    from racecheck.scenario.plan import model_spec

    requests = build_requests(plan.file, plan.seed, model_spec(plan.file))
    references.of(plan, requests, on_step)  # has a trace of its own
    trace = Trace()
    with subscribe(trace.append):
        row = run_row(plan, references, on_step)
    accidents: dict[str, list[str]] = {}
    for sync in accidental_syncs(trace):
        for buffer in sync.protects:
            accidents.setdefault(staged(buffer), []).append(f"{sync.what} at {sync.loc}")
    return Measured(row, accidents, premises(row, trace))


def matrix_of(file: ScenarioFile, measured: Sequence[Measured]) -> Matrix:
    """The matrix of one scenario from its rows."""
    rows = [each.row for each in measured]
    first = rows[0]
    runners = list(dict.fromkeys(row.runner for row in rows))
    entries = [
        entry
        for resource in _resources(rows)
        for runner in [*runners, RING]
        if (entry := _entry(file, resource, runner, measured)) is not None
    ]
    return Matrix(
        scenario=first.scenario,
        run_ahead=file.scenario.run_ahead,
        lag=first.lag or "",
        seed=first.seed,
        steps=first.steps,
        slots=sorted({row.slots for row in rows}),
        entries=entries,
    )


def staged(buffer: str) -> str:
    """The staged buffer of which `buffer` is the pinned or the device side."""
    return buffer.removesuffix(" (device)")


def _resources(rows: Iterable[Row]) -> list[str]:
    """What costs name, and then what owns the buffers of an engine that names no costs."""
    rows = list(rows)
    named = list(dict.fromkeys(cost.resource for row in rows for cost in row.costs))
    seen = sorted({name for row in rows for name in [*row.evidence.buffers, *row.raced]})
    return list(dict.fromkeys([*named, *(_owner(buffer, named) for buffer in seen)]))


def _owner(buffer: str, named: Sequence[str]) -> str:
    """The resource that stages `buffer`: `kv` of `kv.indices`."""
    fitting = [name for name in named if buffer.startswith(f"{name}.")]
    return max(fitting, key=len) if fitting else buffer.partition(".")[0]


def _entry(file: ScenarioFile, resource: str, runner: str, measured: Sequence[Measured]) -> Entry | None:
    """The cells of `resource` under `runner`; None if that runner neither rotates it nor has it race."""
    cost = next((c for each in measured for c in each.row.costs if c.resource == resource), None)
    named = [c.resource for each in measured for c in each.row.costs]
    needs = {name for each in measured for c in each.row.costs if c.resource == resource for name in c.needs}
    if runner == RING:
        if RING not in needs or cost is None:
            return None
        worst = [_cell(file, resource, named, each, cost.slots) for each in measured]
        cells = {cost.slots: min(worst, key=lambda cell: _ORDER.index(cell.verdict))}
    else:
        own = [each for each in measured if each.row.runner == runner]
        cells = {each.row.slots: _cell(file, resource, named, each, each.row.slots) for each in own}
        raced = any(cell.verdict in _WRONG for cell in cells.values())
        if (needs and runner not in needs and not raced) or RING in needs:
            return None
    pinned, device = (None, None) if cost is None else (cost.pinned, cost.device)
    return Entry(resource, runner, cells, pinned, device, rotates=runner != RING)


_WRONG = (RACE, "stale", "hang")
_ORDER = (*_WRONG, UNTESTED, ACCIDENT, CLEAN, PROVED)


def _cell(file: ScenarioFile, resource: str, named: Sequence[str], measured: Measured, slots: int) -> Cell:
    """What the row says of `resource`."""
    row, broken = measured.row, measured.broken
    found = [each for each in row.findings if _owner(staged(each.buffer), named) == resource]
    if found:
        return Cell(found[0].kind, sorted({staged(each.buffer) for each in found}), broken=broken or ())
    own = {name: each for name, each in row.evidence.buffers.items() if _owner(name, named) == resource}
    if not own or not all(buffer.rewrites for buffer in own.values()):
        return Cell(UNTESTED, broken=broken or ())
    lines = sorted({line for name in own for line in measured.accidents.get(name, ())})
    if lines:
        return Cell(ACCIDENT, lines=lines, broken=broken or ())
    proved = broken is not None and not broken and slots >= file.scenario.run_ahead + 1
    return Cell(PROVED if proved else CLEAN, broken=broken or ())
