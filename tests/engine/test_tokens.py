"""Staging must not show in the tokens; with too few slots and a late device it does."""

from dataclasses import replace

import pytest

from racecheck.engine import Engine, Parts
from racecheck.engine.resources import KV, Sampler
from racecheck.virtual import virtual_cuda

MODELS = ("qwen3-tts", "orpheus", "qwen3-omni")
LAGS = ("eager", "latest", "seed:1")


def all_walks(model, kind):
    """Every walk of `model`, run as `kind`."""
    return dict.fromkeys(WALKS[model], kind)


WALKS = {
    "qwen3-tts": ("talker.prefill", "talker.decode", "codec.chunk"),
    "orpheus": ("prefill", "decode", "snac.chunk"),
    "qwen3-omni": (
        "audio.encode",
        "vision.encode",
        "thinker.prefill_text",
        "thinker.prefill_audio",
        "thinker.prefill_vision",
        "thinker.decode",
        "talker.prefill",
        "talker.last_prefill",
        "talker.decode",
        "code2wav.chunk",
    ),
}


@pytest.mark.parametrize("kind", ["main", "piecewise", "eager", "per-request"])
@pytest.mark.parametrize("model", MODELS)
def test_every_runner_gives_the_serial_tokens(serve, make, serial, model, kind):
    """Whatever runs a walk: one graph, a region of it, kernel by kernel, or request by request."""
    assert serve(make(model=model), model=model, walks=all_walks(model, kind)) == serial(model)


@pytest.mark.parametrize("model", MODELS)
def test_items_are_frames_and_sound(serial, make, model):
    """As many tokens as were asked for, and sound of them."""
    for request in make(model=model):
        items = serial(model)[request.id]
        written = request.new_tokens if model == "qwen3-omni" else 0
        assert sum(isinstance(item, tuple) for item in items) == request.new_tokens + written
        sound = request.new_tokens >= 28 if model == "orpheus" else True
        assert any(isinstance(item, bytes) for item in items) == sound


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize(("run_ahead", "slots"), [(1, 2), (1, 3), (2, 3)])
def test_enough_slots_give_the_serial_tokens(serve, make, reference, lag, run_ahead, slots):
    """With run_ahead + 1 slots or more, any legal lateness gives the tokens of the serial engine."""
    assert serve(make(), lag=lag, run_ahead=run_ahead, slots=slots) == reference


@pytest.mark.parametrize("runner", ["main", "piecewise", "eager"])
def test_one_slot_changes_tokens_on_a_late_device(serve, make, reference, runner):
    """One slot in any one runner: a step reads the next step's layout, and its tokens change."""
    assert serve(make(), lag="latest", slots={runner: 1}) != reference


@pytest.mark.parametrize("runner", ["main", "piecewise", "eager"])
def test_one_slot_goes_unnoticed_on_a_prompt_device(serve, make, reference, runner):
    """The same bug when every copy wins: all tokens are right, so values alone are no verdict."""
    assert serve(make(), lag="eager", slots={runner: 1}) == reference


def test_two_slots_are_too_few_for_run_ahead_two(serve, make, reference):
    """The bound is run_ahead + 1, not two."""
    assert serve(make(), lag="latest", run_ahead=2, slots=2) != reference


def test_a_request_gets_the_same_tokens_alone(serve, make, reference):
    """Noise depends on seed, position and group only: neither batch nor row nor order matter."""
    one = make()[4]
    assert serve([one])[one.id] == reference[one.id]


def test_more_requests_than_rows(serve, make):
    """Requests that wait for a row and get a recycled one are served alike at any run-ahead."""
    requests = make(13, last_arrival=0, frames=(1, 4))
    serial = serve(requests, lag="eager", run_ahead=0)
    assert all(len(serial[request.id]) > request.new_tokens for request in requests)
    for run_ahead in (1, 2):
        assert serve(requests, run_ahead=run_ahead, slots=3) == serial


def test_an_engine_serves_again(make, config, reference):
    """A second run continues the rotation and the step count, and gives the same tokens."""
    with virtual_cuda(lag="latest"):
        engine = Engine(config("qwen3-tts"))
        assert engine.run(make()) == reference
        steps = engine.step_count
        assert engine.run(make()) == reference
        assert engine.step_count > steps


def test_steps_bound_a_run(make, config, reference):
    """A run cut short returns the frames of its steps, waits for them all and drops its requests."""
    with virtual_cuda(lag="latest"):
        engine = Engine(config("qwen3-tts"))
        tokens = engine.run(make(), steps=6)
        assert engine.step_count == 6
        assert len(engine.results) == 0
        assert 0 < sum(map(len, tokens.values())) < sum(map(len, reference.values()))
        assert all(frames == reference[name][: len(frames)] for name, frames in tokens.items())
        assert engine.run(make()) == reference


@pytest.mark.parametrize("model", MODELS)
def test_a_cancelled_request_gets_the_beginning(make, config, serial, model):
    """Its client hangs up after some steps: it gets a prefix, the others all; pages are free again."""
    requests = [
        replace(request, cancel_after=3) if index % 2 else request
        for index, request in enumerate(make(model=model))
    ]
    with virtual_cuda(lag="latest"):
        engine = Engine(config(model))
        caches = [one for node in engine.model.nodes for one in node.resources if isinstance(one, KV)]
        free = [kv.free_pages for kv in caches]
        tokens = engine.run(requests)
        assert [kv.free_pages for kv in caches] == free
    for request in requests:
        whole, got = serial(model)[request.id], tokens[request.id]
        assert got == whole[: len(got)]
        assert (len(got) < min(3, len(whole))) if request.cancel_after else (got == whole)


@pytest.mark.parametrize("model", ["qwen3-tts", "orpheus"])
def test_a_cached_prefix_shares_pages_and_no_tokens_change(serve, make, config, model):
    """Requests that begin alike hold the same pages; each gets what it gets without company."""
    first, *others = make(5, model=model, last_arrival=0)
    texts = [[*first.text[:8], *other.text[8:]] for other in others]
    requests = [first, *(replace(other, text=text) for other, text in zip(others, texts, strict=True))]
    alone = {one.id: serve([one], model=model, run_ahead=0)[one.id] for one in requests}
    shared = []

    def watch(batch):
        shared.append(max(kv._users.values()))

    with virtual_cuda(lag="latest"):
        engine = Engine(config(model))
        kv = engine.model.nodes[0].resources[0]
        assert engine.run(requests, on_step=watch) == alone
    assert max(shared) > 1


def test_seed_and_temperature_matter(serve, make):
    """Another seed gives other tokens, and so does another temperature."""
    one = make()[0]
    variants = [one, replace(one, seed=one.seed + 1), replace(one, temperature=1.7)]
    assert len({str(serve([variant], lag="eager")) for variant in variants}) == 3


class _SwappedRows(Sampler):
    """Gathers its requests' rows in reverse."""

    def layout(self, batch):
        (rows,) = super().layout(batch)
        rows[: batch.size] = rows[: batch.size].flip(0)
        return (rows,)


@pytest.mark.parametrize("name", ["talker_sampler", "code_predictor_sampler"])
def test_wrong_gather_indices_show(serve, make, reference, name):
    """Either sampler with its rows swapped changes tokens; the code predictor's leave group 0 of a first
    frame alone.
    """

    def sampler(own, *args):
        return (_SwappedRows if own == name else Sampler)(own, *args)

    tokens = serve(make(), lag="eager", parts=Parts(sampler=sampler))
    assert tokens != reference
    first = [tokens[i][0][0] == reference[i][0][0] for i in reference]
    assert all(first) == (name == "code_predictor_sampler")
