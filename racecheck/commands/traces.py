"""`racecheck check`, `syncs` and `convert`: work on a recorded trace or a litmus program."""

from __future__ import annotations

import json as jsonlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from racecheck.commands import outputs
from racecheck.commands.paths import typed_path
from racecheck.detect import Detector
from racecheck.detect.advice import advise
from racecheck.detect.syncs import Sync, audit_syncs
from racecheck.errors import TraceError, TraceFileError, UsageError
from racecheck.litmus import load
from racecheck.litmus.export import export
from racecheck.litmus.judge import build_trace
from racecheck.report import perfetto
from racecheck.report.result import WRONG
from racecheck.trace.file import read, write
from racecheck.trace.records import Record
from racecheck.trace.repository import here
from racecheck.words import counted

_BEFORE = "judges what comes before it"
#: How the name of a timeline for Perfetto ends.
PERFETTO = ".perfetto.json"

_File = Annotated[
    Path,
    typer.Argument(parser=typed_path, metavar="FILE", help="A trace (racecheck-trace/1) or a .litmus file."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def check(
    file: _File,
    partial: Annotated[
        bool, typer.Option("--partial", help="Judge what can be read of a damaged file.")
    ] = False,
    json: _Json = False,
    sarif: outputs.SarifOption = None,
    markdown: outputs.MarkdownOption = None,
    baseline: outputs.BaselineOption = None,
    html: outputs.HtmlOption = None,
) -> int:
    """Judge a recorded trace.

    Exit code 0: clean, or nothing that the baseline does not know. 1: a race, a stale operand or a hang.
    2: the file is damaged. 3: inconclusive.
    """
    from racecheck.report.json import evidence_dict, finding_dict
    from racecheck.report.outcome import exit_code, outcome_of
    from racecheck.report.text import describe_finding

    known = outputs.load_baseline(baseline)
    outputs.reserve("--sarif", sarif)
    outputs.reserve("--markdown", markdown)
    outputs.reserve("--html", html)
    trace, damage = _trace(file, partial=partial, remedy=f"--partial {_BEFORE}")
    detector = _detect(trace, file)
    for finding in detector.findings:
        advise(trace, finding)
    replay = shlex.join(["racecheck", "check", str(file)])
    if html is not None:
        outputs.save("--html", html, _page(file, trace, detector, damage, replay))
    if damage:
        print(damage, file=sys.stderr)
    verdict = detector.verdict
    judged = outcome_of(str(file), verdict, detector.findings, detector.evidence, here())
    outcomes = outputs.compared([judged], known)
    if json:
        report = {
            "format": "racecheck-check/1",
            "verdict": verdict,
            "records": len(trace),
            "complete": damage is None,
            "findings": [finding_dict(finding) for finding in detector.findings],
            "evidence": evidence_dict(detector.evidence),
            **({} if known is None else {"known": outputs.reasons(outcomes)}),
        }
        print(jsonlib.dumps(report, indent=2, ensure_ascii=False))
    else:
        for finding in detector.findings:
            print(describe_finding(finding, replay=replay))
        for stall in detector.evidence.stalls:
            print(f"stall: {stall}")
        read_in, checked = counted(len(trace), "record"), detector.evidence.rewrites
        print(f"verdict: {verdict}; {read_in}, rewrites checked: {checked}")
    outputs.tell(outcomes, known, sys.stderr if json else sys.stdout)
    outputs.save_for_ci(outcomes, to_sarif=sarif, to_markdown=markdown)
    return 2 if damage else exit_code(outcomes)


def _page(file: Path, trace: Sequence[Record], detector: Detector, damage: str | None, replay: str) -> str:
    from racecheck.report.drawing import take
    from racecheck.report.html import Chapter, page

    chapter = Chapter(
        title=file.name,
        verdict=detector.verdict,
        settings={"records": str(len(trace))},
        problem=damage,
        findings=detector.findings,
        pictures=take(trace, detector.findings),
        evidence=detector.evidence,
        premises=detector.premises.result(),
        replay=replay,
    )
    return page(str(file), [chapter])


def syncs(file: _File, json: _Json = False) -> int:
    """Say of every wait and blocking copy whether it is needed: take it away, judge again.

    Exit code 0, whatever is found.
    """
    trace, _ = _trace(file)
    verdict = _detect(trace, file).verdict
    found = audit_syncs(trace)
    if json:
        print(
            jsonlib.dumps({"format": "racecheck-syncs/1", "syncs": [_sync(sync) for sync in found]}, indent=2)
        )
        return 0
    width = max((len(str(sync.loc)) for sync in found), default=0)
    for sync in found:
        why = f": without it {', '.join(sync.protects)} would race" if sync.protects else ""
        alone = "" if sync.protects or sync.together else f", but {sync.last} once the others that are so go"
        times = counted(sync.count, "time")
        print(f"{sync.loc!s:{width}}  {sync.what}, {times}: {sync.role}{why}{alone}")
    needed, free = (sum(bool(sync.protects) for sync in found), sum(sync.together for sync in found))
    print(f"\n{counted(len(found), 'synchronising line')}: {needed} needed, {free} can go together")
    if verdict in WRONG:
        print(f"The verdict as it is: {verdict}. Needed means: more would race without it.")
    return 0


def convert(
    source: Annotated[
        Path, typer.Argument(parser=typed_path, metavar="FROM", help="A trace, or a .litmus file.")
    ],
    target: Annotated[
        Path,
        typer.Argument(
            parser=typed_path,
            metavar="TO",
            help="A name in .litmus, in .perfetto.json (a timeline for Perfetto), or any other (a trace).",
        ),
    ],
) -> int:
    """Turn a litmus program into a trace, a trace into a litmus program where that can say it.

    Either becomes a timeline for Perfetto where the name of TO ends in .perfetto.json.
    """
    timeline = target.name.endswith(PERFETTO)
    if not timeline and (source.suffix == ".litmus") == (target.suffix == ".litmus"):
        raise UsageError(
            f"{target}: exactly one file must be a .litmus program; name the other kind, or one in {PERFETTO}"
        )
    trace, _ = _trace(source)
    _detect(trace, source)
    try:
        if timeline:
            target.write_text(perfetto.render(trace), encoding="utf-8")
        elif target.suffix == ".litmus":
            target.write_text(export(trace, path=source), encoding="utf-8")
        else:
            write(trace, target)
    except OSError as error:
        raise UsageError(f"{target}:1: cannot be written ({error.strerror}); name a file that can") from None
    return 0


def _trace(
    file: Path, *, partial: bool = False, remedy: str = f"`racecheck check --partial` {_BEFORE}"
) -> tuple[list[Record], str | None]:
    if file.suffix == ".litmus":
        return build_trace(load(file)), None
    return read(file, partial=partial, remedy=remedy)


def _detect(trace: Sequence[Record], file: Path) -> Detector:
    """Feed the trace; records that contradict each other are an error with their line."""
    detector = Detector()
    for number, record in enumerate(trace, 2):
        try:
            detector.feed(record)
        except TraceError as error:
            raise TraceFileError(f"{file}:{number}: {error}; the trace is not that of a run") from None
    return detector


def _sync(sync: Sync) -> dict[str, Any]:
    return {
        "what": sync.what,
        "file": sync.loc.file,
        "line": sync.loc.line,
        "function": sync.loc.function,
        "count": sync.count,
        "role": sync.role,
        "protects": sync.protects,
        "can_go_together": sync.together,
        "once_others_are_gone": sync.last or None,
    }
