"""The same sequence with nothing planned ahead: what every request should get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from racecheck.report.result import compare
from racecheck.sequences.process import EngineProcess
from racecheck.sequences.story import StepSequence
from racecheck.sequences.target import Target
from racecheck.words import counted


@dataclass(frozen=True, kw_only=True)
class Serial(Target):
    """The engine of a target without its fault, one step at a time."""

    def build(self, slots: Mapping[str, int] | None = None) -> Any:
        """The engine, on the current device."""
        return Target(**asdict(self)).serial()


def witness(target: Target, sequence: StepSequence, tokens: Mapping[str, Any] | None) -> str:
    """One line: how many requests got other `tokens` than in a serial run. None: the run ended early."""
    if tokens is None:
        return "The run did not end as it should: tokens were not compared."
    with EngineProcess(Serial(**asdict(target))) as engine:
        expected = engine.run(sequence, explain=True).tokens
    differ = compare(dict(expected or {}), dict(tokens), set())
    requests = counted(len(sequence.asks), "request")
    which = f": {', '.join(each.request for each in differ)}" if differ else ""
    return f"Tokens of {len(differ)} of {requests} differ from a serial run{which}."
