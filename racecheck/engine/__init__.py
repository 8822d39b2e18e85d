"""The reference engine: small, plain `torch.cuda`, staged the way a real inference engine stages.

    engine = Engine(EngineConfig(run_ahead=1, slots={"main": 2, "piecewise": 2, "eager": 2}))
    ask = Request("a", 0, prompt_tokens=8, new_tokens=12, temperature=0.9, seed=1, text=[7] * 20)
    items = engine.run([ask])["a"]      # twelve tuples, one code a group, and the sound of them as bytes

It does not know whether the device below it is real: everything goes through `torch.cuda` and
`racecheck.staging`. Read it from `engine.py` (the threads) and `worker.py` (the loop) down to `node.py`
(one step), then `runners/`, `resources/`, and the three models in `walks/`; `models/` is their tensor math.
"""

from racecheck.engine.config import EngineConfig, Parts
from racecheck.engine.engine import Engine
from racecheck.engine.errors import NoGraphError, RequestError
from racecheck.engine.models.presets import preset
from racecheck.engine.models.spec import ModelSpec
from racecheck.engine.request import Batch, Entry, Request
from racecheck.engine.walks import check_request

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
    "check_request",
    "preset",
]
