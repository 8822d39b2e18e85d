"""Decode steps of all decoders: rows do not see each other, graphs repeat them, and they stay cheap."""

from dataclasses import replace

import pytest
import torch
from model_steps import step_of

from racecheck.engine.models import LanguageModel, Weights, preset
from racecheck.engine.models.presets import LATENT_TINY
from racecheck.trace import Trace, subscribe
from racecheck.trace.records import Capture
from racecheck.virtual import virtual_cuda

ORPHEUS = preset("orpheus", "tiny")
LATENT = replace(ORPHEUS.decoder, stack=replace(ORPHEUS.decoder.stack, layers=2, latent=LATENT_TINY))
DECODERS = {
    "qwen3-tts talker": (preset("qwen3-tts", "tiny"), "talker", 260),
    "orpheus": (ORPHEUS, "decoder", 66),
    "orpheus with latent attention": (replace(ORPHEUS, decoder=LATENT), "decoder", 108),
    "thinker": (preset("qwen3-omni", "tiny"), "thinker", 74),
    "omni talker": (preset("qwen3-omni", "tiny"), "talker", 260),
}
every_decoder = pytest.mark.parametrize(
    ("spec", "node", "operations"), DECODERS.values(), ids=DECODERS.keys()
)


def capture(step):
    """A graph of `step` and the outputs it fills."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step()
    return graph, outputs


@every_decoder
def test_a_row_is_the_same_in_every_bucket(spec, node, operations):
    """Bit for bit: hidden states and tokens of a request do not depend on who shares its batch."""
    with virtual_cuda("eager"), torch.no_grad():
        hidden, tokens = (out.cpu() for out in step_of(spec, node, 8)())
        for rows in (1, 2, 3, 4, 5):
            fewer_hidden, fewer_tokens = (out.cpu() for out in step_of(spec, node, rows)())
            assert torch.equal(fewer_hidden, hidden[:rows])
            assert torch.equal(fewer_tokens, tokens[:rows])
    assert len({tuple(row.flatten().tolist()) for row in tokens}) > 4  # and rows differ at all


@every_decoder
def test_a_replay_repeats_the_eager_step(spec, node, operations):
    """A captured step gives the eager step's numbers, again and again."""
    with virtual_cuda("latest"), torch.no_grad():
        expected = [out.cpu() for out in step_of(spec, node, 4)()]
        step = step_of(spec, node, 4)
        graph, outputs = capture(step)
        for _ in range(2):
            graph.replay()
            assert all(torch.equal(out.cpu(), value) for out, value in zip(outputs, expected, strict=True))


@every_decoder
@pytest.mark.parametrize("rows", [1, 4])
def test_a_step_is_cheap_to_replay(spec, node, operations, rows):
    """The operations of one decode step stay below their limit, also in the buckets that pad rows."""
    trace = Trace()
    with virtual_cuda("latest"), torch.no_grad():
        step = step_of(spec, node, rows)
        step()  # makes the thread's cuBLAS handle
        with subscribe(trace):
            capture(step)
    (graph,) = [record for record in trace if isinstance(record, Capture)]
    assert {captured.kind for captured in graph.nodes} <= {"kernel", "d2d"}
    assert len(graph.nodes) <= operations + (30 if rows < 4 else 0)


@every_decoder
def test_bfloat16_follows_float32(spec, node, operations):
    """The full presets' type runs everywhere, with hidden states near those of float32."""
    with virtual_cuda("eager"), torch.no_grad():
        exact, rounded = (step_of(spec, node, 4, dtype)()[0] for dtype in (torch.float32, torch.bfloat16))
        assert rounded.dtype == torch.bfloat16
        assert torch.cosine_similarity(exact, rounded.float()).min().item() > 0.99


def test_a_position_outside_the_table_is_harmless():
    """A corrupted position reads the table's ends instead of memory beyond it."""
    spec = ORPHEUS.decoder
    with virtual_cuda("eager"), torch.no_grad():
        model = LanguageModel(spec, Weights(0, torch.float32))
        x = model.embed(torch.tensor([1, 2, 3, 4]).to("cuda"))

        def hidden(*position):
            where = torch.tensor(position).to("cuda")
            return model.forward(x, where, lambda layer, q, k, v: (q + q.roll(1, 0)).flatten(1)).cpu()

        assert torch.equal(hidden(-5, 3, 10**12, 64), hidden(0, 3, 63, 63))


def test_weights_on_either_device():
    """Drawn on the CPU or on the device, the same seed gives the same weights again."""
    with virtual_cuda("eager"):
        for draw in ("cpu", "cuda"):
            first, again, other = (
                Weights(seed, torch.float32, draw).normal(4, 4).cpu() for seed in (1, 1, 2)
            )
            assert torch.equal(first, again)
            assert not torch.equal(first, other)
