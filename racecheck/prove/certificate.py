"""What the premises that a run kept or broke are worth: the theorem, asked about this very configuration."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from racecheck.detect.premises import Broken, Premises
from racecheck.prove.explore import explore
from racecheck.prove.protocol import MOST_RUN_AHEAD, MOST_SLOTS, Protocol
from racecheck.words import counted

#: Each way of breaking a premise, as the setting of the protocol that says the same.
SETTINGS: dict[str, dict[str, Any]] = {
    "no-completion-wait": {"completion_wait": False},
    "wait-covers-copy": {"wait_covers_replay": False},
    "event-before": {"event": "before"},
    "event-other-stream": {"event": "other-stream"},
    "one-stays": {"all_rotate": False},
    "write-twice": {"write_twice": True},
    "drop-advance": {"drop": "advance"},
    "no-drop-wait": {"drop_wait": False},
    "shared-across-buckets": {"shared_counter": False},
}


@cache
def enough(protocol: Protocol) -> int | None:
    """The fewest slots, up to `MOST_SLOTS`, with which `protocol` is safe for every number of steps."""
    counts = range(1, MOST_SLOTS + 1)
    return next((n for n in counts if explore(replace(protocol, slots=n)).status == "proved"), None)


def certificate(premises: Premises) -> list[str]:
    """What can be promised beyond the run: a sentence, or one for each broken premise and what is left."""
    if premises.broken:
        return [*map(_broken, premises.broken), _what_is_left(premises)]
    if premises.unchecked is not None:
        return [f"certificate: not checked: {premises.unchecked}"]
    need, held = premises.assumed + 1, f"premises a-f held ({_seen(premises)})"
    if premises.status == "held":
        are = "slot is" if premises.slots == 1 else "slots are"
        return [f"certificate: {premises.slots} {are} enough for every number of steps: {held}"]
    have = counted(premises.slots, "slot")
    return [f"certificate: none: {have}, and run-ahead {premises.assumed} takes {need}; {held}"]


def _seen(premises: Premises) -> str:
    words = f"run-ahead {premises.run_ahead} observed"
    if premises.told or premises.assumed != premises.run_ahead:
        told = "assumed" if premises.told else "allowed by the slots"
        words += f", {premises.assumed} {told}"
    return words if premises.dropped else f"{words}, no plan dropped"


def _broken(broken: Broken) -> str:
    times = f", in {counted(broken.count, 'step')}" if broken.count > 1 else ""
    return f"premise ({broken.letter}) broken at {broken.where}: {broken.what}{times}"


def _what_is_left(premises: Premises) -> str:
    """How many slots would be enough for what the engine does."""
    slots, run_ahead = premises.slots, premises.assumed
    if run_ahead > MOST_RUN_AHEAD:
        return f"certificate: none: racecheck prove answers for a run-ahead up to {MOST_RUN_AHEAD}"
    settings: dict[str, Any] = {}
    for broken in premises.broken:
        settings |= SETTINGS[broken.how]
    need = enough(Protocol(run_ahead=run_ahead, **settings))
    if need is None:
        letters = ", ".join(f"({letter})" for letter in premises.letters)
        return (
            f"certificate: none: while {letters} is broken no slot count is safe with run-ahead {run_ahead}"
        )
    if need <= slots:
        return f"certificate: {counted(slots, 'slot')} will do with run-ahead {run_ahead} all the same"
    have = counted(slots, "slot")
    return f"certificate: none: {have}, and with run-ahead {run_ahead} this takes {need}"
