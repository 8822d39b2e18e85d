"""A step that fails takes nothing with it: the next run finds slots, layouts, rows and pages as new."""

from __future__ import annotations

import pytest

from racecheck import audit
from racecheck.engine import Engine, Parts
from racecheck.engine.resources import KV, Position, Sampler
from racecheck.engine.results import Results
from racecheck.engine.runners import MainRunner
from racecheck.virtual import virtual_cuda


class BrokenError(Exception):
    """What goes wrong."""


def failing(part, method, at):
    """`part` whose `method` fails the `at`-th time."""
    calls = []

    def call(self, *args, **settings):
        calls.append(args)
        if len(calls) == at:
            raise BrokenError
        return getattr(part, method)(self, *args, **settings)

    return type(f"Failing{part.__name__}", (part,), {method: call})


@pytest.mark.parametrize(
    ("kind", "part", "method", "run_ahead"),
    [
        ("main", MainRunner, "plan", 1),
        ("main", MainRunner, "launch", 1),
        ("main", MainRunner, "replay", 0),
        ("sampler", Sampler, "plan", 2),
        ("position", Position, "layout", 1),
        ("sampler", Sampler, "admit", 2),
        ("results", Results, "lease", 1),
    ],
)
def test_the_next_run_is_clean(make, config, serial, kind, part, method, run_ahead):
    """No layout, place, page or copy of the failed step is left, and the tokens are the serial ones."""
    parts = Parts(**{kind: failing(part, method, 6)})
    with virtual_cuda(lag="latest"), audit() as verdict:
        engine = Engine(config("orpheus", run_ahead=run_ahead), parts)
        with pytest.raises(BrokenError):
            engine.run(make(model="orpheus"))
        resources = [one for node in engine.model.nodes for one in node.resources]
        assert {step for one in resources for step in one._declared} == set()
        assert [one._pages for one in resources if isinstance(one, KV)] == [{}]
        assert (len(engine.results), len(engine.results._free)) == (0, run_ahead + 1)
        assert engine.run(make(model="orpheus")) == serial("orpheus")
    assert verdict.findings == []
