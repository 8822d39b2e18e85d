"""`racecheck bisect`: the commit that brought a race, the key that opens it, and what a run says of it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from racecheck.bisect.options import CONFIRM, TIMEOUT, Asked
from racecheck.bisect.start import bisect
from racecheck.bisect.state import Record
from racecheck.commands import inside
from racecheck.commands.paths import typed_path
from racecheck.words import few

app = typer.Typer(
    name="bisect", help="Find what brought a race.", rich_markup_mode=None, no_args_is_help=False
)


@app.callback()
def _bisect() -> None:
    pass


@app.command()
def commits(
    repo: Annotated[
        Path, typer.Option("--repo", parser=typed_path, metavar="PATH", help="The git repository.")
    ] = Path(),
    good: Annotated[str | None, typer.Option(metavar="REV", help="A commit without the race.")] = None,
    bad: Annotated[str | None, typer.Option(metavar="REV", help="A later commit that has it.")] = None,
    scenario: Annotated[
        Path | None,
        typer.Option(
            parser=typed_path, metavar="FILE", help="Run this scenario, as it is now, at each commit."
        ),
    ] = None,
    setup: Annotated[
        str | None, typer.Option(metavar="CMD", help="Shell command to run first at each commit.")
    ] = None,
    paths: Annotated[
        list[str] | None,
        typer.Option(metavar="SPEC", help="Only commits that touch this path; may be repeated."),
    ] = None,
    first_parent: Annotated[
        bool | None, typer.Option("--first-parent", help="Take a merge as one change.")
    ] = None,
    confirm: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, metavar="N", help=f"Runs that must be good; for a real GPU. [default: {CONFIRM}]"
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help=f"Time limit of one run; then the commit is skipped. [default: {TIMEOUT:.0f}]",
        ),
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option(metavar="F", help="Follow this race of the bad end, not its first new one.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(parser=typed_path, metavar="FILE", help="Write the report to FILE too.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(parser=typed_path, metavar="FILE", help="Write a log for git bisect replay to FILE."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the bisection that was interrupted here.")
    ] = False,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- CMD...]", help="Run this instead of a scenario; its exit code decides."),
    ] = None,
) -> int:
    """Find the first commit that has a race, in a worktree of its own.

    Exit code 0: found. 3: skipped commits hide it; the report lists which it may be. 2: an option, the
    repository or one of the ends is wrong. 130: interrupted; --resume goes on.
    """
    asked = Asked(
        good=good,
        bad=bad,
        scenario=scenario,
        command=command or [],
        setup=setup,
        paths=paths or [],
        first_parent=first_parent,
        confirm=confirm,
        timeout=timeout,
        fingerprint=fingerprint,
        output=output,
        log=log,
    )
    began = time.monotonic()

    def on_step(record: Record, left: int | None) -> None:
        steps = "" if left is None else f", about {left} step{'s' if left != 1 else ''} left"
        clock = f"{time.monotonic() - began:.0f} s in all{steps}"
        print(
            f"{record.commit[:10]} {record.verdict:4} {record.seconds:6.1f} s  {record.subject} "
            f"[{record.reason}] ({clock})",
            file=sys.stderr,
        )

    found, report = bisect(repo, asked, resume=resume, say=_say, on_step=on_step)
    print(report, end="")
    return 0 if found else 3


@app.command()
def config(
    good: Annotated[
        Path, typer.Argument(parser=typed_path, metavar="GOOD", help="A scenario without the race.")
    ],
    bad: Annotated[Path, typer.Argument(parser=typed_path, metavar="BAD", help="A scenario that has it.")],
    fingerprint: Annotated[
        str | None, typer.Option(metavar="F", help="Follow this race of BAD, not its first new one.")
    ] = None,
) -> int:
    """Find the keys of a scenario that open a race: a smallest set of those in which two files differ.

    Exit code 0: found. 2: a file is wrong, GOOD has the race or BAD has none.
    """
    from racecheck.bisect.config import bisect_keys, markdown

    def on_trial(keys: frozenset[tuple[str, ...]], outcome: str) -> None:
        names = few(sorted(".".join(key) for key in keys)) or "none"
        _say(f"bad values of {names}: {outcome}")

    print(markdown(bisect_keys(good, bad, fingerprint, on_trial), good, bad), end="")
    return 0


for question in (inside.steps, inside.delays, inside.slots, inside.syncs):
    app.command()(question)


def _say(line: str) -> None:
    print(line, file=sys.stderr)
