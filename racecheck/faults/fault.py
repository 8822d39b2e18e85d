"""What a fault is: one engine part replaced by a wrong one, and where and how that must show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from racecheck.engine import ModelSpec, Parts, Request

#: The models of the reference engine, each with a scenario of its name.
MODELS = ("qwen3-tts", "orpheus", "qwen3-omni")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The engine and workload in which a fault shows; its twin must be clean in the same.

    `walks`: by model, walks that run otherwise than the model has it. `requests` and `spec` change a
    workload and a model's shapes. `parts` are replaced in the twin too: what is unusual, and right.
    `ranks`: so many engines, in this process and each on a device of its own.
    """

    run_ahead: int = 1
    prefill_limit: int = 4
    slots: Mapping[str, int] = field(default_factory=dict)
    walks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    requests: Callable[[Sequence[Request]], Sequence[Request]] = list
    spec: Callable[[ModelSpec], ModelSpec] = lambda spec: spec
    parts: Mapping[str, Any] = field(default_factory=dict)
    ranks: int = 1


def behind_a_plan(requests: Sequence[Request]) -> Sequence[Request]:
    """Three come together, and a fourth when the third is planned already: it joins that step."""
    texts = [request for request in requests if request.medium == "text"][:4]
    first = [replace(r, arrival=at) for r, at in zip(texts, (0, 0, 0, 1), strict=False)]
    return [*first, *(replace(r, arrival=r.arrival + 4) for r in requests if r not in texts)]


#: The engine as it comes.
USUAL = Setting()
#: Prefills are planned ahead, as those of qwen3-tts are not as a rule, and two of them follow each other.
PREPLANNED = Setting(walks={"qwen3-tts": {"talker.prefill": "main"}}, prefill_limit=2, requests=behind_a_plan)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`part` takes the place of the engine's part of the kind `kind` (a field of `engine.Parts`).

    `shows` is the verdict ("race", "stale"), "error" (the engine refuses, and names the cause) or "stall"
    (clean, and slower than it need be). `where` gives for each model to which the fault applies the buffer
    that the first finding names, as a pattern; for an error its class. `premise`: the letter of the one of
    the slot theorem that it breaks, if it does. `repair`: what the right part does. `uses`: what else of its
    code a reader must see.
    """

    name: str
    story: str
    repair: str
    shows: str
    where: Mapping[str, str]
    kind: str
    part: Callable[..., Any]
    setting: Setting = USUAL
    uses: tuple[Any, ...] = ()
    premise: str = ""

    @property
    def parts(self) -> Parts:
        """The parts of the engine with the fault."""
        return replace(self.twin, **{self.kind: self.part})

    @property
    def twin(self) -> Parts:
        """The parts of the engine without it, in the same setting."""
        return replace(Parts(), **self.setting.parts)

    def matches(self, model: str, buffer: str) -> bool:
        """Is `buffer` (of an error, its class) what the fault shows on in `model`?"""
        return fnmatchcase(buffer, self.where[model])


def everywhere(pattern: str) -> Mapping[str, str]:
    """The same pattern for all models."""
    return dict.fromkeys(MODELS, pattern)
