"""The command line: options in, a report and an exit code out.

Whatever is wrong with what was typed or with a file is one line on stderr and exit code 2.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import racecheck
from racecheck.commands import options
from racecheck.commands.bisect import app as bisect
from racecheck.commands.faults import faults, run_with
from racecheck.commands.litmus import litmus
from racecheck.commands.paths import typed_path
from racecheck.commands.prove import prove
from racecheck.commands.sequences import fuzz, replay
from racecheck.commands.traces import check as check_trace
from racecheck.commands.traces import convert, syncs
from racecheck.errors import RacecheckError, UsageError
from racecheck.report import Report, text
from racecheck.report.json import render
from racecheck.scenario.load import load_all
from racecheck.scenario.model import MOST_SLOTS, MOST_STEPS
from racecheck.scenario.run import (
    DEVICES,
    RUNNERS,
    Overrides,
    References,
    RowPlan,
    check,
    check_device,
    plan_all,
    run_row,
)

# Typer carries its own copy of click; its exceptions are reached through the one name that is public.
_ClickUsageError: Any = typer.BadParameter.__base__

#: Exit code of a bug in racecheck itself: 1 would read as a race.
INTERNAL_ERROR = 70
#: Columns of a report that goes to a file or a pipe, which have no width.
PIPE_WIDTH = 120

app = typer.Typer(
    name="racecheck",
    help="Find host/device staging races in LLM inference engines, from ordering instead of luck.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with `arguments` (those of the process by default); its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a report must not die of a terminal's encoding
    try:
        args = None if arguments is None else list(arguments)
        code = app(args=args, prog_name="racecheck", standalone_mode=False)
        print(end="", flush=True)
        return code if isinstance(code, int) else 0
    except _ClickUsageError as error:
        return _complain(_one_line(error))
    except RacecheckError as error:
        line = " ".join(str(error).split())
        return _complain(f"racecheck run: {line}" if line.startswith("--") else line)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except (OSError, SystemExit) as error:
        # Files are read under errors of their own: what is left is stdout, which must stay quiet at exit.
        # Typer answers a closed pipe by SystemExit(1), which would read as a race.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, OSError) or isinstance(error, BrokenPipeError):
            return 141
        return _complain(f"racecheck: stdout: {error.strerror}; write the report somewhere else")
    except typer.Exit as error:
        return error.exit_code
    except Exception:
        traceback.print_exc()
        print("racecheck: this is a bug in racecheck, not a verdict; please report it", file=sys.stderr)
        return INTERNAL_ERROR


def _complain(line: str) -> int:
    print(line, file=sys.stderr)
    return 2


def _one_line(error: Any) -> str:
    """What Typer found wrong with the options, and what to write instead, without its usage text."""
    command = "racecheck" if error.ctx is None else error.ctx.command_path
    message = " ".join(error.format_message().split()).removeprefix("Invalid value for ").rstrip(".")
    message = re.sub(r"^'(--[\w-]+)':", r"\1:", message)
    message = re.sub(r"^'?\[?[A-Z]+\]?(\.\.\.)?'?: ", "", message)
    message = message.partition(" Did you mean")[0].partition(" (Possible")[0].rstrip(".")
    if message.startswith("Missing argument 'PATH"):
        message = "no PATH is given; name a file or a folder"
    if "; " not in message:
        possible = getattr(error, "possibilities", None)
        message += f"; write {' or '.join(possible)}" if possible else f"; see {command} --help"
    return f"{command}: {message[:1].lower()}{message[1:]}"


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"racecheck {racecheck.__version__}")
        raise typer.Exit


@app.callback()
def _racecheck(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
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
    runner: Annotated[
        str | None,
        typer.Option(parser=options.one_of(RUNNERS), metavar="NAME", help="Only main, piecewise or eager."),
    ] = None,
    device: Annotated[
        str, typer.Option(parser=options.one_of(DEVICES), metavar="NAME", help="virtual or cuda.")
    ] = "virtual",
    lag: Annotated[
        str | None,
        typer.Option(parser=options.lag, metavar="L", help="latest, eager, seed:N or a token."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(parser=options.whole(0, 2**32 - 1), metavar="S", help="Draw everything from S."),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(parser=options.whole(1, MOST_STEPS), metavar="N", help="Run N engine steps at most."),
    ] = None,
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
) -> int:
    """Run scenarios and check what they expect.

    Exit code 0: all as expected (with --slots: clean). 1: a row is not as expected (with --slots: a race,
    a stale operand or a hang). 2: an option or a file is wrong. 3: nothing was put to the test.
    """
    files, wrong = load_all(paths, check)
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 2
    overrides = Overrides(
        slots=slots, runner=runner, device=device, lag=lag, seed=seed, steps=steps, exact=exact
    )
    if fault is not None:
        if slots or runner or trace or json or device != "virtual":
            raise UsageError(
                f"--fault {fault}: brings its own slots and runners, on the virtual device; "
                "leave out --slots, --runner, --device, --trace and --json"
            )
        return run_with(fault, files, overrides)
    plans = plan_all(files, overrides)
    check_device(device, lag, exact)
    with _trace_file(trace, plans) as file_of_trace:
        report = _run_rows(plans, file_of_trace)
    if json:
        print(render(report), end="")
    else:
        _show(report)
    return report.exit_code


app.command()(faults)
app.command()(litmus)
app.command("check")(check_trace)
app.command()(syncs)
app.command()(convert)
app.command()(fuzz)
app.command()(replay)
app.command()(prove)
app.add_typer(bisect)


@contextmanager
def _trace_file(path: Path | None, plans: Sequence[RowPlan]) -> Iterator[IO[str] | None]:
    """Where the trace goes, if anywhere; what cannot be written may show only when the disk is full."""
    if path is None:
        yield None
        return
    if len(plans) != 1 or plans[0].device != "virtual":
        raise UsageError(
            "--trace: a trace is that of one row on the virtual device; choose one with --runner and --slots"
        )
    try:
        with path.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise UsageError(f"--trace {path}: cannot be written ({error.strerror}); name another file") from None


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


def _run_rows(plans: Sequence[RowPlan], trace: IO[str] | None) -> Report:
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

            rows.append(run_row(plan, references, on_step, trace))
            progress.advance(task)
    return Report(rows)


def _show(report: Report) -> None:
    console = Console(highlight=False)
    if console.is_terminal:
        text.render(report, console)
    else:
        width = console.width if os.environ.get("COLUMNS") else PIPE_WIDTH
        print(text.plain(report, width), end="")
