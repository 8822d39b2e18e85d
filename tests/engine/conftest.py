"""Small workloads for all three models, and one call that serves them on a virtual device."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import pytest

from racecheck.engine import Batch, Engine, EngineConfig, Parts, Request, preset
from racecheck.virtual import virtual_cuda

Tokens = dict[str, list[tuple[int, ...] | bytes]]
Serve = Callable[..., Tokens]
Make = Callable[..., list[Request]]

RUNNERS = ("main", "piecewise", "eager")
#: Segments of a medium, for requests that bring one.
SEGMENTS = {"text": [()], "audio": [(4, 16), (8, 4, 8), (8,)], "vision": [(8, 16), (16, 8, 8), (8,)]}


@cache
def few_graphs(model):
    """The tiny preset with few buckets: most of a test's time is capture."""
    spec = preset(model, "tiny")
    spec = replace(spec, codec=replace(spec.codec, buckets=(4,)))
    few = {"buckets": (2, 8)}
    if model != "qwen3-tts":
        few |= {"prefill_tokens": (32,), "prefill_requests": (1, 2)}
    for name in ("talker", "decoder", "thinker"):
        if hasattr(spec, name):
            node = getattr(spec, name)
            spec = replace(spec, **{name: replace(node, limits=replace(node.limits, **few))})
    for name in ("audio", "vision"):
        if hasattr(spec, name):
            spec = replace(spec, **{name: replace(getattr(spec, name), buckets=(32,))})
    return spec


def make_requests(
    count: int = 9, *, model: str = "qwen3-tts", last_arrival: int = 6, frames: Sequence[int] | None = None
) -> list[Request]:
    """`count` requests with distinct temperatures and seeds that join and leave at different steps."""
    draw = random.Random(count)
    fewest, most = frames or {"orpheus": (4, 30)}.get(model, (2, 7))
    requests = []
    for index in range(count):
        medium = ("text", "audio", "vision")[index % 3] if model == "qwen3-omni" else "text"
        request = Request(
            id=f"r{index}",
            arrival=draw.randint(0, last_arrival),
            prompt_tokens=draw.choice((8, 9)),
            new_tokens=draw.randint(fewest, most),
            temperature=0.6 + 0.1 * (index % 7),
            seed=1000 + index,
            text=[draw.randrange(128) for _ in range(20)],
        )
        requests.append(replace(request, medium=medium, segments=draw.choice(SEGMENTS[medium])))
    return requests


def config_of(
    model: str,
    *,
    run_ahead: int = 1,
    slots: int | Mapping[str, int] | None = None,
    walks: Mapping[str, str] | None = None,
    **others,
) -> EngineConfig:
    """A configuration of few graphs; `slots` for all runners, or overrides by runner of what is enough."""
    enough = run_ahead + 1
    by_runner = dict.fromkeys(RUNNERS, slots if isinstance(slots, int) else enough)
    by_runner |= slots if isinstance(slots, Mapping) else {}
    spec = few_graphs(model)
    return EngineConfig(spec=spec, run_ahead=run_ahead, slots=by_runner, walks=walks or {}, **others)


def serve_requests(
    requests: list[Request],
    *,
    model: str = "qwen3-tts",
    lag: str = "latest",
    parts: Parts | None = None,
    on_step: Callable[[Batch], None] | None = None,
    **settings,
) -> Tokens:
    """Serve `requests` on a new engine of `config_of(model, **settings)`."""
    with virtual_cuda(lag=lag):
        return Engine(config_of(model, **settings), parts).run(requests, on_step=on_step)


@pytest.fixture
def make() -> Make:
    """`make_requests`."""
    return make_requests


@pytest.fixture
def serve() -> Serve:
    """`serve_requests`."""
    return serve_requests


@pytest.fixture
def config() -> Callable[..., EngineConfig]:
    """`config_of`."""
    return config_of


@pytest.fixture(scope="session")
def serial() -> Callable[[str], Tokens]:
    """The tokens of `make_requests(model=model)` from a serial engine: one step is done before the next."""
    return cache(
        lambda model: serve_requests(make_requests(model=model), model=model, lag="eager", run_ahead=0)
    )


@pytest.fixture
def reference(serial) -> Tokens:
    """That of qwen3-tts."""
    return serial("qwen3-tts")
