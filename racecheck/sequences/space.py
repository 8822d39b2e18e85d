"""What sequences of a target may ask for, so that only states are reached that its workload allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from racecheck.scenario.load import ScenarioFile
from racecheck.scenario.model import REFERENCE_ENGINE
from racecheck.scenario.tables import Medium
from racecheck.scenario.workload import read_arrivals
from racecheck.sequences.story import Ask, StepSequence

if TYPE_CHECKING:  # the engine imports torch, which takes seconds
    from racecheck.engine import ModelSpec

#: Tokens of a drawn request: enough to decode a few steps.
MOST_NEW = 6

#: In how many chunks the longest prompt may come; the fewest are the simplest.
PARTS = (2, 4)

Bounds = tuple[int, int]


class MediumSpace(NamedTuple):
    """Segments of a medium: how many a request has, and how long one may be, in encoder tokens."""

    name: str
    segments: Bounds
    lengths: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Space:
    """Bounds, both ends included.

    `prompt` and `new` in tokens, `requests` and `steps` of one sequence. `groups` of requests that begin
    alike. `preempts`: the engine understands `preempt_after`. `chunks`: sizes that prompts may be read in,
    and `lazy`: graphs may be captured on the way; the engine has `adjust` for these. `trace`: requests of a
    real one, in order, to take slices of.
    """

    prompt: Bounds
    new: Bounds = (1, 6)
    requests: int = 4
    steps: int = 12
    groups: int = 2
    preempts: bool = False
    chunks: tuple[int, ...] = ()
    lazy: bool = False
    media: tuple[MediumSpace, ...] = ()
    trace: tuple[Ask, ...] = ()


def space_of(file: ScenarioFile, fault: str = "") -> Space:
    """What the workload of the scenario `file` asks for, in sequences of a few steps.

    With a `fault` nothing that the engine in the fault's own setting cannot serve.
    """
    scenario, spec = file.scenario, _spec(file, fault)
    workload, own = scenario.workload, scenario.engine == REFERENCE_ENGINE
    media = (("audio", workload.media.audio), ("vision", workload.media.vision))
    prompt = (workload.prompt_tokens.min, workload.prompt_tokens.max)
    least = next(
        (new for new in range(1, workload.new_tokens.max) if _served(spec, Ask(prompt[0], new=new))),
        workload.new_tokens.max,
    )
    alone = own and scenario.ranks == 1
    return Space(
        prompt=prompt,
        new=(least, max(least, min(MOST_NEW, workload.new_tokens.max))),
        preempts=alone,
        chunks=tuple(sorted({-(-prompt[1] // part) for part in PARTS}, reverse=True)) if alone else (),
        lazy=alone,
        media=tuple(_medium(name, medium) for name, medium in media if medium is not None),
        trace=tuple(ask for ask in _trace(file) if _served(spec, ask)),
    )


def _spec(file: ScenarioFile, fault: str) -> ModelSpec | None:
    """The shapes of the model, as the setting of `fault` has them; None for somebody else's engine."""
    from racecheck.faults import find
    from racecheck.scenario.plan import model_spec

    spec = model_spec(file)
    return find(fault).setting.spec(spec) if fault and spec is not None else spec


def _served(spec: ModelSpec | None, ask: Ask) -> bool:
    """Can a model of `spec` serve `ask`?"""
    from racecheck.engine import RequestError, check_request

    if spec is None:
        return True
    try:
        check_request(spec, StepSequence((ask,), 1).requests(spec.text_vocab)[0])
    except RequestError:
        return False
    return True


def _medium(name: str, medium: Medium) -> MediumSpace:
    unit, tokens = medium.multiple_of, medium.tokens
    lengths = range(-(-tokens.min // unit) * unit, tokens.max + 1, unit)
    return MediumSpace(name, (medium.segments.min, medium.segments.max), tuple(lengths))


def _trace(file: ScenarioFile) -> tuple[Ask, ...]:
    """The scenario's part of its trace as text requests; arrivals in engine steps."""
    workload = file.scenario.workload
    low, high = workload.prompt_tokens.min, workload.prompt_tokens.max
    return tuple(
        Ask(
            prompt=min(max(workload.text_tokens.of(one.context), low), high),
            arrival=int(one.seconds * workload.steps_per_second),
            new=workload.new_tokens.of(one.generated),
        )
        for one in read_arrivals(file)
    )
