"""`racecheck fuzz`: campaigns of generated sequences."""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from racecheck.commands.paths import typed_path
from racecheck.commands.replay import describe, known_device
from racecheck.errors import UsageError
from racecheck.scenario.model import MOST_SLOTS
from racecheck.words import counted

if TYPE_CHECKING:  # the engine imports torch, and Hypothesis is not small either
    from racecheck.sequences.campaign import Campaign, Result

FOLDER = Path(".racecheck") / "fuzz"
#: Examples of a campaign that only has a time to end.
MANY = 1_000_000


def fuzz(
    path: Annotated[Path, typer.Argument(parser=typed_path, metavar="SCENARIO", help="A scenario file.")],
    examples: Annotated[
        int | None, typer.Option(min=1, max=MANY, metavar="N", help="Sequences to try; 200 by default.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, metavar="M", help="Begin nothing new after M minutes.")
    ] = None,
    workers: Annotated[
        int, typer.Option("-n", min=0, max=1024, metavar="WORKERS", help="pytest-xdist workers; 0: none.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, metavar="S", help="Draw sequences from S.")] = 0,
    runner: Annotated[
        str | None, typer.Option(metavar="NAME", help="With the walks of this runner of the scenario.")
    ] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, max=MOST_SLOTS, metavar="N", help="Slots; run-ahead + 1 by default.")
    ] = None,
    run_ahead: Annotated[
        int | None, typer.Option(min=0, max=8, metavar="N", help="Instead of the scenario's.")
    ] = None,
    fault: Annotated[str, typer.Option(metavar="NAME", help="With this known fault, in its setting.")] = "",
    device: Annotated[str, typer.Option(metavar="NAME", help="virtual or cuda.")] = "virtual",
    database: Annotated[
        str,
        typer.Option(metavar="WHERE", help="Examples: a folder, redis://HOST:PORT/N, github:OWNER/REPO."),
    ] = "",
    folder: Annotated[
        Path, typer.Option(parser=typed_path, metavar="DIR", help="Where campaigns keep their results.")
    ] = FOLDER,
) -> int:
    """Search a scenario's engine for findings, with generated sequences of requests, steps and delays.

    A campaign that was broken off goes on when it is started again.

    Exit code 0: no finding, and what must happen sometimes has. 1: a finding. 2: an option or a file is
    wrong. 3: something was never put to the test.
    """
    from racecheck.scenario.load import load
    from racecheck.scenario.plan import check_device
    from racecheck.sequences.campaign import Campaign, save, so_far, todo
    from racecheck.sequences.database import open_database
    from racecheck.sequences.space import space_of
    from racecheck.sequences.target import target_of

    known_device(device)
    file = load(path)
    check_device(device)
    _must_show(fault)
    target = target_of(file, runner=runner, slots=slots, run_ahead=run_ahead, fault=fault)
    count = examples or (MANY if minutes else 200)
    campaign = Campaign(target, space_of(file, fault), seed, count, device)
    open_database(database)
    place = save(campaign, folder)
    if folder == FOLDER:  # no business of the repository that this may be
        (FOLDER.parent / ".gitignore").write_text("*\n", encoding="utf-8")
    before = campaign.shards - len(todo(place, campaign))
    until = None if minutes is None else time.time() + 60 * minutes
    try:
        _search(campaign, place, workers, database, until)
    except KeyboardInterrupt:
        done = campaign.shards - len(todo(place, campaign))
        print(
            f"interrupted after {done} of {campaign.shards} shards; the same command goes on", file=sys.stderr
        )
        raise
    total = so_far(place, (-1, *range(campaign.shards)))
    return _tell(campaign, total, before)


def _must_show(fault: str) -> None:
    """`UsageError` for a fault that no sequence can show."""
    from racecheck.faults import CATALOGUE

    if fault in CATALOGUE and CATALOGUE[fault].shows == "stall":
        raise UsageError(
            f"--fault {fault}: is a stall, which is no finding: its runs are clean, and slower than need be; "
            f"racecheck faults {fault} tells more"
        )


def _search(campaign: Campaign, folder: Path, workers: int, database: str, until: float | None) -> None:
    """Search what is left; on a terminal, a line on stderr says how far that is."""
    from racecheck.sequences.campaign import run_here, so_far, todo
    from racecheck.sequences.database import open_database
    from racecheck.sequences.shards import run_on_workers

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("shards done: {task.completed} of {task.total}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    left = len(todo(folder, campaign))
    with bar:
        task = bar.add_task(campaign.target.name, total=campaign.shards, completed=campaign.shards - left)
        advance = partial(_advance, bar, task)
        base = open_database(database)
        if workers:
            run_here(folder, campaign, base, 0.0, lambda _: None)  # what is known already
            problems = run_on_workers(folder, workers, database, until, advance)
            if problems:
                raise RuntimeError("\n".join(problems))
        else:
            run_here(folder, campaign, base, until, lambda result: advance())
        found = so_far(folder, range(campaign.shards)).tokens
        bar.update(task, description=f"{campaign.target.name}: {counted(len(found), 'finding')}")


def _advance(bar: Progress, task: TaskID) -> None:
    """One more shard is done; in a log, the first, second, fourth, eighth ... of them are told."""
    bar.advance(task)
    known = bar.tasks[0]
    done = int(known.completed)
    if bar.disable and done & (done - 1) == 0:
        print(f"{known.description}: {done} of {int(known.total or 0)} shards done", file=sys.stderr)


def _tell(campaign: Campaign, total: Result, before: int) -> int:
    """Print what came of it; the exit code."""
    tally, name = total.tally, campaign.target.name
    fault = f" with {campaign.target.fault}" if campaign.target.fault else ""
    resumed = f" ({before} from before)" if before else ""
    shards = f"{total.shards - 1} of {campaign.shards} shards{resumed}"
    where = " on a GPU" if campaign.device == "cuda" else ""
    runs = f"{total.runs} runs, those of shrinking included"
    print(f"{name}{fault}{where}: {shards}, {runs}, seed {campaign.seed}\n")
    for signature, token in sorted(total.tokens.items(), key=lambda item: item[1]):
        print(f"{_story(signature, token, campaign.device)}\n")
    print(_evidence(total))
    if total.tokens:
        print(f"\n{counted(len(total.tokens), 'finding')}")
        return 1
    unmet = [event for event in total.hoped_for if not tally.events[event]]
    if unmet or not tally.rewrites.total():
        never = ", never ".join(unmet) or "a staged buffer rewritten"
        print(f"\ninconclusive: never {never}; try more examples")
        return 3
    print("\nno finding")
    return 0


def _story(signature: str, token: str, device: str) -> str:
    """A finding, told from its token."""
    from racecheck.sequences import parse_token, program
    from racecheck.sequences.gpu_process import engine_on

    target, sequence = parse_token(token)
    with closing(engine_on(device, target)) as engine:
        outcome = engine.run(sequence, explain=True)
    again = f"racecheck replay {token}{' --device cuda' if device == 'cuda' else ''}"
    source = "\n".join(f"    {line}".rstrip() for line in program(target, sequence).splitlines())
    head = f"{sequence}; signature {signature}\n{again}"
    return f"{head}\n\n{describe(outcome)}\n\nThe same as a program:\n\n{source}"


def _evidence(total: Result) -> str:
    """What was put to the test: by buffer, by event, and from which state to which."""
    tally = total.tally
    lines = [f"{tally.sequences} sequences without a finding, {tally.steps} steps"]
    wide = max(map(len, tally.rewrites), default=0)
    for name, count in sorted(tally.rewrites.items()):
        lines.append(
            f"  {name:{wide}}  {count:6} rewrites, {tally.open_windows[name]:6} with the window open"
        )
    sometimes = {event: tally.events[event] for event in total.hoped_for}
    others = Counter({name: n for name, n in tally.events.items() if name not in sometimes})
    told = {
        "sometimes": ", ".join(f"{name} {n}" for name, n in sometimes.items()),
        "premises": _ranked(tally.premises),
        "events": _ranked(others),
        f"steps behind each other ({len(tally.moves)} in kind)": _ranked(tally.moves),
    }
    return "\n".join([*lines, *(f"{name}: {text}" for name, text in told.items() if text)])


def _ranked(counts: Counter[str]) -> str:
    most = counts.most_common(12)
    more = f", and {len(counts) - len(most)} more" if len(counts) > len(most) else ""
    return ", ".join(f"{name} {count}" for name, count in most) + more
