"""A sequence as a Python program that runs by itself, and as a report."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from textwrap import fill
from typing import Any

from racecheck.sequences.run import Outcome
from racecheck.sequences.story import StepSequence
from racecheck.sequences.target import Target
from racecheck.words import counted

_PROGRAM = """\
from racecheck.sequences import Ask, EngineProcess, StepSequence, Target, report

target = {target}
sequence = {sequence}

if __name__ == "__main__":
    with EngineProcess(target) as engine:
        print(report(engine.run(sequence, explain=True)))
"""


def program(target: Target, sequence: StepSequence) -> str:
    """Source that builds the engine of `target`, runs `sequence` on it and prints the report."""
    asks = "".join(f"        {_call(ask)},\n" for ask in sequence.asks)
    lines = [f"    asks=(\n{asks}    ),\n", f"    steps={sequence.steps},\n"]
    late = [name for name in ("delays", "lag") if any(getattr(sequence, name))]
    settings = [name for name in ("prefill_chunk", "lazy_capture") if getattr(sequence, name)]
    lines += [f"    {name}={getattr(sequence, name)},\n" for name in (*late, *settings)]
    return _PROGRAM.format(target=_call(target), sequence=f"StepSequence(\n{''.join(lines)})")


def _call(value: Any) -> str:
    """The call that makes the dataclass `value`, without what is so by default."""
    given = [
        f"{field.name}={getattr(value, field.name)!r}"
        for field in fields(value)
        if getattr(value, field.name) != _default(field)
    ]
    return f"{type(value).__name__}({', '.join(given)})"


def _default(field: Field[Any]) -> Any:
    return object() if field.default is MISSING else field.default


def report(outcome: Outcome, width: int = 110, most: int | None = None) -> str:
    """The verdict of one sequence and what it rests on, as text `width` columns wide.

    Of more findings than `most` the rest is named by buffer.
    """
    from racecheck.report.text import describe_finding, describe_premises

    parts = [f"verdict: {outcome.title}, after {counted(outcome.steps, 'step')}"]
    if outcome.message is not None:
        parts.append(outcome.message)
    told, rest = outcome.findings[:most], outcome.findings[most:] if most is not None else ()
    parts += [describe_finding(finding, width).rstrip() for finding in told]
    if rest:
        names = ", ".join(dict.fromkeys(f"{finding.kind} on {finding.buffer}" for finding in rest))
        more = f"{counted(len(rest), 'more finding')} (racecheck replay --all tells them): {names}"
        parts.append(fill(more, width, subsequent_indent="  "))
    events = [f"{count} {event}" for event, count in sorted(outcome.events.items())]
    moves = [f"  {move}: {count}" for move, count in outcome.moves.items()]
    checked = counted(outcome.rewrites, "rewrite")
    tested = f"{checked} checked, {outcome.open_windows} with the window open"
    parts.append("\n".join([tested, ", ".join(events), *moves]))
    premises = describe_premises(outcome.premises, outcome.verdict, width).rstrip()
    parts += [premises] if premises else []
    return "\n\n".join(parts)
