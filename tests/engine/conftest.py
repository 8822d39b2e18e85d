"""Small workloads, and one call that serves them on a virtual device."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from racecheck.engine import Batch, Engine, EngineConfig, Parts, Request, preset
from racecheck.virtual import virtual_cuda

# Two buckets, so that batches still change between them: most of a test's time is capture.
FEW_GRAPHS = replace(preset("qwen3-tts", "tiny"), buckets=(2, 8))

Tokens = dict[str, list[tuple[int, ...]]]
Serve = Callable[..., Tokens]
Make = Callable[..., list[Request]]


def make_requests(
    count: int = 9, *, last_arrival: int = 6, frames: tuple[int, int] = (2, 7)
) -> list[Request]:
    """`count` requests with distinct temperatures and seeds that join and leave at different steps."""
    draw = random.Random(count)
    return [
        Request(
            id=f"r{index}",
            arrival=draw.randint(0, last_arrival),
            prompt_tokens=draw.choice((8, 9)),
            new_tokens=draw.randint(*frames),
            temperature=0.6 + 0.1 * (index % 7),
            seed=1000 + index,
            text=[draw.randrange(128) for _ in range(20)],
        )
        for index in range(count)
    ]


def serve_requests(
    requests: list[Request],
    *,
    lag: str = "latest",
    run_ahead: int = 1,
    slots: int | dict[str, int] = 2,
    parts: Parts | None = None,
    on_step: Callable[[Batch], None] | None = None,
) -> Tokens:
    """Serve `requests` on a new engine; `slots` is a number for all runners, or overrides of 2 by runner."""
    names = ("main", "piecewise", "eager")
    by_runner = dict.fromkeys(names, slots) if isinstance(slots, int) else dict.fromkeys(names, 2) | slots
    with virtual_cuda(lag=lag):
        engine = Engine(EngineConfig(spec=FEW_GRAPHS, run_ahead=run_ahead, slots=by_runner), parts)
        return engine.run(requests, on_step=on_step)


@pytest.fixture
def make() -> Make:
    """`make_requests`."""
    return make_requests


@pytest.fixture
def serve() -> Serve:
    """`serve_requests`."""
    return serve_requests


@pytest.fixture(scope="session")
def reference() -> Tokens:
    """The tokens of `make_requests()` from a serial engine: no step is planned before the last is done."""
    return serve_requests(make_requests(), lag="eager", run_ahead=0)
