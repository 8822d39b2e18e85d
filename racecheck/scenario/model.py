"""What a scenario file says, as pydantic models: the file's format is defined here and nowhere else.

Every field has a description and an example; `Scenario.model_json_schema()` gives the JSON Schema, and
the example is what an error message tells the reader to write instead.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

Verdict = Literal["race", "stale", "hang", "inconclusive", "clean"]
Runner = Literal["main", "piecewise", "eager"]

#: The most slots a scenario may ask for: every slot is pinned memory, and no engine has needed ten.
MOST_SLOTS = 64
MOST_STEPS = 1_000_000
MOST_RANKS = 8

LAG_REMEDY = "write latest, eager or seed:N with a whole number N from 0"


def check_lag(text: str) -> str:
    """`text` if it names a lag of the virtual device; `ValueError` otherwise."""
    if not re.fullmatch(r"latest|eager|seed:(0|[1-9][0-9]{0,17})", text):
        raise ValueError(f"{text!r} is not a lag; {LAG_REMEDY}")
    return text


def _slot_count(key: Any) -> Any:
    if isinstance(key, str) and re.fullmatch(r"[1-9][0-9]{0,3}", key) and int(key) <= MOST_SLOTS:
        return int(key)
    raise ValueError(f"{key!r} is not a slot count; write a whole number from 1 to {MOST_SLOTS}")


def _expectation(value: Any) -> Any:
    if not isinstance(value, str | dict):
        raise ValueError('expected a verdict in quotes or a table; write "race" or { verdict = "race" }')
    return {"verdict": value} if isinstance(value, str) else value


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Temperatures(_Table):
    """The range that sampling temperatures are spread over."""

    min: float = Field(
        description="Smallest temperature, from 0.01.", examples=[0.4], ge=0.01, le=100, allow_inf_nan=False
    )
    max: float = Field(
        description="Largest temperature, above the smallest.",
        examples=[1.4],
        gt=0,
        le=100,
        allow_inf_nan=False,
    )

    @model_validator(mode="after")
    def _ordered(self) -> Temperatures:
        if self.min >= self.max:
            raise ValueError(
                f"min {self.min} is not below max {self.max}; write min < max: no two may share one"
            )
        return self


class Prompt(_Table):
    """How many tokens of the text are prefilled; drawn for each request."""

    min: int = Field(description="Fewest prompt tokens, from 1.", examples=[8], ge=1, le=65536)
    max: int = Field(description="Most prompt tokens.", examples=[9], ge=1, le=65536)

    @model_validator(mode="after")
    def _ordered(self) -> Prompt:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is larger than max {self.max}; write min <= max")
        return self


class Length(_Table):
    """How a token count of the trace becomes one of the small replica: times `scale`, then clamped."""

    scale: float = Field(
        1.0,
        description="Factor on the trace's token count.",
        examples=[0.05],
        gt=0,
        le=100,
        allow_inf_nan=False,
    )
    min: int = Field(1, description="Fewest tokens, from 1.", examples=[1], ge=1, le=65536)
    max: int = Field(description="Most tokens.", examples=[12], ge=1, le=65536)

    @model_validator(mode="after")
    def _ordered(self) -> Length:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is larger than max {self.max}; write min <= max")
        return self

    def of(self, tokens: int) -> int:
        """The replica's count for `tokens` of the trace."""
        return min(max(round(tokens * self.scale), self.min), self.max)


class Workload(_Table):
    """Which requests come, and when: who joins and who leaves the batch at which step."""

    trace: str = Field(
        description="CSV file with TIMESTAMP, ContextTokens and GeneratedTokens, relative to the scenario.",
        examples=["workloads/azure-llm-2023-conv.csv"],
        min_length=1,
    )
    first: int = Field(0, description="Requests of the trace to pass over.", examples=[0], ge=0, le=10**9)
    requests: int = Field(description="How many requests to take.", examples=[16], ge=1, le=100_000)
    steps_per_second: float = Field(
        description="Engine steps in one second of the trace: turns arrival times into steps.",
        examples=[4.0],
        gt=0,
        le=10**6,
        allow_inf_nan=False,
    )
    prompt_tokens: Prompt = Field(
        description="Text tokens that are prefilled; the rest is fed one a frame.",
        examples=[{"min": 8, "max": 9}],
    )
    text_tokens: Length = Field(
        description="Length of the whole text, from ContextTokens.",
        examples=[{"scale": 0.1, "min": 9, "max": 40}],
    )
    new_tokens: Length = Field(
        description="Frames to generate, from GeneratedTokens.",
        examples=[{"scale": 0.1, "min": 2, "max": 12}],
    )
    temperature: Temperatures = Field(
        Temperatures(min=0.4, max=1.4),
        description="Sampling temperatures, spread so that no two requests share one: a wrong row shows.",
        examples=[{"min": 0.4, "max": 1.4}],
    )


class Expectation(_Table):
    """What a row must come to. A bare verdict in quotes stands for a table with only that."""

    verdict: Verdict = Field(description="The verdict.", examples=["race"])
    buffer: str | None = Field(
        None,
        description="The staging buffer that the first finding must name.",
        examples=["code_predictor_sampler.gather_indices"],
        min_length=1,
    )

    @model_validator(mode="after")
    def _buffer_needs_a_finding(self) -> Expectation:
        if self.buffer is not None and self.verdict not in ("race", "stale"):
            raise ValueError(f"a {self.verdict} row has no finding to name a buffer; leave buffer out")
        return self


SlotCount = Annotated[int, BeforeValidator(_slot_count)]


class RunnerTable(_Table):
    """One runner of the model and what each slot count must come to."""

    expect: dict[SlotCount, Annotated[Expectation, BeforeValidator(_expectation)]] = Field(
        description="Expected verdict by slot count; each entry is one row.",
        examples=[{"1": "race", "2": "clean"}],
        min_length=1,
    )


class Scenario(_Table):
    """A model, a workload, and the verdicts that its runners must come to."""

    racecheck: Literal[1] = Field(description="Format of this file.", examples=[1])
    name: str = Field(
        description="Name in reports: lower-case letters, digits, dot, dash and underscore.",
        examples=["qwen3-tts"],
        pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$",
    )
    model: str = Field(description="A model of the reference engine.", examples=["qwen3-tts"], min_length=1)
    preset: Literal["tiny", "full"] = Field(
        "tiny",
        description="Size of the model: tiny runs on a CPU, full has the published shapes.",
        examples=["tiny"],
    )
    run_ahead: int = Field(
        1, description="Steps the host may plan beyond the last one it waited for.", examples=[1], ge=0, le=8
    )
    ranks: int = Field(
        1,
        description="Devices that serve the workload together, each with a replica of the model.",
        examples=[2],
        ge=1,
        le=MOST_RANKS,
    )
    steps: int = Field(description="Engine steps to run at most.", examples=[40], ge=1, le=MOST_STEPS)
    lag: Annotated[str, AfterValidator(check_lag)] = Field(
        "latest",
        description="When the virtual device does queued work: latest, eager or seed:N.",
        examples=["latest"],
    )
    seed: int = Field(0, description="Everything drawn is drawn from it.", examples=[0], ge=0, lt=2**32)
    workload: Workload = Field(description="Which requests come, and when.")
    runners: dict[Runner, RunnerTable] = Field(
        description="The runners to put to the test, by name: main, piecewise, eager.",
        examples=[{"main": {"expect": {"1": "race", "2": "clean"}}}],
        min_length=1,
    )

    @field_validator("racecheck", mode="before")
    @classmethod
    def _known_format(cls, value: Any) -> Any:
        if type(value) is not int or value != 1:
            raise ValueError("this is no format that this racecheck knows; write racecheck = 1")
        return value
