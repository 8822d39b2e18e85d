"""A counterexample of the slot theorem as a run of the reference engine: its steps, as a sequence on orpheus.

Each step of the counterexample is one engine step that answers requests of one step's work. What else the
counterexample needs of it decides how many there are and whether somebody waits for them:

    complete without a wait     its one client hangs up at once, so that nobody reads the step's result
    the plan is dropped         a request was left over from the step before, alone, and is planned ahead;
                                then another one joins it
    bucket 1                    two requests, where bucket 0 has one
    written twice               two requests that join in one step

The engine waits as late as it may, as a shortest counterexample does. Each broken premise is the known fault
that breaks it; without one it is the plain engine with too few slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from racecheck.prove.protocol import Protocol
from racecheck.prove.verdict import Counterexample
from racecheck.sequences.story import Ask, StepSequence
from racecheck.sequences.target import Target
from racecheck.sequences.token import token_of

MODEL, PRESET = "orpheus", "tiny"
#: Text tokens the model reads, prompt tokens of each request, and rows for requests that run at once.
VOCAB, PROMPT, ROWS = 128, 6, 8
#: Steps of a walk in a row while another has work (as the scheduler has it), steps of a request before them,
#: and steps behind the racing one, where it takes some for tokens to be wrong.
BURST, PRELUDE, MORE = 2, 3, 7
#: Walks whose copies and kernels are on one stream; the model's own have a stream for plans.
ONE_STREAM = (("decode", "eager"), ("prefill", "eager"))


class CannotRun(Exception):
    """The engine has no part that does what the counterexample is about; the message says which."""


@dataclass(frozen=True)
class Enactment:
    """A run that must end in the race of a counterexample, on a buffer that matches `buffers`."""

    target: Target
    sequence: StepSequence
    buffers: str

    @property
    def token(self) -> str:
        """For `racecheck replay`."""
        return token_of(self.target, self.sequence)


@dataclass(frozen=True)
class _Part:
    """What stands for a broken premise: a fault, the buffers that race, and walks of its own."""

    fault: str
    buffers: str = "kv.*"
    walks: tuple[tuple[str, str], ...] = ()


def enact(found: Counterexample) -> Enactment:
    """The run that does what `found` does.

    Raises:
        CannotRun: the reference engine cannot do it.
    """
    protocol = found.protocol
    part = _part(protocol)
    walks = ONE_STREAM if protocol.one_stream else part.walks
    sequence = _sequence(found)
    target = Target(
        name=f"{MODEL}, {protocol.slots} slot{'s' * (protocol.slots > 1)}, run-ahead {protocol.run_ahead}",
        model=MODEL,
        preset=PRESET,
        run_ahead=protocol.run_ahead,
        slots=tuple((runner, protocol.slots) for runner in ("main", "piecewise", "eager")),
        walks=walks,
        vocab=VOCAB,
        fault=part.fault,
    )
    return Enactment(target, sequence, part.buffers)


def _part(protocol: Protocol) -> _Part:
    parts = list(_parts(protocol))
    if protocol.wait_own_event:
        raise CannotRun("the reference engine never waits for a slot's own event before it writes")
    if len(parts) > 1:
        raise CannotRun("it breaks several premises, and the engine has a fault for one at a time")
    return parts[0] if parts else _Part("")


def _parts(protocol: Protocol) -> Iterator[_Part]:
    """One for each broken premise."""
    if not protocol.completion_wait:
        yield _Part("completion-wait-skipped")
    if not protocol.wait_covers_replay:
        if protocol.one_stream:
            raise CannotRun("no fault of the engine records its event between copy and replay of one stream")
        yield _Part("event-wrong-stream")  # that of the plans: behind the copies, and before no replay
    if protocol.event == "before":
        if protocol.one_stream:
            raise CannotRun("the engine's fault with an early event plans on a stream of its own")
        yield _Part("event-before-copy")
    if protocol.event == "other-stream":
        yield _Part("event-wrong-stream", walks=ONE_STREAM)  # nothing else is on the plans' stream then
    if not protocol.all_rotate:
        if protocol.one_stream:
            raise CannotRun("the engine's fault with a buffer that stays has walks of its own")
        yield _Part("piecewise-single-slot", "sampler.gather_indices")
    if protocol.write_twice:
        yield _Part("scalar-row-reused", "sampler.temperature")
    if protocol.drop == "advance":
        if protocol.one_stream:
            raise CannotRun("the engine plans nothing ahead, and so drops nothing, on one stream")
        yield _Part("dropped-plan-advances")
    if not protocol.drop_wait and protocol.drop != "none":
        raise CannotRun("no fault of the engine drops a plan without waiting for its copies")
    if not protocol.shared_counter:
        yield _Part("slot-per-bucket")


def _sequence(found: Counterexample) -> StepSequence:
    """Requests that arrive at every step of `found`, up to that of the racing write."""
    steps, last = found.steps, found.second.step
    skipped = {each.step for each in steps if each.action == "skip"}
    dropped = {each.step for each in steps if each.action == "drop"}
    if dropped and found.protocol.drop != "advance":
        raise CannotRun("it drops plans, and only the fault that uses up their slots comes with a way to")
    if skipped and max(skipped) < BURST:
        return _with_a_witness(skipped, last)
    if found.protocol.write_twice:
        return _joining(last)
    two = {each.step for each in steps if each.bucket}
    asks: list[Ask] = []
    left = 0
    for step in range(last + 1):
        leaves = step + 1 in dropped
        size = 2 if leaves or step in dropped or step in two else 1
        gone = step in skipped
        new = Ask(PROMPT, arrival=step, new=1 + gone, cancel_after=int(gone))
        asks += [new] * (size + leaves - left)
        left = int(leaves)
        _check_rows(asks, step, found.protocol.run_ahead)
    return StepSequence(tuple(asks), last + 1)


def _joining(last: int) -> StepSequence:
    """As many as can join at step `last`: the first one's temperature is wrong by more than a little then."""
    asks = (Ask(PROMPT, arrival=last, new=MORE) for _ in range(ROWS))
    return StepSequence(tuple(asks), last + 2 * MORE)


def _with_a_witness(skipped: set[int], last: int) -> StepSequence:
    """The same behind the first steps of a request that goes on: what corrupts a step shows in its tokens.

    It takes turns with those that hang up: prefill, two decodes, `BURST` prefills of theirs, and so on.
    """
    witness = Ask(PROMPT, new=PRELUDE + last + MORE)
    gone = (Ask(PROMPT, arrival=PRELUDE + step, new=2, cancel_after=1) for step in sorted(skipped))
    return StepSequence((witness, *gone), PRELUDE + last + MORE)


def _check_rows(asks: list[Ask], step: int, run_ahead: int) -> None:
    held = sum(ask.arrival >= step - run_ahead for ask in asks)
    if held > ROWS:
        raise CannotRun(f"it takes {held} requests at once, and the tiny engine has rows for {ROWS}")
