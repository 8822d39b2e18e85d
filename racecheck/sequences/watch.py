"""What a run went through: steps from bucket to bucket, and the events that a campaign hopes for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the engine imports torch, which takes seconds
    from racecheck.engine import Request

#: Events that a campaign without them has not put to the test; the second only where plans are made ahead.
SOMETIMES = ("batch changed", "buckets alternated")
AHEAD = ("pre-plan promoted", "pre-plan dropped")


class Watch:
    """Called with every batch of one run: `moves` from state to state, and `events`, are counted.

    A state is the walk of a step and the bucket it takes, `decode[8]` or `prefill[2x32]`. Batches of other
    engines than racecheck's own are looked at as far as they have `walk` and `entries` (each with an `id`).
    """

    def __init__(self, engine: Any) -> None:
        self.moves: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.steps = 0
        self._model = getattr(engine, "model", None)
        self._state = "start"
        self._walk = self._node = ""
        self._last: dict[str, tuple[str, frozenset[str]]] = {}  # walk -> its latest state and members
        self._steps_of: Counter[str] = Counter()

    def __call__(self, batch: Any) -> None:
        """One more step."""
        self.steps += 1
        walk = getattr(batch, "walk", None)
        if walk is None:
            return
        members = [entry.id for entry in batch.entries]
        self._joins(batch, members)
        self.events["prompt in chunks"] += any(getattr(entry, "partial", False) for entry in batch.entries)
        state, node = self._look(batch, walk, len(members))
        self.moves[f"{self._state} -> {state}"] += 1
        self._compare(walk, state, frozenset(members))
        self.events["yield to another walk"] += self._walk not in ("", walk)
        self.events["yield to another node"] += self._node not in ("", node)
        self._state, self._walk, self._node = state, walk, node

    def finish(self, requests: Sequence[Request], tokens: Mapping[str, Sequence[Any]]) -> None:
        """The run is over: who got everything, and who was cut short."""
        for request in requests:
            own = self._steps_of[request.id]
            self.events["finish"] += len(tokens.get(request.id, ())) >= request.new_tokens
            self.events["abort"] += own > 0 and own == request.cancel_after
            self.events["preempt"] += bool(request.preempt_after and own >= request.preempt_after)
            self.events["resume"] += bool(request.preempt_after and own > request.preempt_after)

    def _joins(self, batch: Any, members: Sequence[str]) -> None:
        for entry in batch.entries:
            if not self._steps_of[entry.id]:
                self.events["admit"] += 1
                self.events["prefix shared"] += getattr(entry, "start", 0) > 0
        self._steps_of.update(members)

    def _compare(self, walk: str, state: str, members: frozenset[str]) -> None:
        before = self._last.get(walk)
        if before is not None:
            self.events["buckets alternated"] += before[0] != state
            self.events["batch changed"] += before[1] != members
        self._last[walk] = state, members

    def _look(self, batch: Any, walk: str, size: int) -> tuple[str, str]:
        """The state of `batch`, and its node."""
        if self._model is None:
            return f"{walk}[{size}]", ""
        from racecheck.engine.runners.base import shape_of

        node, shape = self._model.node(batch), shape_of(batch)
        buckets = sorted(node.runners[walk].walk.buckets)
        taken = next((bucket for bucket in buckets if bucket.holds(shape)), shape)
        width = f"x{taken.tokens}" if taken.tokens != taken.requests else ""
        return f"{walk}[{taken.requests}{width}]", node.name


def hoped_for(engine: Any) -> tuple[str, ...]:
    """The events without which sequences on `engine` say little: those that it can come to."""
    model = getattr(engine, "model", None)
    if model is None:
        return ()
    runners = [runner for node in model.nodes for runner in node.runners.values()]
    several = any(len(runner.walk.buckets) > 1 for runner in runners)
    ahead = engine.config.run_ahead > 0 and any(runner.preplans for runner in runners)
    return (*SOMETIMES[: 1 + several], *(AHEAD if ahead else ()))
