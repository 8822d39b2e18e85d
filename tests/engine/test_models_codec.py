"""Codecs: the samples of a window, alone or in a batch."""

from dataclasses import replace

import pytest
import torch

from racecheck.engine.models import Codec, SnacDecoder, Weights, preset
from racecheck.engine.models.codec import upsample
from racecheck.virtual import virtual_cuda

MODELS = ("qwen3-tts", "orpheus", "qwen3-omni")
every_model = pytest.mark.parametrize("model", MODELS)


def make(model):
    """A tiny codec of `model`, and a batch of as many random windows as its largest bucket."""
    spec = preset(model, "tiny").codec
    shape = (28,) if model == "orpheus" else (spec.window, spec.groups)
    draw = torch.Generator().manual_seed(3)
    codes = torch.randint(128, (spec.buckets[-1], *shape), generator=draw).to("cuda")
    kind = SnacDecoder if model == "orpheus" else Codec
    return kind(spec, Weights(0, torch.float32)), codes


@every_model
def test_a_window_sounds_the_same_in_every_batch(model):
    """Bit for bit: samples do not depend on the bucket, nor on the row."""
    spec = preset(model, "tiny").codec
    with virtual_cuda("eager"), torch.no_grad():
        codec, codes = make(model)
        samples = codec.forward(codes).cpu()
        assert samples.dtype == torch.int16
        assert samples.shape == (spec.buckets[-1], spec.new * spec.hop)
        for batch in spec.buckets:
            assert torch.equal(codec.forward(codes[:batch]).cpu(), samples[:batch])
        assert torch.equal(codec.forward(codes.flip(0)).cpu(), samples.flip(0))
    assert len(set(map(tuple, samples.tolist()))) == len(samples)
    assert samples.float().std() > 1000


@pytest.mark.parametrize(("model", "back"), [("qwen3-tts", 3 + 2), ("orpheus", 2), ("qwen3-omni", 3 + 2)])
def test_which_codes_matter(model, back):
    """The new steps' codes do, and `back` steps before: attention's reach and a step for each stage."""
    spec = replace(preset(model, "tiny").codec, window=12, context=8, new=2)
    with virtual_cuda("eager"), torch.no_grad():
        codec = Codec(spec, Weights(0, torch.float32))
        window, matter = torch.zeros(1, 12, spec.groups, dtype=torch.int64, device="cuda"), []
        samples = codec.forward(window).cpu()
        for step in range(12):
            other = window.clone()
            other[0, step] += 1
            matter.append(not torch.equal(codec.forward(other).cpu(), samples))
    assert [step for step in range(12) if matter[step]] == list(range(8 - back, 10))


@every_model
def test_codes_outside_the_codebook_wrap(model):
    """Special tokens and corrupted codes stay inside the tables: only the value modulo the size counts."""
    spec = preset(model, "tiny").codec
    with virtual_cuda("eager"), torch.no_grad():
        codec, codes = make(model)
        inside = codec.forward(codes).cpu()
        assert torch.equal(codec.forward(codes + spec.codebook * 10**9).cpu(), inside)
        assert torch.equal(codec.forward(codes - spec.codebook * 10**9).cpu(), inside)


@every_model
def test_a_replay_repeats_the_eager_chunk(model):
    """A captured chunk gives the eager samples, and follows its static input."""
    with virtual_cuda("latest"), torch.no_grad():
        codec, codes = make(model)
        expected = codec.forward(codes.flip(0)).cpu()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            samples = codec.forward(codes)
        codes.copy_(codes.flip(0))
        graph.replay()
        assert torch.equal(samples.cpu(), expected)


def test_a_stage_is_a_causal_transposed_convolution():
    """The product equals conv_transpose1d with kernel 2 * stride, cut behind the last step."""
    draw = torch.Generator().manual_seed(4)
    batch, steps, channels, out, rate = 2, 5, 3, 4, 2
    x, weight = (
        torch.randn(batch, steps, channels, generator=draw),
        torch.randn(6, rate * out, generator=draw),
    )
    before, own = (half.view(channels, rate, out).permute(0, 2, 1) for half in weight.split(channels))
    kernel = torch.cat((own, before), 2)  # [C, C', 2 * rate]: a step's own samples, then the next step's
    expected = torch.nn.functional.conv_transpose1d(x.transpose(1, 2), kernel, stride=rate)
    with virtual_cuda("eager"):
        result = upsample(x.to("cuda"), weight.to("cuda"), rate).cpu()
    torch.testing.assert_close(result, expected[..., : steps * rate].transpose(1, 2))


def test_snac_reads_tokens_of_a_frame_in_their_order():
    """A coarse token reaches all four steps of its frame, a middle one two, a fine one its own."""
    spec = preset("orpheus", "tiny").codec
    with virtual_cuda("eager"), torch.no_grad():
        codec, codes = make("orpheus")
        before = codec.forward(codes[:1]).cpu().view(-1, spec.hop)
        reached = []
        for index in range(7, 14):  # the frame that comes out
            other = codes[:1].clone()
            other[0, index] += 1
            after = codec.forward(other).cpu().view(-1, spec.hop)
            reached.append((before != after).any(1).nonzero().flatten().tolist())
    # Each of the two stages also looks one of its own steps back, so a code reaches two steps further.
    assert reached == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2], [1, 2, 3], [2, 3], [2, 3], [3]]
