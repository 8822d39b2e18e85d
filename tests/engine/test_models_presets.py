"""The presets: full ones have the published sizes, tiny ones the full ones' structure."""

from dataclasses import fields, is_dataclass

import pytest
import torch

from racecheck.engine.models import Codec, CodePredictor, Encoder, LanguageModel, Talker, Weights, preset
from racecheck.errors import UsageError
from racecheck.virtual import virtual_cuda

MODELS = ("qwen3-tts", "orpheus", "qwen3-omni")


class Counted(Weights):
    """Weights that have a shape but no memory."""

    def __init__(self):
        super().__init__(0, torch.bfloat16)
        self.count = 0

    def normal(self, *shape, scale=1.0):
        """Count instead of drawing."""
        weight = torch.empty(shape, dtype=self.dtype, device="meta")
        self.count += weight.numel()
        return weight


def parameters(spec, *parts):
    """The parameters of all `parts` built for `spec`."""
    with virtual_cuda("eager"):
        weights = Counted()
        for part in parts:
            part(spec, weights)
    return weights.count


def full(model, node):
    """A part's spec in the full preset."""
    return getattr(preset(model, "full"), node)


@pytest.mark.parametrize(
    ("model", "node", "parts", "billions"),
    [
        # Published as 0.6B, which leaves out the text embedding (0.31B).
        ("qwen3-tts", "talker", (Talker, CodePredictor), 0.90),
        # Published as 3B with the head tied to the embedding; ours has both (0.48B each).
        ("orpheus", "decoder", (LanguageModel,), 3.78),
        ("qwen3-omni", "thinker", (LanguageModel,), 30.5),
        # The stack is published as 3B; the rest is the text embedding and the code predictor.
        ("qwen3-omni", "talker", (Talker, CodePredictor), 3.5),
        ("qwen3-omni", "audio", (Encoder,), 0.65),
        ("qwen3-omni", "vision", (Encoder,), 0.54),
    ],
)
def test_full_presets_have_the_published_size(model, node, parts, billions):
    """Parameters, counted on tensors without memory."""
    assert parameters(full(model, node), *parts) / 1e9 == pytest.approx(billions, rel=0.05)


@pytest.mark.parametrize(("model", "hop"), [("qwen3-tts", 1920), ("orpheus", 512), ("qwen3-omni", 1920)])
def test_full_codecs_have_the_published_rate(model, hop):
    """At 24 kHz: 12.5 frames a second of 1920 samples; SNAC's finest codebook has 512 samples a step."""
    spec = full(model, "codec")
    assert spec.hop == hop
    assert 5e6 < parameters(spec, Codec) < 3e8


def structure(spec):
    """What must be alike: optional parts that are present, and lengths of pipelines."""
    if not is_dataclass(spec):
        return bool(spec) if isinstance(spec, int | float) or spec is None else type(spec)
    varying = {"dtype", "draw", "buckets", "prefill_tokens", "prefill_requests", "rates", "channels"}
    return {field.name: structure(getattr(spec, field.name)) for field in fields(spec)
            if field.name not in varying}  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_tiny_has_the_structure_of_full(model):
    """The same nodes, and in each the same features: experts, qk-norm, padding, penalties, context."""
    assert structure(preset(model, "tiny")) == structure(preset(model, "full"))


@pytest.mark.parametrize("size", ["tiny", "full"])
@pytest.mark.parametrize("model", MODELS)
def test_windows_and_channels_fit(model, size):
    """A codec's context and new steps lie in its window, and it has a rate for each stage."""
    codec = preset(model, size).codec
    assert codec.context + codec.new <= codec.window
    assert len(codec.rates) == len(codec.channels)


def test_limits_cover_prefills_and_buckets():
    """Staged buffers hold the largest packed prefill, or every request's prompt when prefill is eager."""
    talker = preset("qwen3-tts", "full").talker.limits
    assert (talker.max_batch, talker.max_tokens, talker.pages_per_request) == (32, 32 * 9, 64)
    decoder = preset("orpheus", "full").decoder.limits
    assert (decoder.max_batch, decoder.max_tokens) == (16, 1024)


def test_an_unknown_preset_is_refused():
    """The error names the known ones."""
    with pytest.raises(UsageError, match="known are: qwen3-tts tiny, orpheus tiny"):
        preset("gpt-2", "tiny")
