"""The tensor math of the reference engine's models: shapes, layers, stacks, codecs, encoders, sampling.

Plain torch on device "cuda". All of it can be captured: shapes are static, nothing waits for the host,
and no staged index that has gone wrong leads out of a tensor.
"""

from racecheck.engine.models.code_predictor import CodePredictor
from racecheck.engine.models.codec import Codec, SnacDecoder
from racecheck.engine.models.encoder import Encoder, RaggedAttention
from racecheck.engine.models.latent import PagedLatent
from racecheck.engine.models.layers import Weights
from racecheck.engine.models.presets import preset
from racecheck.engine.models.transformer import LanguageModel, Talker

__all__ = [
    "CodePredictor",
    "Codec",
    "Encoder",
    "LanguageModel",
    "PagedLatent",
    "RaggedAttention",
    "SnacDecoder",
    "Talker",
    "Weights",
    "preset",
]
