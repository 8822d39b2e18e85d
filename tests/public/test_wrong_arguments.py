"""A wrong argument to a public function is one line with the cause, before anything has been done."""

from __future__ import annotations

import pytest
import torch

import racecheck
from racecheck import exact
from racecheck.errors import RacecheckError
from racecheck.virtual import explore, register

ANSWERS = [2, -1, None, "x", 1.0]


class Answering:
    """A lag of one's own that says the same to every question."""

    name = "mine"

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def decide(self, kind: str, options: int) -> object:
        """No answer but 0 and 1 is right."""
        return self.answer


def run(lag="latest", **options):
    """A context with one piece of work in it."""
    with racecheck.virtual_cuda(lag, **options):
        torch.zeros(4, device="cuda")


def buffer(name="b", shape=(4,), dtype=torch.int64, **options):
    """A staging buffer of one slot."""
    return racecheck.PinnedBuffer(name, shape, dtype, **options)


OUTSIDE = {
    **{f"lag answers {answer!r}": lambda answer=answer: run(Answering(answer)) for answer in ANSWERS},
    **{
        f"lag {lag!r:.20}": lambda lag=lag: run(lag)
        for lag in (
            None,
            5,
            {},
            iter([1]),
            Answering,
            [1.5],
            ["a"],
            [None],
            "seed:\u0663",
            "d1.\ud800",
            "d1.\u00e9",
        )
    },
    **{f"devices {n!r}": lambda n=n: run(devices=n) for n in (0, "2", 1.5, None)},
    **{f"patience {n!r}": lambda n=n: run(patience=n) for n in (0, "x", None, float("nan"))},
    **{f"limit {n!r}": lambda n=n: explore(run, limit=n) for n in (0, "x", 1.5)},
    **{f"polls {n!r}": lambda n=n: explore(run, polls=n) for n in (0, "x", 1.5)},
    "program": lambda: explore(3),
    "protect text": lambda: exact.protect("x").__enter__(),
    "unprotected text": lambda: exact.unprotected("x").__enter__(),
    "delays": lambda: racecheck.delays(None).__enter__(),
    "register a name": lambda: register("gather", torch.sum),
    "register a number": lambda: register(3, torch.sum),
    "register no function": lambda: register("mylib::gather", None),
    "buffer without a device": buffer,
    "host function without a device": lambda: racecheck.host_function(print),
}
INSIDE = {
    **{f"name {name!r}": lambda name=name: buffer(name) for name in (3, "", "a\nb")},
    **{f"slots {n!r}": lambda n=n: buffer(slots=n) for n in (0, "2", 1.5)},
    **{f"lease {n!r}": lambda n=n: buffer().lease(n) for n in (1, -1, "0", 0.0, None)},
    **{
        f"write {values!r}": lambda values=values: buffer().lease(0).write(values)
        for values in ([1] * 5, "abcd", None, [1.5] * 4, [2**70] * 4, [[1, 2], [3]])
    },
    "function": lambda: racecheck.host_function(None),
    "stream": lambda: racecheck.host_function(print, stream=3),
    "reads": lambda: racecheck.host_function(print, reads=["a"]),
    "writes": lambda: racecheck.host_function(print, writes=[torch.zeros(1, device="cuda")]),
}


@pytest.mark.parametrize("call", OUTSIDE)
def test_outside_a_context(call):
    """Lags, counts and functions."""
    with pytest.raises(RacecheckError) as raised:
        OUTSIDE[call]()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("call", INSIDE)
def test_inside_a_context(call):
    """Buffers, leases and host functions; the device goes on."""
    with racecheck.virtual_cuda():
        with pytest.raises(RacecheckError) as raised:
            INSIDE[call]()
        assert torch.ones(1, device="cuda").item() == 1
    assert "\n" not in str(raised.value)


def test_a_lag_of_ones_own_that_answers_well():
    """It decides, and reports have its name."""
    run(Answering(0))
    run(Answering(1))
