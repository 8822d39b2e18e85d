"""What `[workload]` of a scenario says, as pydantic models."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Table(BaseModel):
    """Base: unknown keys and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Temperatures(Table):
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


class Range(Table):
    """A whole number, drawn for each request."""

    min: int = Field(description="Smallest, from 1.", examples=[8], ge=1, le=65536)
    max: int = Field(description="Largest.", examples=[9], ge=1, le=65536)

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is larger than max {self.max}; write min <= max")
        return self


class Length(Table):
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


class Medium(Table):
    """What stands before the text of some requests: sound or pictures, in segments."""

    share: float = Field(
        description="Share of the requests that bring it.",
        examples=[0.3],
        gt=0,
        le=1,
        allow_inf_nan=False,
    )
    segments: Range = Field(
        Range(min=1, max=1), description="Segments of one request.", examples=[{"min": 1, "max": 3}]
    )
    tokens: Range = Field(description="Encoder tokens of one segment.", examples=[{"min": 4, "max": 12}])
    multiple_of: int = Field(
        1, description="What an encoder pads segments to: all are multiples of it.", examples=[4], ge=1
    )

    @model_validator(mode="after")
    def _possible(self) -> Medium:
        if self.tokens.max // self.multiple_of * self.multiple_of < self.tokens.min:
            raise ValueError(
                f"no multiple of {self.multiple_of} lies in {self.tokens.min}..{self.tokens.max}; "
                f"write tokens with max = {-(-self.tokens.min // self.multiple_of) * self.multiple_of}"
            )
        return self


class Media(Table):
    """Which requests are more than text; the rest is text."""

    audio: Medium | None = Field(
        None,
        description="Sound.",
        examples=[{"share": 0.3, "tokens": {"min": 4, "max": 12}, "multiple_of": 4}],
    )
    vision: Medium | None = Field(
        None,
        description="Pictures.",
        examples=[{"share": 0.3, "tokens": {"min": 8, "max": 16}, "multiple_of": 8}],
    )

    @model_validator(mode="after")
    def _shares(self) -> Media:
        total = sum(medium.share for medium in (self.audio, self.vision) if medium is not None)
        if total > 1:
            raise ValueError(f"the shares add up to {total:g}; write shares of at most 1 in all")
        return self


class Cancel(Table):
    """Clients that hang up before they have everything."""

    every: int = Field(description="Every so-many-th request is cancelled.", examples=[5], ge=1, le=100_000)
    after: Range = Field(
        description="How many of its steps are submitted when its client hangs up.",
        examples=[{"min": 2, "max": 6}],
    )


class Prefix(Table):
    """Requests that begin alike, so that cached pages are shared."""

    groups: int = Field(
        description="How many different beginnings there are.", examples=[2], ge=1, le=100_000
    )
    tokens: int = Field(description="Text tokens that a group shares.", examples=[8], ge=1, le=65536)


class Workload(Table):
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
    prompt_tokens: Range = Field(
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
    vocab: int | None = Field(
        None,
        description="Text tokens are drawn below this. A model of the reference engine knows its own.",
        examples=[256],
        ge=1,
        le=2**31,
    )
    media: Media = Field(
        default_factory=lambda: Media(audio=None, vision=None),
        description="Requests that bring sound or pictures.",
        examples=[{"audio": {"share": 0.3, "tokens": {"min": 4, "max": 12}, "multiple_of": 4}}],
    )
    cancel: Cancel | None = Field(
        None,
        description="Requests whose client hangs up early.",
        examples=[{"every": 5, "after": {"min": 2, "max": 6}}],
    )
    prefix: Prefix | None = Field(
        None, description="Requests that share their first tokens.", examples=[{"groups": 2, "tokens": 8}]
    )
