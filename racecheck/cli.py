"""The command line: options in, a report and an exit code out.

Whatever is wrong with what was typed or with a file is one line on stderr and exit code 2.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import racecheck
from racecheck.commands.baseline import app as baseline
from racecheck.commands.bisect import app as bisect
from racecheck.commands.doctor import doctor
from racecheck.commands.execute import execute
from racecheck.commands.explain import explain
from racecheck.commands.faults import faults
from racecheck.commands.fuzz import fuzz
from racecheck.commands.litmus import litmus
from racecheck.commands.matrix import matrix
from racecheck.commands.prove import prove
from racecheck.commands.replay import replay
from racecheck.commands.run import run
from racecheck.commands.traces import check as check_trace
from racecheck.commands.traces import convert, syncs
from racecheck.errors import NothingFound, RacecheckError

# Typer carries its own copy of click; its exceptions are reached through the one name that is public.
_ClickUsageError: Any = typer.BadParameter.__base__

#: Exit code of a bug in racecheck itself: 1 would read as a race.
INTERNAL_ERROR = 70

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
    except NothingFound as error:
        _complain(" ".join(str(error).split()))
        return 3
    except RacecheckError as error:
        line = " ".join(str(error).split())
        command = next(iter(sys.argv[1:] if arguments is None else arguments))
        return _complain(f"racecheck {command}: {line}" if line.startswith("--") else line)
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


#: What Typer's types say of a value, and what it means.
_PLAINLY = (
    (r"Input should be greater than or equal to (\S+)", r"must be \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"must be \1 or less"),
    (r"Input should be a valid integer.*", "must be a whole number"),
    (r"Input should be a valid number.*", "must be a number"),
)


def _one_line(error: Any) -> str:
    """What Typer found wrong with the options, and what to write instead, without its usage text."""
    command = "racecheck" if error.ctx is None else error.ctx.command_path
    message = " ".join(error.format_message().split()).removeprefix("Invalid value for ").rstrip(".")
    message = re.sub(r"^'(--?[\w-]+)':", r"\1:", message)
    for theirs, ours in _PLAINLY:
        message = re.sub(theirs, ours, message)
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


app.command()(run)
app.command()(faults)
app.command()(litmus)
app.command("check")(check_trace)
app.command()(syncs)
app.command()(convert)
app.command()(fuzz)
app.command()(replay)
app.command()(prove)
app.command("exec")(execute)
app.command()(doctor)
app.add_typer(baseline)
app.command()(matrix)
app.command()(explain)
app.add_typer(bisect)
