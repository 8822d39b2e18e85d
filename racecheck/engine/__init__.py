"""The reference engine: small, plain `torch.cuda`, staged the way a real inference engine stages.

    engine = Engine(EngineConfig(run_ahead=1, slots={"main": 2, "piecewise": 2, "eager": 2}))
    ask = Request("a", 0, prompt_tokens=8, new_tokens=12, temperature=0.9, seed=1, text=[7] * 20)
    frames = engine.run([ask])["a"]     # twelve tuples, one code a group

It does not know whether the device below it is real: everything goes through `torch.cuda` and
`racecheck.staging`. Read it from `engine.py` (the loop) down to `node.py` (one step), then `resources/`.
"""

from racecheck.engine.config import EngineConfig, Parts
from racecheck.engine.engine import Engine
from racecheck.engine.errors import NoGraphError, RequestError
from racecheck.engine.request import Batch, Entry, Request
from racecheck.engine.models.presets import preset
from racecheck.engine.models.spec import ModelSpec

__all__ = [
    "Batch",
    "Engine",
    "EngineConfig",
    "Entry",
    "ModelSpec",
    "NoGraphError",
    "Parts",
    "Request",
    "RequestError",
    "preset",
]
