"""`racecheck litmus`: judge litmus programs and compare with what they expect."""

from __future__ import annotations

import json as jsonlib
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from racecheck.commands import options
from racecheck.commands.litmus_cuda import on_cuda
from racecheck.commands.outputs import HtmlOption, reserve, save
from racecheck.commands.paths import typed_path
from racecheck.detect.advice import advise
from racecheck.errors import LitmusError, UnsupportedOperation, UsageError
from racecheck.litmus import Judgement, judge, load
from racecheck.provider import DEVICES

FORMAT = "racecheck-litmus/1"


def litmus(
    paths: Annotated[
        list[Path],
        typer.Argument(parser=typed_path, metavar="PATH", help="Litmus files, or folders of them."),
    ],
    explain: Annotated[bool, typer.Option("--explain", help="Print the findings of every file.")] = False,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Run every schedule of each program on the virtual device too.")
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(
            parser=options.one_of(DEVICES), metavar="NAME", help="Run each program on it: virtual or cuda."
        ),
    ] = None,
    tries: Annotated[
        int,
        typer.Option(parser=options.whole(1, 10_000), metavar="N", help="Runs of each program on a GPU."),
    ] = 50,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    html: HtmlOption = None,
) -> int:
    """Judge litmus programs: a line per file with verdict, expectation and ok or FAIL.

    Exit code 0: every verdict is the expected one. 1: one is not, or a schedule of a program without a race
    shows wrong bytes, or a GPU another verdict than the program. 2: a file is malformed, or there is no GPU.
    """
    reserve("--html", html)
    judged: list[Judgement] = []
    malformed: list[str] = []
    for path in find(paths):
        try:
            judged.append(judge(load(path)))
        except LitmusError as error:
            malformed.append(str(error))
    if device == "cuda":
        if virtual or explain or html:
            raise UsageError(
                "litmus: --device cuda has a report of its own; leave out --virtual, --explain and --html"
            )
        agree = on_cuda(judged, tries, json=json)
        for line in malformed:
            print(line, file=sys.stderr)
        return 2 if malformed else int(not agree)
    runs = [on_device(each) for each in judged] if virtual or device else [None] * len(judged)
    if html is not None:
        save("--html", html, page(", ".join(map(str, paths)), judged))
    if json:
        print(jsonlib.dumps(as_dict(judged, runs), indent=2, ensure_ascii=False))
    else:
        _show(judged, runs, explain)
    for line in malformed:
        print(line, file=sys.stderr)
    agree = all(each.agrees and (run is None or run.agrees) for each, run in zip(judged, runs, strict=True))
    return 2 if malformed else int(not agree)


@dataclass(frozen=True)
class DeviceRun:
    """What the schedules of one program showed, in words; `agrees` unless that contradicts the verdict."""

    text: str
    agrees: bool
    shown: Any = None  # racecheck.litmus.schedules.Shown; None when PyTorch cannot say the program


def on_device(judgement: Judgement) -> DeviceRun:
    """Run every schedule of the program on the virtual device."""
    from racecheck.litmus.schedules import show

    try:
        shown = show(judgement.program)
    except UnsupportedOperation as error:
        return DeviceRun(str(error).removeprefix(f"{judgement.program.path}: "), True)
    return DeviceRun(str(shown), judgement.verdict == "RACE" or not shown.wrong, shown)


def find(paths: Iterable[Path]) -> list[Path]:
    """The `.litmus` files at `paths`, each once; those of a folder by name.

    Raises:
        UsageError: a path does not exist, or a folder holds none.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inside = sorted(path.rglob("*.litmus"))
            if not inside:
                raise UsageError(f"{path}:1: holds no .litmus file; name a folder that does")
            found.update(dict.fromkeys(inside))
        elif path.exists():
            found[path] = None
        else:
            raise UsageError(f"{path}:1: does not exist; name a .litmus file or a folder of them")
    return list(found)


def _show(judged: list[Judgement], runs: Sequence[DeviceRun | None], explain: bool) -> None:
    from racecheck.report.text import describe_finding

    width = max((len(each.program.path) for each in judged), default=0)
    for each, run in zip(judged, runs, strict=True):
        program = each.program
        outcome = "ok" if each.agrees else f"FAIL, expected {program.expect}"
        print(f"{program.path:{width}}  {each.verdict:5}  {outcome}")
        if run is not None:
            print(f"  {'device' if run.agrees else 'FAIL'}: {run.text}")
        if explain:
            for finding in advised(each):
                print("  " + describe_finding(finding).rstrip().replace("\n", "\n  "))
    agree = sum(each.agrees for each in judged)
    print(f"\n{agree} of {len(judged)} {'program agrees' if len(judged) == 1 else 'programs agree'}")


def page(title: str, judged: Sequence[Judgement]) -> str:
    """All judgements as an HTML page."""
    from racecheck.report import html
    from racecheck.report.drawing import take

    chapters = [
        html.Chapter(
            title=each.program.path,
            verdict=each.verdict.lower().replace("safe", "clean"),
            settings={"title": each.program.title or "-", "source": each.program.source or "-"},
            expected="yes" if each.agrees else f"{each.program.expect} (not met)",
            findings=advised(each),
            pictures=take(each.trace, each.findings),
            replay=shlex.join(["racecheck", "litmus", "--explain", each.program.path]),
        )
        for each in judged
    ]
    return html.page(title, chapters)


def describe_divergence(diverged: tuple[int, dict[int, str | None]]) -> str:
    """Where ranks first issue different collectives, in one line."""
    calls = ", ".join(f"rank {rank}: {name or 'nothing'}" for rank, name in sorted(diverged[1].items()))
    return f"ranks differ in collective {diverged[0] + 1}: {calls}"


def advised(judgement: Judgement) -> list[Any]:
    """The findings with reasons and repairs."""
    for finding in judgement.findings:
        advise(judgement.trace, finding)
    return judgement.findings


def as_dict(judged: list[Judgement], runs: Sequence[DeviceRun | None]) -> dict[str, Any]:
    """All judgements as plain data."""
    from racecheck.report.json import finding_dict

    programs = [
        {
            "path": each.program.path,
            "title": each.program.title,
            "source": each.program.source,
            "verdict": each.verdict,
            "expected": each.program.expect,
            "ok": each.agrees,
            "findings": [finding_dict(finding) for finding in advised(each)],
            "diverged": None if each.diverged is None else describe_divergence(each.diverged),
            **({} if run is None else {"device": _run_dict(run)}),
        }
        for each, run in zip(judged, runs, strict=True)
    ]
    return {"format": FORMAT, "agree": sum(each.agrees for each in judged), "programs": programs}


def _run_dict(run: DeviceRun) -> dict[str, Any]:
    return {"ok": run.agrees, "text": run.text} | ({} if run.shown is None else asdict(run.shown))
