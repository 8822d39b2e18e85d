"""`racecheck replay`: one sequence again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from racecheck.errors import UsageError

if TYPE_CHECKING:  # the engine imports torch, and Hypothesis is not small either
    from racecheck.sequences.run import Outcome

WIDTH = 110


def replay(
    token: Annotated[
        str, typer.Argument(metavar="TOKEN", help="What `racecheck fuzz` printed: s1. and letters.")
    ],
    device: Annotated[str, typer.Option(metavar="NAME", help="virtual or cuda.")] = "virtual",
    source: Annotated[
        bool, typer.Option("--program", help="Print a Python program that does the same, and run nothing.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Tell every finding, not the first alone.")
    ] = False,
) -> int:
    """Run one sequence again and print its report: the same one on every machine.

    Exit code 0: clean. 1: a finding. 2: this is no token. 3: nothing was put to the test.
    """
    from racecheck.scenario.plan import check_device
    from racecheck.sequences import EngineProcess, parse_token, program
    from racecheck.sequences.serial import witness

    known_device(device)
    target, sequence = parse_token(token.strip())
    check_device(device)
    if source:
        print(program(target, sequence), end="")
        return 0
    print(f"{target.name}{f' with {target.fault}' if target.fault else ''}: {sequence}")
    if device == "cuda":
        from racecheck.sequences.on_gpu import replay_here

        replayed = replay_here(target, sequence)
        print(replayed.told)
        return {"clean": 0, "inconclusive": 3}.get(replayed.verdict, 1)
    with EngineProcess(target) as engine:
        outcome = engine.run(sequence, explain=True)
    print(describe(outcome, None if everything else 1))
    print(f"\n{witness(target, sequence, outcome.tokens)}")
    return {"clean": 0, "inconclusive": 3}.get(outcome.verdict, 1)


def known_device(device: str) -> None:
    """`UsageError` for a device that there is nowhere."""
    from racecheck.provider import DEVICES

    if device not in DEVICES:
        raise UsageError(f"--device {device}: is not known; write {' or '.join(DEVICES)}")


def describe(outcome: Outcome, most: int | None = 1) -> str:
    """The report of one sequence, with `most` of its findings told in full."""
    from racecheck.sequences import report

    return report(outcome, WIDTH, most)
