"""The abstract protocol: what of a real engine decides whether a slot may be rewritten.

One host plans steps 0, 1, 2 ... in order. Planning step n writes its slot and issues the copy that reads it
(on the plan stream); submitting it issues the replay that reads the slot as well, behind that copy, on the
compute stream. A plan may be dropped instead, once a step, as an engine that plans one step ahead does. The
host waits for steps in order, and plans step n only after step n - d, where d = run-ahead + 1.

A write races if a copy or replay of its slot is not behind a wait of the host. Whether that one happens to
be done is not asked: nothing in the protocol depends on when the device gets on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: The sizes that are worth asking about; both methods answer all of them within seconds.
MOST_SLOTS = 8
MOST_RUN_AHEAD = 7

Event = Literal["after", "before", "other-stream"]
Drop = Literal["give-back", "advance", "none"]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """One configuration. The defaults keep every premise; plans may be dropped.

    `slots` is 1 or more, `run_ahead` 0 or more: how many steps the host may be planning beyond the last one
    it waited for. The letters are those of the premises in `PREMISES`.
    """

    slots: int = 2
    run_ahead: int = 1
    completion_wait: bool = True  # a: False lets a step count as complete without the wait
    wait_covers_replay: bool = True  # b: False records the event after the copy, before the replay
    event: Event = "after"  # c: against the step's readers; "other-stream" is one with no reader on it
    all_rotate: bool = True  # d: False leaves one buffer in one place
    write_twice: bool = False  # d: each step stages one buffer twice
    drop: Drop = "give-back"  # e: what a dropped plan does to the slot counter; "none" drops no plan
    drop_wait: bool = True  # e: False drops a plan without waiting for the copies it issued
    shared_counter: bool = True  # f: False gives each of two buckets a counter, and one buffer to both
    wait_own_event: bool = False  # wait for the slot's own event before each write
    one_stream: bool = False  # copies and replays on one stream, as a runner without pre-planning

    @property
    def d(self) -> int:
        """Step n is planned once step n - d has been waited for."""
        return self.run_ahead + 1

    @property
    def places(self) -> int:
        """How many places the buffer that rotates least has."""
        return self.slots if self.all_rotate else 1

    @property
    def buckets(self) -> int:
        """How many slot counters there are."""
        return 1 if self.shared_counter else 2

    def broken(self) -> list[str]:
        """The premises that do not hold, each in words, starting with its letter."""
        held = {
            "a": self.completion_wait,
            "b": self.wait_covers_replay,
            "c": self.event == "after",
            "d": self.all_rotate and not self.write_twice,
            "e": self.drop == "none" or (self.drop == "give-back" and self.drop_wait),
            "f": self.shared_counter,
        }
        return [f"{letter}: {PREMISES[letter]}" for letter, holds in held.items() if not holds]


PREMISES = {
    "a": "the completion wait happens on every path",
    "b": "the wait covers the last reader of the slot: the copy, or the replay that reads it too",
    "c": "the event is recorded on the reader's stream, after the reader",
    "d": "every buffer rotates with the slot, and a step writes it once",
    "e": "a dropped plan gives its slot back, once its copies are waited for",
    "f": "a buffer shared by buckets rotates with all of them",
}
