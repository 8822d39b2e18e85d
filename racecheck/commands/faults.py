"""`racecheck faults`: the catalogue, one fault of it, or the check of all."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from racecheck.commands import options
from racecheck.commands.options import lag as checked_lag
from racecheck.errors import UsageError
from racecheck.prove.protocol import PREMISES
from racecheck.provider import DEVICES
from racecheck.scenario.plan import check_device
from racecheck.words import counted

if TYPE_CHECKING:  # the engine imports torch, which takes seconds
    from racecheck.faults import Cell, Fault
    from racecheck.scenario.load import ScenarioFile
    from racecheck.scenario.plan import Overrides

WIDTH = 110


def faults(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these faults.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Run them and their twins; print the fault x scenario matrix.")
    ] = False,
    scenario: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="With --check: only in this model.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="S", help="With --check: draw requests from S, else from 0.")
    ] = None,
    lag: Annotated[
        str | None,
        typer.Option(
            parser=checked_lag, metavar="L", help="With --check: latest (so if left out), eager or seed:N."
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            parser=options.one_of(DEVICES),
            metavar="NAME",
            help="With --check: virtual (if left out) or cuda.",
        ),
    ] = None,
) -> int:
    """List the known faults, show the code of those named, or check that each is found.

    Exit code 0; with --check 1 if a fault or its safe twin does not show what it must.
    """
    from racecheck.faults import CATALOGUE, find

    chosen = [find(name) for name in names or CATALOGUE]
    if check:
        if device == "cuda":
            check_device(device, lag)
        return _check(chosen, _models(scenario), seed or 0, lag or "latest", device or "virtual")
    for option, value in (
        ("--scenario", scenario or None),
        ("--seed", seed),
        ("--lag", lag),
        ("--device", device),
    ):
        if value is not None:
            raise UsageError(f"racecheck faults: {option} is for --check; write --check with it")
    print("\n".join(map(describe, chosen)) if names else table(chosen))
    return 0


def run_with(name: str, files: Sequence[ScenarioFile], overrides: Overrides) -> int:
    """The scenarios `files` with the fault `name`, then without: 0 if as the catalogue says, else 1."""
    from racecheck.faults import find

    fault = find(name)
    wrong = 0
    for file in files:
        cell = _in_scenario(fault, file, overrides)
        print(f"{file.scenario.name}, with {fault.name}: {cell}\n\n{_story(cell)}".rstrip())
        wrong += cell.problem is not None
    return int(wrong > 0)


def _in_scenario(fault: Fault, file: ScenarioFile, overrides: Overrides) -> Cell:
    """The fault in the scenario's model under its workload, which the fault's setting may change."""
    from racecheck.faults import Cell, observe
    from racecheck.scenario.plan import model_spec
    from racecheck.scenario.workload import build_requests

    scenario = file.scenario
    if scenario.model not in fault.where:
        raise UsageError(
            f"--fault {fault.name}: does not apply to {scenario.model}; it does to {', '.join(fault.where)}"
        )
    seed = scenario.seed if overrides.seed is None else overrides.seed
    spec = model_spec(file)
    if spec is None:
        raise UsageError(f"--fault {fault.name}: {file.path} is about another engine than racecheck's own")
    requests = build_requests(file, seed, spec)
    lag, steps = overrides.lag or scenario.lag, overrides.steps or scenario.steps
    run = partial(
        observe, spec, requests, fault.setting, lag=lag, steps=steps, explain=True, device=overrides.device
    )
    seen, twin = run(parts=fault.parts), run(parts=fault.twin)
    return Cell(fault, scenario.model, seen, twin)


def _story(cell: Cell) -> str:
    from racecheck.report.text import describe_finding

    seen = cell.seen
    if seen is None or seen.finding is None:
        return f"{seen.message}\n" if seen is not None and seen.message else ""
    return describe_finding(seen.finding)


def table(chosen: Sequence[Fault]) -> str:
    """One line a fault: name, what it shows as, in which models."""
    from racecheck.faults import MODELS

    rows = [("fault", "shows as", "scenarios")]
    for fault in chosen:
        where = "all" if set(fault.where) == set(MODELS) else ", ".join(fault.where)
        rows.append((fault.name, fault.shows, where))
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(size) for cell, size in zip(row, wide, strict=True)).rstrip() for row in rows
    ]
    return "\n".join(
        [*lines, "", f"{counted(len(chosen), 'fault')}; racecheck faults NAME shows the code of one"]
    )


def describe(fault: Fault) -> str:
    """The story of one fault, its code and the repair."""
    where = "; ".join(f"{model}: {pattern}" for model, pattern in fault.where.items())
    right: Any = next(field.default for field in fields(type(fault.parts)) if field.name == fault.kind)
    return "\n".join(
        [
            fault.name,
            textwrap.fill(fault.story, WIDTH, initial_indent="  wrong   ", subsequent_indent=" " * 10),
            f"  repair  {fault.repair}",
            f"  shows   {fault.shows} on {where}",
            *([f"  breaks  premise ({fault.premise}): {PREMISES[fault.premise]}"] if fault.premise else []),
            f"  part    in the place of {right.__module__}.{right.__name__}",
            "",
            *(textwrap.indent(source(part), "    ") for part in (*fault.uses, fault.part)),
        ]
    )


def source(part: Any) -> str:
    """The code of a wrong part."""
    return inspect.getsource(getattr(part, "shown", part))


def _models(names: Sequence[str] | None) -> Sequence[str]:
    from racecheck.faults import MODELS

    for name in names or ():
        if name not in MODELS:
            raise UsageError(
                f"racecheck faults: --scenario {name}: there is none; write one of {', '.join(MODELS)}"
            )
    return names or MODELS


def _check(chosen: Sequence[Fault], models: Sequence[str], seed: int, lag: str, device: str) -> int:
    """Run and print one cell after the other; 1 if one of them is not what it must be."""
    from racecheck.faults import cells

    chosen = _that_fit(chosen, device)

    workers = (os.cpu_count() or 1) if len(chosen) > 1 else 1
    wrong = total = 0
    name = ""
    for cell in cells(chosen, models, seed=seed, lag=lag, workers=workers, device=device):
        if cell.fault.name != name:
            name = cell.fault.name
            print(name)
        print(f"  {cell.model:11} {cell}", flush=True)
        total += 1
        wrong += cell.problem is not None
    print(
        f"\n{total - wrong} of {counted(total, 'cell')} {'is' if total == 1 else 'are'} as the catalogue says"
    )
    return int(wrong > 0)


def _that_fit(chosen: Sequence[Fault], device: str) -> list[Fault]:
    """The faults that this machine can show; the others are named."""
    if device == "virtual":
        return list(chosen)
    import torch

    here = torch.cuda.device_count()
    fit = [fault for fault in chosen if fault.setting.ranks <= here]
    for fault in chosen:
        if fault not in fit:
            print(f"{fault.name}\n  not run: needs {fault.setting.ranks} GPUs, there is {here}")
    return fit
