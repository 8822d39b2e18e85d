"""Graphs that are captured when a step first needs them, in the middle of a run."""

import pytest

import racecheck
from racecheck.engine import Engine
from racecheck.scenario.reference import OnRanks
from racecheck.virtual import virtual_cuda

MODELS = ("qwen3-tts", "orpheus", "qwen3-omni")


@pytest.mark.parametrize(("model", "run_ahead"), [("orpheus", 0), *((model, 1) for model in MODELS)])
def test_tokens_are_the_same(serve, make, serial, model, run_ahead):
    """The graph of a bucket is the same graph, whenever it is captured."""
    requests = make(model=model)
    assert serve(requests, model=model, run_ahead=run_ahead, lazy_capture=True) == serial(model)


def test_only_what_is_needed_is_captured(config, make):
    """No graph at first; a run captures those of the buckets it meets, another of the same shapes none."""
    with virtual_cuda(lag="latest"):
        lazy, eager = Engine(config("orpheus", lazy_capture=True)), Engine(config("orpheus"))
        runners = list(lazy.model.runners())
        assert not any(runner.captured() for runner in runners)
        with racecheck.audit() as audit:
            lazy.run(make(4, model="orpheus"))
        captured = lazy.events()["captured on the way"]
        every = sum(len(runner.captured()) for runner in eager.model.runners())
        assert 0 < captured == sum(len(runner.captured()) for runner in runners) < every
        lazy.run(make(4, model="orpheus"))
        assert lazy.events()["captured on the way"] == 0
    assert audit.verdict == "clean"


def test_a_bucket_is_not_replaced_by_a_larger_one(config, make):
    """Even if a larger one is there already."""
    with virtual_cuda():
        engine = Engine(config("orpheus", lazy_capture=True))
        engine.run(make(6, model="orpheus", last_arrival=0))
        engine.run(make(1, model="orpheus"))
        shapes = {
            key.shape.requests
            for r in engine.model.runners()
            for key in r.captured()
            if key.label == "decode"
        }
    assert shapes == {2, 8}


@pytest.mark.parametrize("model", MODELS[:2])
def test_an_engine_turns_lazy_between_two_runs(config, make, serial, model):
    """Its graphs go, and come again with the same tokens; prompts in chunks do, too."""
    requests = make(model=model)
    with virtual_cuda(lag="latest"):
        engine = Engine(config(model))
        assert engine.run(requests) == serial(model)
        assert engine.events()["captured on the way"] == 0
        engine.adjust(prefill_chunk=4, lazy_capture=True)
        assert engine.run(requests) == serial(model)
        assert engine.events()["captured on the way"] > 0
        engine.adjust()
        assert engine.run(requests) == serial(model)


def test_only_a_capture_makes_a_handle_and_old_failures_are_forgotten(config, make):
    """A step whose graphs are there runs no product for it; what failed before says nothing any more."""
    with virtual_cuda():
        engine = Engine(config("orpheus", lazy_capture=True))
        engine.run(make(2, model="orpheus"))
        runners = [runner for runner in engine.model.runners() if hasattr(runner, "failures")]
        with racecheck.audit() as audit:
            engine.run(make(2, model="orpheus"))
        assert engine.events()["captured on the way"] == 0
        assert not any(getattr(getattr(record, "node", None), "name", "") == "mm" for record in audit.trace)
        runners[0].failures[runners[0].key(runners[0].buckets()[0], 0)] = "why"
        engine.adjust(lazy_capture=True)
        assert not any(runner.failures for runner in runners)


def test_ranks_stay_lazy_too(config):
    """As an engine of one rank does."""
    ranks = OnRanks(config("orpheus"), 2)
    ranks.adjust(lazy_capture=True)
    ranks.adjust(prefill_chunk=4)
    assert (ranks._config.lazy_capture, ranks._config.prefill_chunk) == (True, 4)
