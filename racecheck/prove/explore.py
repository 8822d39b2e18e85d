"""Exhaustive breadth-first search: the shortest race, or none in any reachable state."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from racecheck.prove.moves import Moves, State
from racecheck.prove.protocol import Protocol
from racecheck.prove.verdict import Action, Counterexample, Result, Step

#: Most states that are looked at, in about ten seconds. With one premise broken there are at most thousands;
#: with three, eight slots and an own-event wait there may be more.
MOST_STATES = 300_000

_Parents = dict[State, tuple[State, Action] | None]


def explore(protocol: Protocol, most_states: int = MOST_STATES) -> Result:
    """Visit every reachable state of `protocol`; "unknown" if there are more than `most_states`."""
    moves = Moves(protocol)
    start = moves.start()
    parents: _Parents = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        for action, after in moves.after(state):
            if action == "write" and (kind := moves.races(after)):
                path = [*_path(parents, state), (action, after)]
                return Result("refuted", "explore", _counterexample(moves, path, kind), states=len(parents))
            if after not in parents:
                parents[after] = (state, action)
                queue.append(after)
        if len(parents) > most_states:
            reason = f"more than {most_states:,} states; write --method z3"
            return Result("unknown", "explore", states=len(parents), reason=reason)
    return Result("proved", "explore", states=len(parents))


def _path(parents: _Parents, state: State) -> list[tuple[Action, State]]:
    path = []
    while (parent := parents[state]) is not None:
        path.append((parent[1], state))
        state = parent[0]
    return path[::-1]


def _counterexample(moves: Moves, path: list[tuple[Action, State]], kind: Action) -> Counterexample:
    steps = numbered(moves, path)
    reads = [i for i, each in enumerate(steps) if each.action == kind and each.slot == steps[-1].slot]
    return Counterexample(moves.protocol, steps, reads[-1])


def numbered(moves: Moves, path: Iterable[tuple[Action, State]]) -> tuple[Step, ...]:
    """The actions of `path`, each with its step: states do not say which one they are at."""
    steps: list[Step] = []
    planned, in_flight = 0, deque[Step]()
    slot = bucket = 0
    for action, state in path:
        if action in ("wait", "skip"):
            done = in_flight.popleft()
            steps.append(Step(action, done.step, done.slot, done.bucket))
            continue
        if action in ("own-wait", "write"):
            slot, bucket = moves.slot(state), state.bucket
        steps.append(Step(action, planned, slot, bucket))
        if action == "submit":
            in_flight.append(steps[-1])
            planned += 1
    return tuple(steps)
