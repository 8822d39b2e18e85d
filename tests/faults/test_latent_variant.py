"""Latent attention as a resource: the engine with it gives the tokens of the serial one."""

from __future__ import annotations

from racecheck.engine import Engine, EngineConfig
from racecheck.faults.staging import latent
from racecheck.faults.workload import requests_for, small
from racecheck.virtual import virtual_cuda


def serve(run_ahead, lag):
    """Tokens of a small latent orpheus."""
    with virtual_cuda(lag=lag):
        config = EngineConfig(spec=latent(small("orpheus")), run_ahead=run_ahead)
        return Engine(config).run(requests_for("orpheus", 0)[:6])


def test_latent_tokens_do_not_depend_on_the_run_ahead():
    """One cached row a token serves all heads, whoever shares the batch and however late the device is."""
    serial = serve(0, "eager")
    assert serve(1, "latest") == serial
    assert len({str(items) for items in serial.values()}) == 6
