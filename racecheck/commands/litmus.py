"""`racecheck litmus`: judge litmus programs and compare with what they expect."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from racecheck.commands.paths import typed_path
from racecheck.detect.advice import advise
from racecheck.errors import LitmusError, UsageError
from racecheck.litmus import Judgement, judge, load

FORMAT = "racecheck-litmus/1"


def litmus(
    paths: Annotated[
        list[Path],
        typer.Argument(parser=typed_path, metavar="PATH", help="Litmus files, or folders of them."),
    ],
    explain: Annotated[bool, typer.Option("--explain", help="Print the findings of every file.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Judge litmus programs: a line per file with verdict, expectation and ok or FAIL.

    Exit code 0: every verdict is the expected one. 1: one is not. 2: a file is malformed.
    """
    judged: list[Judgement] = []
    malformed: list[str] = []
    for path in find(paths):
        try:
            judged.append(judge(load(path)))
        except LitmusError as error:
            malformed.append(str(error))
    if json:
        print(jsonlib.dumps(as_dict(judged), indent=2, ensure_ascii=False))
    else:
        _show(judged, explain)
    for line in malformed:
        print(line, file=sys.stderr)
    return 2 if malformed else int(not all(each.agrees for each in judged))


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


def _show(judged: list[Judgement], explain: bool) -> None:
    from racecheck.report.text import describe_finding

    width = max((len(each.program.path) for each in judged), default=0)
    for each in judged:
        program = each.program
        outcome = "ok" if each.agrees else f"FAIL, expected {program.expect}"
        print(f"{program.path:{width}}  {each.verdict:5}  {outcome}")
        if explain:
            for finding in advised(each):
                print("  " + describe_finding(finding).rstrip().replace("\n", "\n  "))
    agree = sum(each.agrees for each in judged)
    print(f"\n{agree} of {len(judged)} {'program agrees' if len(judged) == 1 else 'programs agree'}")


def describe_divergence(diverged: tuple[int, dict[int, str | None]]) -> str:
    """Where ranks first issue different collectives, in one line."""
    calls = ", ".join(f"rank {rank}: {name or 'nothing'}" for rank, name in sorted(diverged[1].items()))
    return f"ranks differ in collective {diverged[0] + 1}: {calls}"


def advised(judgement: Judgement) -> list[Any]:
    """The findings with reasons and repairs."""
    for finding in judgement.findings:
        advise(judgement.trace, finding)
    return judgement.findings


def as_dict(judged: list[Judgement]) -> dict[str, Any]:
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
        }
        for each in judged
    ]
    return {"format": FORMAT, "agree": sum(each.agrees for each in judged), "programs": programs}
