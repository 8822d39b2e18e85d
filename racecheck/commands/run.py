"""`racecheck run`: scenarios, their rows, and whether those are as expected."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from racecheck.commands import options, outputs
from racecheck.commands.faults import run_with
from racecheck.commands.outputs import HtmlOption
from racecheck.commands.paths import typed_path
from racecheck.commands.recording import recording
from racecheck.errors import UsageError
from racecheck.provider import DEVICES
from racecheck.report import Report, text
from racecheck.report import html as html_report
from racecheck.report.json import as_dict, render
from racecheck.report.outcome import Outcome, exit_code, from_report
from racecheck.scenario.load import load_all
from racecheck.scenario.model import MOST_SLOTS
from racecheck.scenario.plan import Overrides, RowPlan, check, check_device, plan_all
from racecheck.scenario.run import References, run_row
from racecheck.trace.repository import below, here
from racecheck.trace.stream import Listener

#: Columns of a report that goes to a file or a pipe, which have no width.
PIPE_WIDTH = 120


def run(
    paths: Annotated[
        list[Path],
        typer.Argument(parser=typed_path, metavar="PATH", help="Scenario files, or folders of them."),
    ],
    slots: Annotated[
        int | None,
        typer.Option(
            parser=options.whole(1, MOST_SLOTS), metavar="N", help="Probe with N slots; nothing is expected."
        ),
    ] = None,
    runner: options.RunnerOption = None,
    device: Annotated[
        str, typer.Option(parser=options.one_of(DEVICES), metavar="NAME", help="virtual or cuda.")
    ] = "virtual",
    lag: options.LagOption = None,
    seed: options.SeedOption = None,
    steps: options.StepsOption = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact", help="Virtual device: know silent host writes by their line, not their stretch."
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
    fault: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Run each scenario once with this known fault, and once without."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", parser=typed_path, metavar="FILE", help="Write the trace of the only row to FILE."
        ),
    ] = None,
    sarif: outputs.SarifOption = None,
    markdown: outputs.MarkdownOption = None,
    baseline: outputs.BaselineOption = None,
    perfetto: Annotated[
        Path | None,
        typer.Option(
            "--perfetto",
            parser=typed_path,
            metavar="FILE",
            help="Write the only row's timeline for Perfetto.",
        ),
    ] = None,
    html: HtmlOption = None,
) -> int:
    """Run scenarios and check what they expect.

    Exit code 0: all as expected (with --slots: clean), or known to the baseline. 1: a row is not as expected
    (with --slots: a race, a stale operand or a hang). 2: an option or a file is wrong. 3: nothing was put to
    the test.
    """
    known = outputs.load_baseline(baseline)
    files, wrong = load_all(paths, check)
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 2
    overrides = Overrides(
        slots=slots, runner=runner, device=device, lag=lag, seed=seed, steps=steps, exact=exact
    )
    if fault is not None:
        if slots or runner or trace or perfetto or html or json or sarif or markdown or known:
            raise UsageError(
                f"--fault {fault}: brings its own slots and runners; leave out --slots, --runner, --trace, "
                "--perfetto, --html, --json, --sarif, --markdown and --baseline"
            )
        check_device(device, lag, exact)
        return run_with(fault, files, overrides)
    plans = plan_all(files, overrides)
    check_device(device, lag, exact)
    outputs.reserve("--sarif", sarif)
    outputs.reserve("--markdown", markdown)
    outputs.reserve("--html", html)
    with recording(plans, trace, perfetto) as listen:
        report = _run_rows(plans, listen)
    if html is not None:
        outputs.save("--html", html, html_report.render(report))
    outcomes = outputs.compared(_outcomes(report, plans), known)
    if json:
        print(render(report, None if known is None else outputs.reasons(outcomes)), end="")
    else:
        _show(report)
    outputs.tell(outcomes, known, sys.stderr if json else sys.stdout)
    outputs.save_for_ci(outcomes, to_sarif=sarif, to_markdown=markdown)
    return exit_code(outcomes)


def _outcomes(report: Report, plans: Sequence[RowPlan]) -> list[Outcome]:
    home = here()
    places = [(below(home, str(plan.file.path)), plan.line) for plan in plans]
    return from_report(as_dict(report), home, places)


class StepCount:
    """Says how far a row is: its serial reference and the row itself have steps of their own."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._done = {"reference": 0, "row": 0}

    def __call__(self, part: str) -> str:
        """One more step of `part`."""
        self._done[part] += 1
        what = "serial reference, step" if part == "reference" else "step"
        return f"{what} {self._done[part]} of {self._steps}"


def _run_rows(plans: Sequence[RowPlan], listen: Listener | None) -> Report:
    """Run all rows; on a terminal, a line on stderr says how far that is."""
    references = References()
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("rows done: {task.completed} of {task.total}, {task.fields[doing]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=len(plans), doing="")
        rows = []
        for plan in plans:
            name = f"{plan.file.scenario.name} {plan.runner}, slots {plan.slots}"
            progress.update(task, description=name, doing="")
            count = StepCount(plan.steps)

            def on_step(part: str, count: StepCount = count) -> None:
                progress.update(task, doing=count(part))

            rows.append(run_row(plan, references, on_step, listen))
            progress.advance(task)
    return Report(rows)


def _show(report: Report) -> None:
    console = Console(highlight=False)
    if console.is_terminal:
        text.render(report, console)
    else:
        width = console.width if os.environ.get("COLUMNS") else PIPE_WIDTH
        print(text.plain(report, width), end="")
