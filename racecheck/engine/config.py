"""What an engine is built from: its configuration, and the parts a variant may replace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from racecheck.engine.intake import Intake
from racecheck.engine.models.presets import preset
from racecheck.engine.models.spec import ModelSpec, StackSpec
from racecheck.engine.resources import KV, Attention, LatentAttention, LatentKV, Position, Ragged, Sampler
from racecheck.engine.results import Results
from racecheck.engine.runners import EagerRunner, MainRunner, PerRequestRunner, PiecewiseRunner, Rotation
from racecheck.engine.scheduler import Scheduler
from racecheck.engine.slots import SlotPolicy
from racecheck.engine.speculation import Speculation
from racecheck.engine.state import History
from racecheck.errors import UsageError

#: What slots are counted for.
RUNNERS = ("main", "piecewise", "eager")
#: How a walk may be run.
KINDS = (*RUNNERS, "per-request")


@dataclass(frozen=True)
class EngineConfig:
    """Settings of an engine.

    `run_ahead`: steps the host may submit beyond the last one it waited for; 0 is serial. `slots`: copies
    of a step's buffers, by runner ("main", "piecewise", "eager"); where nothing is said `run_ahead` + 1.
    `prefill_limit`: requests that may join in one step. `prefill_chunk`: tokens of a prompt that one step may
    read, 0 for all; decode steps come in between. `lazy_capture`: a graph is captured when a step first needs
    it. `walks`: walks that run otherwise than the model has it, by name ("main", "piecewise", "eager",
    "per-request").

    Runners share buffers, so their counts must be equal to be safe (2 and 3 meet in a slot after a turn).
    """

    spec: ModelSpec = field(default_factory=lambda: preset("qwen3-tts", "tiny"))
    run_ahead: int = 1
    slots: Mapping[str, int] = field(default_factory=dict)
    prefill_limit: int = 4
    weight_seed: int = 0
    walks: Mapping[str, str] = field(default_factory=dict)
    prefill_chunk: int = 0
    lazy_capture: bool = False

    def __post_init__(self) -> None:
        if self.run_ahead < 0:
            raise UsageError(f"run_ahead must be 0 or more, not {self.run_ahead}")
        if self.prefill_limit < 1:
            raise UsageError(f"prefill_limit must be 1 or more, not {self.prefill_limit}")
        if self.prefill_chunk < 0:
            raise UsageError(f"prefill_chunk must be 0 (all at once) or more, not {self.prefill_chunk}")
        for runner, count in self.slots.items():
            if runner not in RUNNERS:
                raise UsageError(f"slots: no runner {runner!r}; runners are {', '.join(RUNNERS)}")
            if count < 1:
                raise UsageError(f"slots[{runner!r}] must be 1 or more, not {count}")
        for walk, kind in self.walks.items():
            if kind not in KINDS:
                raise UsageError(f"walks[{walk!r}]: no runner {kind!r}; runners are {', '.join(KINDS)}")


@dataclass(frozen=True)
class Parts:
    """The classes an engine is assembled from. `dataclasses.replace` one to build a variant."""

    kv: Callable[..., KV] = KV
    attention: Callable[..., Attention] = Attention
    latent_kv: Callable[..., LatentKV] = LatentKV
    latent_attention: Callable[..., LatentAttention] = LatentAttention
    ragged: Callable[..., Ragged] = Ragged
    position: Callable[..., Position] = Position
    sampler: Callable[..., Sampler] = Sampler
    history: Callable[..., History] = History
    main: Callable[..., MainRunner] = MainRunner
    piecewise: Callable[..., PiecewiseRunner] = PiecewiseRunner
    eager: Callable[..., EagerRunner] = EagerRunner
    per_request: Callable[..., PerRequestRunner] = PerRequestRunner
    rotation: Callable[[], Rotation] = Rotation
    slots: Callable[..., SlotPolicy] = SlotPolicy
    results: Callable[..., Results] = Results
    scheduler: Callable[..., Scheduler] = Scheduler
    speculation: Callable[..., Speculation] = Speculation
    intake: Callable[..., Intake] = Intake

    def cache(self, stack: StackSpec) -> tuple[Callable[..., KV], Callable[..., Attention]]:
        """The cache of `stack` and the attention over it: grouped heads, or latent."""
        return (self.latent_kv, self.latent_attention) if stack.latent else (self.kv, self.attention)
