"""A preempted request gives up its row and pages, starts anew, and gets the same in the end."""

from dataclasses import replace

import pytest

import racecheck
from racecheck.engine import Engine, RequestError
from racecheck.virtual import virtual_cuda


def preempted(requests):
    """Every other one loses its row after its second step."""
    return [replace(one, preempt_after=2 if at % 2 else None) for at, one in enumerate(requests)]


@pytest.mark.parametrize("model", ["qwen3-tts", "orpheus"])
def test_it_gets_the_same(serial, serve, make, model):
    """The tokens of a serial run without any preemption."""
    assert serve(preempted(make(model=model)), model=model) == serial(model)


def test_it_starts_anew_and_rows_come_free(config, make):
    """Its first stage runs twice; all rows are back in the end, and the run is clean."""
    batches = []
    with virtual_cuda(lag="latest"):
        engine = Engine(config("orpheus"))
        with racecheck.audit() as audit:
            engine.run(preempted(make(4, model="orpheus")), on_step=batches.append)
        scheduler = engine.worker.scheduler
        assert len(scheduler.free_rows) == engine.model.max_requests
        prefills = [e.id for b in batches for e in b.entries if b.walk == "prefill"]
        assert [prefills.count(name) for name in ("r0", "r1", "r2", "r3")] == [1, 2, 1, 2]
        events = engine.events()
    assert audit.verdict == "clean"
    assert events["pre-plan promoted"] > 0


def test_a_client_that_hangs_up_at_the_same_step_is_gone(config, make):
    """It does not come back."""
    (request,) = make(1, model="orpheus")
    with virtual_cuda():
        tokens = Engine(config("orpheus")).run([replace(request, cancel_after=2, preempt_after=2)])
    assert len(tokens[request.id]) <= 2


def test_a_wrong_count_is_refused(config, make):
    """As that of a client that hangs up is."""
    (request,) = make(1)
    with virtual_cuda(), pytest.raises(RequestError, match="preempt_after must lie in"):
        Engine(config("qwen3-tts")).run([replace(request, preempt_after=0)])
