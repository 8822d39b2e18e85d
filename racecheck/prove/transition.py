"""One transition of the symbolic protocol: which state follows which."""

from __future__ import annotations

from typing import Any

import z3

from racecheck.prove.protocol import Protocol
from racecheck.prove.symbolic import (
    DROP,
    RUN,
    SKIP,
    WAIT,
    Bool,
    Choice,
    Int,
    State,
    after_own_wait,
    covered_by_step,
    later,
    may_plan,
    pick,
    place,
)

#: A change of the fields of a `State`; a tuple field is changed as a whole.
Change = dict[str, Any]


def transition(protocol: Protocol, s: State, c: Choice, t: State) -> Bool:
    """`t` follows `s` by choice `c`."""
    moves = [z3.And(c.action == RUN, may_plan(protocol, s, c), _equal(s, t, run(protocol, s, c)))]
    if protocol.drop != "none":
        allowed = z3.And(c.action == DROP, may_plan(protocol, s, c), s.dropped == 0)
        moves.append(z3.And(allowed, _equal(s, t, drop(protocol, s, c))))
    pending = s.done + 1 < s.next
    moves.append(z3.And(c.action == WAIT, pending, _equal(s, t, wait(protocol, s))))
    if not protocol.completion_wait:
        moves.append(z3.And(c.action == SKIP, pending, _equal(s, t, {"done": s.done + 1})))
    return z3.Or(*moves)


def run(protocol: Protocol, s: State, c: Choice) -> Change:
    """Plan the next step and submit it."""
    p = place(protocol, s, c)
    return {
        **_plan(protocol, s, p, 2 * s.next + 1, c),
        "next": s.next + 1,
        "dropped": 0,
        "turn": _advanced(s, c),
        "replay": _put(s.replay, p, s.next),
    }


def drop(protocol: Protocol, s: State, c: Choice) -> Change:
    """Plan the next step and give the plan up."""
    p = place(protocol, s, c)
    change = _plan(protocol, s, p, 2 * s.next, c)
    if protocol.drop_wait:
        # Its copy is in the past from here on: who reads the place later than the host knows is unchanged.
        replays = later(change["replays"], s.next - 1) if protocol.one_stream else change["replays"]
        change = {"copies": later(change["copies"], 2 * s.next), "replays": replays}
    turn = _advanced(s, c) if protocol.drop == "advance" else s.turn
    return {**change, "dropped": 1, "turn": turn}


def wait(protocol: Protocol, s: State) -> Change:
    """The completion wait for the oldest step in flight."""
    step = s.done + 1
    copies, replays = covered_by_step(protocol, step)
    return {"done": step, "copies": later(s.copies, copies), "replays": later(s.replays, replays)}


def _plan(protocol: Protocol, s: State, p: Int, label: Int, c: Choice) -> Change:
    """Write place `p` and issue the copy `label`, which becomes its latest."""
    copies, replays = after_own_wait(protocol, s, p)
    return {
        "copies": copies,
        "replays": replays,
        "copy": _put(s.copy, p, label),
        "taken": _put(s.taken, p, pick(c.bucket, s.turn)),
    }


def _put(values: tuple[Int, ...], p: Int, value: Int) -> tuple[Int, ...]:
    if len(values) == 1:
        return (value,)
    return tuple(z3.If(p == i, value, old) for i, old in enumerate(values))


def _advanced(s: State, c: Choice) -> tuple[Int, ...]:
    if len(s.turn) == 1:
        return (s.turn[0] + 1,)
    return tuple(z3.If(c.bucket == i, old + 1, old) for i, old in enumerate(s.turn))


def _equal(s: State, t: State, change: Change) -> Bool:
    """`t` is `s` with `change`."""
    after = State(**{**vars(s), **change})
    return z3.And(*(new == value for new, value in zip(t.variables(), after.variables(), strict=True)))
