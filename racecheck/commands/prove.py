"""`racecheck prove`: are so many slots enough, for every number of steps?"""

from __future__ import annotations

import json as jsonlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from racecheck.commands.enactment import enactment, told
from racecheck.commands.options import one_of, whole
from racecheck.commands.paths import typed_path
from racecheck.commands.prove_engine import prove_engine
from racecheck.errors import UsageError
from racecheck.prove.answer import METHODS, Answer, ask, z3_method
from racecheck.prove.protocol import MOST_RUN_AHEAD, MOST_SLOTS, Drop, Event, Protocol

#: Columns of an answer that goes to a file or a pipe.
PIPE_WIDTH = 110


def _option(name: str, text: str, known: Sequence[str] = (), size: tuple[int, int] | None = None) -> Any:
    if known:
        return typer.Option(name, parser=one_of(known), metavar="NAME", help=text)
    if size:
        return typer.Option(name, parser=whole(*size), metavar="N", help=text)
    return typer.Option(name, help=text)


def prove(
    slots: Annotated[
        int, _option("--slots", "Slots that a step's buffers rotate through.", size=(1, MOST_SLOTS))
    ] = 2,
    run_ahead: Annotated[
        int, _option("--run-ahead", "Steps in flight while one is planned.", size=(0, MOST_RUN_AHEAD))
    ] = 1,
    no_completion_wait: Annotated[
        bool, _option("--no-completion-wait", "Premise a broken: a step may count as complete without it.")
    ] = False,
    wait_covers_copy: Annotated[
        bool, _option("--wait-covers-copy", "Premise b broken: the wait covers the copy, not the replay.")
    ] = False,
    event: Annotated[
        str,
        _option(
            "--event",
            "Premise c: after its readers, before, or other-stream.",
            ("after", "before", "other-stream"),
        ),
    ] = "after",
    one_stays: Annotated[bool, _option("--one-stays", "Premise d broken: a buffer does not rotate.")] = False,
    write_twice: Annotated[
        bool, _option("--write-twice", "Premise d broken: a step stages one buffer twice.")
    ] = False,
    drop: Annotated[
        str,
        _option(
            "--drop",
            "Premise e: a dropped plan's slot: give-back, advance; none: no drops.",
            ("give-back", "advance", "none"),
        ),
    ] = "give-back",
    no_drop_wait: Annotated[
        bool, _option("--no-drop-wait", "Premise e broken: a dropped plan's copies are not waited for.")
    ] = False,
    shared_across_buckets: Annotated[
        bool, _option("--shared-across-buckets", "Premise f broken: two buckets with a counter each.")
    ] = False,
    wait_own_event: Annotated[
        bool, _option("--wait-own-event", "Wait for the slot's own event before each write.")
    ] = False,
    one_stream: Annotated[bool, _option("--one-stream", "Copies and replays run on one stream.")] = False,
    method: Annotated[str, _option("--method", "both, z3 or explore.", METHODS)] = "both",
    table: Annotated[
        bool, _option("--table", "Every premise broken by itself, 1 to 4 slots, run-ahead 0 to 3.")
    ] = False,
    engine: Annotated[
        bool,
        _option("--engine", "Run the engine itself so, in every order of its host threads, some steps long."),
    ] = False,
    smt2: Annotated[
        Path | None,
        typer.Option(
            "--smt2", parser=typed_path, metavar="FILE", help="Write the proof's queries; - is stdout."
        ),
    ] = None,
    litmus: Annotated[
        Path | None,
        typer.Option(
            "--litmus",
            parser=typed_path,
            metavar="FILE",
            help="Write the race as a litmus program; - is stdout.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Prove that a slot is never rewritten while it may be read, for every number of steps, or show how.

    Exit code 0: proved (--table: every cell has an answer). 1: refuted. 2: an option is wrong. 3: unknown,
    or what one method says another contradicts. --engine: 0 clean, 1 a race (--table: 0 all cells agree).
    """  # fmt: skip
    protocol = Protocol(
        slots=slots, run_ahead=run_ahead, completion_wait=not no_completion_wait,
        wait_covers_replay=not wait_covers_copy, event=cast(Event, event), all_rotate=not one_stays,
        write_twice=write_twice, drop=cast(Drop, drop), drop_wait=not no_drop_wait,
        shared_counter=not shared_across_buckets, wait_own_event=wait_own_event, one_stream=one_stream,
    )  # fmt: skip
    if engine:
        if smt2 or litmus:
            raise UsageError("racecheck prove: --engine writes no --smt2 and no --litmus; leave them out")
        return prove_engine(protocol, method, table, json)
    if table:
        if protocol != Protocol() or smt2 or litmus:
            raise UsageError(
                "racecheck prove: --table sets all options itself; leave out all but --method and --json"
            )
        return _table(method, json)
    if [str(smt2), str(litmus)].count("-") + json > 1:
        raise UsageError(
            "racecheck prove: --json, --smt2 - and --litmus - all print; name a file for all but one"
        )
    answer = ask(protocol, method, brief=True)
    return _print(answer, json, smt2, litmus)


def _print(answer: Answer, json: bool, smt2: Path | None, litmus: Path | None) -> int:
    for option, path, text in (("--smt2", smt2, _smt2), ("--litmus", litmus, _litmus)):
        if path is not None:
            _write(option, path, text(answer))
    if json:
        from racecheck.prove.data import as_dict

        print(jsonlib.dumps({**as_dict(answer), "replay": enactment(answer)}, indent=2))
    elif "-" not in (str(smt2), str(litmus)):
        _show(answer)
    return answer.exit_code


def _smt2(answer: Answer) -> str:
    z3_method()
    from racecheck.prove.smt2 import smt2

    if answer.status != "proved":
        raise UsageError(
            f"racecheck prove: --smt2: {answer.status}, so there is no proof to write; leave it out"
        )
    return smt2(answer.protocol)


def _litmus(answer: Answer) -> str:
    from racecheck.prove.litmus import litmus

    if answer.counterexample is None:
        raise UsageError(
            f"racecheck prove: --litmus: {answer.status}, so there is no race to write; leave it out"
        )
    return litmus(answer.counterexample)


def _write(option: str, path: Path, text: str) -> None:
    if str(path) == "-":
        print(text, end="")
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"racecheck prove: {option} {path}: cannot be written ({error.strerror}); name another file"
        ) from None


def _show(answer: Answer) -> None:
    from racecheck.prove.timeline import render
    from racecheck.report.text import plainly

    console = Console(highlight=False)
    width = console.width if console.is_terminal or os.environ.get("COLUMNS") else PIPE_WIDTH
    if console.is_terminal:
        render(answer, console)
    else:
        print(plainly(lambda console: render(answer, console), width), end="")
    print(told(answer, width), end="")


def _table(method: str, json: bool) -> int:
    from racecheck.prove import table as tables
    from racecheck.prove.data import table_as_dict

    if method != "explore":
        z3_method()
    done = []
    if not json:
        print("\n".join(tables.heading()))
    for row in tables.rows(method):
        done.append(row)
        if not json:
            print(tables.line(row), flush=True)
    if json:
        print(jsonlib.dumps(table_as_dict(done), indent=2))
    else:
        print("\n".join(["", *tables.legend(done, method)]))
    unknown = any(answer.status == "unknown" for row in done for answer in row.answers.values())
    return 3 if unknown else 0
