"""What a campaign has put to the test: without that, no finding means nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from racecheck.sequences.run import Outcome


@dataclass
class Tally:
    """Sums over sequences: by buffer rewrites and open windows, by name moves and events."""

    sequences: int = 0
    steps: int = 0
    rewrites: Counter[str] = field(default_factory=Counter)
    open_windows: Counter[str] = field(default_factory=Counter)
    moves: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    premises: Counter[str] = field(default_factory=Counter)  # of the slot theorem: how they were, or broken

    def add(self, outcome: Outcome) -> None:
        """One more sequence, without a finding."""
        self.sequences += 1
        self.steps += outcome.steps
        for name, buffer in outcome.buffers.items():
            self.rewrites[name] += buffer.rewrites
            self.open_windows[name] += buffer.open_windows
        self.moves.update(outcome.moves)
        self.events.update(outcome.events)
        self.premises.update([] if outcome.premises is None else outcome.premises.summary)

    def merge(self, other: Tally) -> None:
        """Everything that `other` has counted, too."""
        self.sequences += other.sequences
        self.steps += other.steps
        for name in ("rewrites", "open_windows", "moves", "events", "premises"):
            mine: Counter[str] = getattr(self, name)
            for key, count in getattr(other, name).items():
                mine[key] += count  # update() would lose buffers that were never rewritten

    def missing(self, hoped_for: Iterable[str]) -> list[str]:
        """What was never put to the test: events that never came, and buffers that were never rewritten."""
        events = [f"never: {event}" for event in hoped_for if not self.events[event]]
        return [*events, *(f"never rewritten: {name}" for name, count in self.rewrites.items() if not count)]
