"""What a scenario file says, as pydantic models: the file's format is defined here and nowhere else.

Every field has a description and an example; `Scenario.model_json_schema()` gives the JSON Schema, and
the example is what an error message tells the reader to write instead.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from racecheck.errors import UsageError
from racecheck.scenario.tables import Table, Workload

Verdict = Literal["race", "stale", "hang", "inconclusive", "clean"]
Runner = Literal["main", "piecewise", "eager"]
Kind = Literal["main", "piecewise", "eager", "per-request"]

#: What builds the engine of a scenario that names none.
REFERENCE_ENGINE = "racecheck.scenario.reference:build"

#: The most slots a scenario may ask for: every slot is pinned memory, and no engine has needed ten.
MOST_SLOTS = 64
MOST_STEPS = 1_000_000
MOST_RANKS = 8

LAG_REMEDY = "write latest, eager, seed:N with a whole number N from 0, or a token"


def check_lag(text: str) -> str:
    """`text` if it names a lag of the virtual device; `ValueError` otherwise."""
    if text.startswith("d1."):
        from racecheck.virtual.token import decisions_of  # with it comes torch, which takes seconds

        try:
            decisions_of(text)
        except UsageError as error:
            raise ValueError(str(error)) from None
    elif not re.fullmatch(r"latest|eager|seed:(0|[1-9][0-9]{0,17})", text):
        raise ValueError(f"{text!r} is not a lag; {LAG_REMEDY}")
    return text


#: What a scenario may be called: reports and file names are made of it.
NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"


def _name(text: str) -> str:
    if not re.fullmatch(NAME, text):
        raise ValueError(
            f"{text!r:.80} is no name; "
            "write up to 64 lower-case letters, digits, dots, dashes and underscores"
        )
    return text


def _import_path(text: str) -> str:
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", text):
        raise ValueError(f"{text!r} is no import path; write package.module:factory")
    return text


def _slot_count(key: Any) -> Any:
    if isinstance(key, str) and re.fullmatch(r"[1-9][0-9]{0,3}", key) and int(key) <= MOST_SLOTS:
        return int(key)
    raise ValueError(f"{key!r} is not a slot count; write a whole number from 1 to {MOST_SLOTS}")


def _expectation(value: Any) -> Any:
    if not isinstance(value, str | dict):
        raise ValueError('expected a verdict in quotes or a table; write "race" or { verdict = "race" }')
    return {"verdict": value} if isinstance(value, str) else value


class Expectation(Table):
    """What a row must come to. A bare verdict in quotes stands for a table with only that."""

    verdict: Verdict = Field(description="The verdict.", examples=["race"])
    buffer: str | None = Field(
        None,
        description="The staging buffer that the first finding must name.",
        examples=["code_predictor_sampler.gather_indices"],
        min_length=1,
    )
    buffers: list[Annotated[str, Field(min_length=1)]] = Field(
        [],
        description="The staging buffers that findings must name, and no others may be named: "
        "names, or patterns with * for any text.",
        examples=[["kv.*", "position.ids"]],
    )

    @model_validator(mode="after")
    def _buffer_needs_a_finding(self) -> Expectation:
        for key in ("buffer", "buffers"):
            if getattr(self, key) and self.verdict not in ("race", "stale"):
                raise ValueError(f"a {self.verdict} row has no finding to name a buffer; leave {key} out")
        return self


SlotCount = Annotated[int, BeforeValidator(_slot_count)]


class RunnerTable(Table):
    """One runner of the model and what each slot count must come to."""

    expect: dict[
        SlotCount,
        Annotated[Expectation, BeforeValidator(_expectation, json_schema_input_type=Verdict | Expectation)],
    ] = Field(
        description="Expected verdict by slot count; each entry is one row.",
        examples=[{"1": "race", "2": "clean"}],
        min_length=1,
        json_schema_extra={"propertyNames": {"pattern": "^[1-9][0-9]?$"}},
    )
    walks: dict[str, Kind] = Field(
        {},
        description="Walks that run otherwise than the model has it in these rows, by name: "
        "main, piecewise, eager or per-request.",
        examples=[{"talker.decode": "piecewise"}],
    )


class Scenario(Table):
    """A model, a workload, and the verdicts that its runners must come to."""

    racecheck: Literal[1] = Field(description="Format of this file.", examples=[1])
    name: Annotated[str, AfterValidator(_name)] = Field(
        description="Name in reports: lower-case letters, digits, dot, dash and underscore.",
        examples=["qwen3-tts"],
        json_schema_extra={"pattern": NAME},
    )
    engine: Annotated[str, AfterValidator(_import_path)] = Field(
        REFERENCE_ENGINE,
        description="What builds the engine, as package.module:factory; left out, the reference engine.",
        examples=["my_engine.racecheck:build"],
    )
    model: str = Field(description="A model that the engine has.", examples=["qwen3-tts"], min_length=1)
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
        description="When the virtual device does queued work: latest, eager, seed:N, or a token.",
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
