"""Prompts that are read in chunks: decode steps come in between, and every token stays what it was."""

from dataclasses import replace

import pytest

import racecheck
from racecheck.engine import Engine, EngineConfig, Parts
from racecheck.engine.model import Model
from racecheck.engine.resources import Sampler
from racecheck.engine.resources.base import padded
from racecheck.errors import UsageError
from racecheck.virtual import virtual_cuda

MODELS = ("qwen3-tts", "orpheus", "qwen3-omni")
PREFILLS = {"qwen3-tts": ("talker.prefill",), "orpheus": ("prefill",)}


class CountsEveryChunk(Sampler):
    """Samples into the request's own row also where its prompt goes on."""

    def layout(self, batch):
        """Every entry's row."""
        rows = [entry.row for entry in batch.entries]
        return (padded(rows, self._requests, 0, self._seed.dtype),)


def sharing(requests):
    """The same requests, all with the text of the first, so that whoever comes finds its pages cached."""
    return [
        replace(one, text=requests[0].text, prompt_tokens=9, arrival=at) for at, one in enumerate(requests)
    ]


@pytest.mark.parametrize(("model", "chunk"), [("orpheus", 1), ("orpheus", 100), *((m, 4) for m in MODELS)])
def test_tokens_are_the_same(serve, make, serial, model, chunk):
    """Whatever the size of a chunk; one that holds every prompt changes nothing."""
    assert serve(make(model=model), model=model, prefill_chunk=chunk) == serial(model)


@pytest.mark.parametrize(
    ("model", "kind"),
    [("qwen3-tts", "main"), ("orpheus", "piecewise"), ("orpheus", "eager"), ("qwen3-tts", "per-request")],
)
def test_every_runner_reads_chunks(serve, make, serial, model, kind):
    """Also planned ahead: a plan for the next chunk is right if nobody joins."""
    walks = dict.fromkeys(PREFILLS[model], kind)
    assert serve(make(model=model), model=model, walks=walks, prefill_chunk=3) == serial(model)


def test_decode_steps_come_in_between(config, make):
    """A prompt's chunks are steps of their own, whose tokens nobody gets; the run is clean."""
    batches = []
    with virtual_cuda(lag="latest"):
        engine = Engine(config("orpheus", prefill_chunk=2))
        with racecheck.audit() as audit:
            tokens = engine.run(make(4, model="orpheus"), on_step=batches.append)
    mine = [(batch.walk, entry) for batch in batches for entry in batch.entries if entry.id == "r0"]
    prompt = [entry for walk, entry in mine if walk == "prefill"]
    assert [entry.partial for entry in prompt] == [True] * (len(prompt) - 1) + [False]
    assert [entry.start for entry in prompt[1:]] == [entry.end for entry in prompt[:-1]]
    walks = [batch.walk for batch in batches]
    assert "decode" in walks[: len(walks) - walks[::-1].index("prefill")]
    assert len(tokens["r0"]) == sum(not entry.partial for _, entry in mine)
    assert audit.verdict == "clean"


def test_a_preempted_request_reads_its_prompt_again(serve, make, serial):
    """Also if it loses its row between two chunks."""
    requests = [replace(one, preempt_after=at % 3 + 1) for at, one in enumerate(make(model="orpheus"))]
    assert serve(requests, model="orpheus", prefill_chunk=4) == serial("orpheus")


def test_a_chunk_must_not_sample(serve, make, serial):
    """What a chunk would sample counts for the penalty: the tokens show it."""
    wrong = serve(
        make(model="orpheus"), model="orpheus", prefill_chunk=4, parts=Parts(sampler=CountsEveryChunk)
    )
    assert wrong != serial("orpheus")


def test_a_prefix_is_shared_as_far_as_it_is_computed(serve, make, monkeypatch):
    """Pages of later chunks are nobody else's yet: with those the tokens are others."""
    requests = sharing(make(4, model="orpheus"))
    expected = serve(requests, model="orpheus", lag="eager", run_ahead=0)
    assert serve(requests, model="orpheus", prefill_chunk=4) == expected
    reserve = Model.reserve
    monkeypatch.setattr(Model, "reserve", lambda self, request, chunk: reserve(self, request))
    together = [replace(one, arrival=0) for one in requests]
    expected = serve(together, model="orpheus", lag="eager", run_ahead=0)
    assert serve(together, model="orpheus", prefill_chunk=1) != expected


def test_a_negative_chunk_is_refused():
    """One line."""
    with pytest.raises(UsageError, match="prefill_chunk must be 0"):
        EngineConfig(prefill_chunk=-1)
