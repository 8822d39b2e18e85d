"""`racecheck matrix`: resource x runner x slots, and the smallest setting that is enough."""

from __future__ import annotations

import json as jsonlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from racecheck.commands import options
from racecheck.commands.paths import typed_path
from racecheck.errors import UsageError
from racecheck.matrix import Matrix
from racecheck.matrix import text as texts
from racecheck.matrix.measure import Measured, matrix_of, measure, plans_of
from racecheck.report.text import plainly
from racecheck.scenario.load import ScenarioFile, load_all
from racecheck.scenario.plan import Overrides, RowPlan, check
from racecheck.scenario.run import References

#: Columns of a report that goes to a file or a pipe, which have no width.
PIPE_WIDTH = 110
#: Each slot is a run of every runner.
MOST = 8


def matrix(
    paths: Annotated[
        list[Path],
        typer.Argument(parser=typed_path, metavar="PATH", help="Scenario files, or folders of them."),
    ],
    most: Annotated[
        int,
        typer.Option("--slots", parser=options.whole(1, MOST), metavar="N", help="Try 1 to N slots."),
    ] = 3,
    runner: options.RunnerOption = None,
    lag: options.LagOption = None,
    seed: options.SeedOption = None,
    steps: options.StepsOption = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a pull request.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Run every runner of scenarios with 1 to N slots, and say for each resource how many it needs.

    Exit code 0: every resource has a number of slots that is enough. 1: one has none. 2: an option or a file
    is wrong. 3: a resource was not put to the test.
    """
    if markdown and json:
        raise UsageError("racecheck matrix: --markdown and --json both print; leave one out")
    files, wrong = load_all(paths, check)
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 2
    overrides = Overrides(runner=runner, lag=lag, seed=seed, steps=steps)
    found = _measured([(file, plan) for file in files for plan in plans_of(file, most, overrides)])
    if not found:
        raise UsageError(
            f"racecheck matrix: --runner {runner}: no scenario here has this runner; leave it out"
        )
    matrices = [matrix_of(file, rows) for file, rows in found]
    _print(matrices, markdown, json)
    return max((each.exit_code for each in matrices), key=(0, 3, 1).index)


def _measured(plans: list[tuple[ScenarioFile, RowPlan]]) -> list[tuple[ScenarioFile, list[Measured]]]:
    """All rows, by scenario; on a terminal, a line on stderr says how far that is."""
    console = Console(stderr=True)
    references, found = References(), dict[int, tuple[ScenarioFile, list[Measured]]]()
    for file, plan in track(plans, "rows", console=console, transient=True, disable=not console.is_terminal):
        found.setdefault(id(file), (file, []))[1].append(measure(plan, references))
    return list(found.values())


def _print(matrices: list[Matrix], markdown: bool, json: bool) -> None:
    if json:
        data = {"format": texts.FORMAT, "scenarios": [*map(texts.as_dict, matrices)]}
        print(jsonlib.dumps(data, indent=2, ensure_ascii=False))
    elif markdown:
        print("\n".join(map(texts.markdown, matrices)), end="")
    else:
        console = Console(highlight=False)
        if console.is_terminal:
            texts.render(matrices, console)
        else:
            width = console.width if os.environ.get("COLUMNS") else PIPE_WIDTH
            print(plainly(lambda console: texts.render(matrices, console), width), end="")
