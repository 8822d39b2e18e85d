"""The protocol as a transition relation over unbounded integers, for z3.

A transition is a whole plan with its outcome (run or drop), a completion wait, or a wait skipped. Reads are
known by labels that grow along their stream: the copy of step n's plan is 2n + 1, that of a plan for step n
which is dropped is 2n, the replay of step n is n. Streams retire in order, so "waited for up to label x" is
one number a stream, and the latest reader of each place is the only one that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, TypeAlias

import z3

from racecheck.prove.protocol import Protocol

#: z3 has no type information. A number is an unbounded integer in a proof, a bit vector in a bounded search.
Bool: TypeAlias = Any
Int: TypeAlias = Any
Sort = Callable[[str], Int]

#: What a transition does, as the values of `Choice.action`.
RUN, DROP, WAIT, SKIP = range(4)
ACTIONS = ("run", "drop", "wait", "skip")


@dataclass(frozen=True)
class State:
    """Unbounded integers; tuples have one for each bucket or place."""

    next: Int  # the step that is planned next
    done: Int  # the last step the host counts as complete, -1 at first
    copies: Int  # the host is behind all copies up to this label
    replays: Int  # the host is behind all replays up to this step
    dropped: Int  # plans of the next step dropped so far, 0 or 1
    turn: tuple[Int, ...]  # turns taken, by bucket
    copy: tuple[Int, ...]  # label of the latest copy that reads a place, -1 for none
    replay: tuple[Int, ...]  # step of the latest replay that reads a place, -1 for none
    taken: tuple[Int, ...]  # turn of the plan that left the latest copy in a place

    def variables(self) -> list[Int]:
        """All of them, in order."""
        flat: list[Int] = []
        for value in astuple(self):
            flat += value if isinstance(value, tuple) else [value]
        return flat


@dataclass(frozen=True)
class Choice:
    """What a transition leaves open."""

    action: Int
    bucket: Int


def state(protocol: Protocol, suffix: str, sort: Sort = z3.Int) -> State:
    """Fresh variables of `sort`, named after the fields of `State`, with `suffix`."""

    def many(name: str, n: int) -> tuple[Int, ...]:
        return tuple(sort(f"{name}{i}{suffix}") for i in range(n))

    places = protocol.places
    return State(
        next=sort("next" + suffix),
        done=sort("done" + suffix),
        copies=sort("copies" + suffix),
        replays=sort("replays" + suffix),
        dropped=sort("dropped" + suffix),
        turn=many("turn", protocol.buckets),
        copy=many("copy", places),
        replay=many("replay", places),
        taken=many("taken", places),
    )


def choice(suffix: str, sort: Sort = z3.Int) -> Choice:
    """Fresh variables for one transition."""
    return Choice(sort("action" + suffix), sort("bucket" + suffix))


def initial(protocol: Protocol, s: State) -> Bool:
    """Nothing planned, nothing waited for."""
    minus = [s.done, s.copies, s.replays, *s.copy, *s.replay, *s.taken]
    zero = [s.next, s.dropped, *s.turn]
    return z3.And(*(each == -1 for each in minus), *(each == 0 for each in zero))


def pick(index: Int, values: Sequence[Int]) -> Int:
    """`values[index]`."""
    out = values[-1]
    for i in reversed(range(len(values) - 1)):
        out = z3.If(index == i, values[i], out)
    return out


def place(protocol: Protocol, s: State, c: Choice) -> Int:
    """The place that a plan in the chosen bucket writes."""
    if protocol.places == 1:
        return 0
    return pick(c.bucket, s.turn) % protocol.slots


def may_plan(protocol: Protocol, s: State, c: Choice) -> Bool:
    """The host has taken step next - d as complete."""
    in_range = z3.And(c.bucket >= 0, c.bucket < protocol.buckets)
    return z3.And(in_range, s.done >= s.next - protocol.d)


def later(a: Int, b: Any) -> Int:
    """The larger one."""
    return z3.If(a >= b, a, b)


Covered = tuple[Int | int, Int | int]


def covered_by_step(protocol: Protocol, step: Int) -> Covered:
    """Labels of the copies and replays that the completion event of `step` covers."""
    one_stream = protocol.one_stream
    if protocol.event == "other-stream":
        return -1, -1
    if protocol.event == "before":
        return (2 * step if one_stream else 2 * step - 1), step - 1
    if not protocol.wait_covers_replay:
        return 2 * step + 1, (step - 1 if one_stream else -1)
    return 2 * step + 1, step


def covered_by_own(protocol: Protocol, copy: Int, replay: Int) -> Covered:
    """Labels that a place's own event covers, when its latest readers are `copy` and `replay`."""
    before = copy / 2 - 1  # the last step before the one whose plan issued the copy
    if protocol.event == "other-stream":
        return -1, -1
    if protocol.event == "before":
        return (copy - 1 if protocol.one_stream else 2 * before + 1), before
    on_stream = before if protocol.one_stream else -1
    if not protocol.wait_covers_replay:
        return copy, on_stream
    return copy, later(replay, on_stream)


def after_own_wait(protocol: Protocol, s: State, p: Int) -> tuple[Int, Int]:
    """What the host is behind when it writes place `p`."""
    if not protocol.wait_own_event:
        return s.copies, s.replays
    copies, replays = covered_by_own(protocol, pick(p, s.copy), pick(p, s.replay))
    return later(s.copies, copies), later(s.replays, replays)


def races(protocol: Protocol, s: State, c: Choice) -> Bool:
    """A plan may be made, and one of its writes is not ordered behind a reader of its place."""
    p = place(protocol, s, c)
    copies, replays = after_own_wait(protocol, s, p)
    race = z3.Or(pick(p, s.copy) > copies, pick(p, s.replay) > replays)
    if protocol.write_twice and not (protocol.wait_own_event and protocol.event == "after"):
        race = z3.BoolVal(True)  # the copy of the first write has just been issued
    return z3.And(may_plan(protocol, s, c), race)
