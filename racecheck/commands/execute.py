"""`racecheck exec`: audit any program, child processes too, without changing it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import racecheck
from racecheck.commands import options
from racecheck.errors import UsageError
from racecheck.injected import FOUND, OPTIONS, Options
from racecheck.provider import CAPTURES, DEVICES
from racecheck.report.channel import VARIABLE
from racecheck.words import counted

_INJECT = Path(racecheck.__file__).parent / "inject"


def execute(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND...", help="The program and its arguments.")
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            parser=options.one_of(DEVICES),
            metavar="NAME",
            help="cuda, or virtual: the program then needs no GPU.",
        ),
    ] = "cuda",
    lag: Annotated[
        str | None,
        typer.Option(parser=options.lag, metavar="L", help="Virtual device: latest, eager or seed:N."),
    ] = None,
    capture: Annotated[
        str,
        typer.Option(
            parser=options.one_of(CAPTURES), metavar="NAME", help="auto, cupti or hooks: how calls are seen."
        ),
    ] = "auto",
    operators: Annotated[
        bool, typer.Option("--operators", help="See every PyTorch operation: races on device memory too.")
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Know silent host writes by their line, not their stretch.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write what each process came to, a line of JSON each."),
    ] = None,
    env: Annotated[
        bool, typer.Option("--env", help="Print the environment that does the same for any later command.")
    ] = False,
) -> int:
    """Run COMMAND under audit; it and its child processes stay unchanged.

    Exit code 66: a race, a stale operand or a hang in some process. Else the program's own.
    """
    if lag is not None and device != "virtual":
        raise UsageError(
            f"racecheck exec: --lag {lag}: only the virtual device is late on purpose; leave it out"
        )
    settings = Options(device, lag or "latest", capture, operators, exact)
    if env:
        for name, value in _environment(settings).items():
            print(f"export {name}={shlex.quote(value)}")
        return 0
    if not command:
        raise UsageError("racecheck exec: no command is given; write: racecheck exec -- python script.py")
    with tempfile.TemporaryDirectory(prefix="racecheck-") as folder:
        begun = Path(folder) / "begun"
        begun.mkdir()
        lines = report or Path(folder) / "audits"
        _empty(lines)
        settings = replace(settings, begun=str(begun))
        code = _run(command, {**os.environ, **_environment(settings), VARIABLE: str(lines.absolute())})
        lost = [path.read_text("utf-8") for path in sorted(begun.iterdir())]
        return _tell(_audits(lines), lost, code)


def _audits(lines: Path) -> list[dict[str, Any]]:
    """What the processes came to; a line that was cut short is the one of a process that was lost."""
    audits = []
    for line in lines.read_text("utf-8", "replace").split("\n"):
        with suppress(ValueError):
            audits.append(json.loads(line))
    return audits


def _environment(settings: Options) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(_INJECT), os.environ.get("PYTHONPATH"))))
    return {"RACECHECK": "1", OPTIONS: settings.to_environment(), "PYTHONPATH": path}


def _empty(path: Path) -> None:
    try:
        path.write_bytes(b"")
    except OSError as error:
        raise UsageError(
            f"racecheck exec: --report {path}: cannot be written ({error.strerror}); name another file"
        ) from None


def _run(command: list[str], environment: dict[str, str]) -> int:
    """The program's exit code, as a shell has it; an interrupt is the program's to answer."""
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise UsageError(
            f"racecheck exec: {command[0]}: cannot be run ({error.strerror}); name a program"
        ) from None
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def _tell(audits: list[dict[str, Any]], lost: list[str], code: int) -> int:
    found = [audit for audit in audits if audit["verdict"] not in ("clean", "inconclusive")]
    for audit in audits:
        _say(f"process {audit['process']}\n{audit['report'].rstrip()}")
    for process in lost:
        _say(f"process {process}\nno verdict: it was killed, or has become another program (exec)")
    if not audits and not lost:
        _say(
            "no process used the GPU through PyTorch, or none that racecheck was imported into (python -I, "
            "a cleaned environment), so nothing was judged; racecheck doctor says what can be seen here"
        )
        return code
    races = {(audit["process"], finding["fingerprint"]) for audit in found for finding in audit["findings"]}
    processes = len({audit["process"] for audit in audits})
    _say(f"{counted(len(races), 'finding')} in {counted(processes, 'audited process', 'audited processes')}")
    return FOUND if found else code


def _say(text: str) -> None:
    print(f"\nracecheck: {text}", file=sys.stderr)
