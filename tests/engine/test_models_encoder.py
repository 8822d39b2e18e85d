"""Encoders: attention stays inside segments, and packing does not matter."""

import pytest
import torch

from racecheck.engine.models import Encoder, RaggedAttention, Weights, preset
from racecheck.virtual import virtual_cuda

OMNI = preset("qwen3-omni", "tiny")
both = pytest.mark.parametrize("spec", [OMNI.audio, OMNI.vision], ids=["audio", "vision"])


def features_of(spec, tokens):
    """Seeded features of `tokens` tokens on the device."""
    draw = torch.Generator().manual_seed(6)
    return torch.randn(tokens, spec.features, generator=draw).to("cuda")


def ragged(ends, tokens):
    """Ragged attention of segments that end at `ends`, with a padded entry."""
    cu_seqlens = torch.tensor([0, *ends, ends[-1]], dtype=torch.int32).to("cuda")
    return RaggedAttention(cu_seqlens, tokens, torch.float32)


@both
def test_packed_segments_equal_segments_alone(spec):
    """Every segment's embeddings are those it has alone; tokens of the bucket's padding change nothing."""
    with virtual_cuda("eager"), torch.no_grad():
        encoder = Encoder(spec, Weights(0, torch.float32))
        x = encoder.preamble(features_of(spec, 32))
        packed = encoder.project(encoder.blocks(x, ragged((8, 12, 28), 32))).cpu()
        assert packed.shape == (32 // spec.merge, spec.out)
        for start, end in ((0, 8), (8, 12), (12, 28)):
            alone = encoder.project(encoder.blocks(x[start:end], ragged((end - start,), end - start)))
            torch.testing.assert_close(packed[start // spec.merge : end // spec.merge], alone.cpu())


@both
def test_other_segments_give_other_embeddings(spec):
    """A wrong cu_seqlens shows: tokens that saw another segment come out differently."""
    with virtual_cuda("eager"), torch.no_grad():
        encoder = Encoder(spec, Weights(0, torch.float32))
        x = encoder.preamble(features_of(spec, 16))
        right, wrong = (encoder.blocks(x, ragged(ends, 16)).cpu() for ends in ((8, 16), (12, 16)))
    assert (right - wrong).abs().amax(1).min() > 1e-3


def test_corrupted_segments_are_harmless():
    """Any cu_seqlens, unsorted or out of range, keeps every index inside its tensor."""
    with virtual_cuda("eager"), torch.no_grad():
        encoder = Encoder(OMNI.audio, Weights(0, torch.float32))
        x = encoder.preamble(features_of(OMNI.audio, 8))
        cu_seqlens = torch.tensor([7, -3, 2**31 - 1, 2], dtype=torch.int32).to("cuda")
        assert encoder.blocks(x, RaggedAttention(cu_seqlens, 8, torch.float32)).cpu().isfinite().all()


def test_a_replay_follows_the_staged_segments():
    """The captured region attends by whatever cu_seqlens holds at the replay."""
    with virtual_cuda("latest"), torch.no_grad():
        encoder = Encoder(OMNI.audio, Weights(0, torch.float32))
        x = encoder.preamble(features_of(OMNI.audio, 16))
        cu_seqlens = torch.tensor([0, 16, 16], dtype=torch.int32).to("cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = encoder.blocks(x, RaggedAttention(cu_seqlens, 16, torch.float32))
        for ends in ((4, 16), (12, 16)):
            cu_seqlens.copy_(torch.tensor([0, *ends], dtype=torch.int32))
            graph.replay()
            expected = encoder.blocks(x, ragged(ends, 16))
            assert torch.equal(out.cpu(), expected.cpu())
