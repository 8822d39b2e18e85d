"""The models as the engine runs them: nodes, walks, and the way of a request through them."""

from __future__ import annotations

from typing import Any

from racecheck.engine.build import Builder
from racecheck.engine.model import Model
from racecheck.engine.models.spec import ModelSpec, OrpheusSpec, Qwen3OmniSpec, Qwen3TTSSpec
from racecheck.engine.request import Request
from racecheck.engine.walks.orpheus import Orpheus
from racecheck.engine.walks.qwen3_omni import Qwen3Omni
from racecheck.engine.walks.qwen3_tts import Qwen3TTS

_MODELS: dict[type[ModelSpec], Any] = {
    Qwen3TTSSpec: Qwen3TTS,
    OrpheusSpec: Orpheus,
    Qwen3OmniSpec: Qwen3Omni,
}


def build_model(build: Builder) -> Model:
    """The model of `build.spec`, with random weights."""
    model: Model = _MODELS[type(build.spec)](build, build.spec)
    build.check()
    return model


def check_request(spec: ModelSpec, request: Request) -> None:
    """Raise `RequestError` unless a model of `spec` can serve `request`."""
    _MODELS[type(spec)].check(spec, request)
