"""Staging must not show in the tokens; with too few slots and a late device it does."""

from dataclasses import replace

import pytest

from racecheck.engine import Engine, Parts
from racecheck.engine.resources import Sampler
from racecheck.virtual import virtual_cuda

LAGS = ("eager", "latest", "seed:1")


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize(("run_ahead", "slots"), [(1, 2), (1, 3), (2, 3)])
def test_enough_slots_give_the_serial_tokens(serve, make, reference, lag, run_ahead, slots):
    """With run_ahead + 1 slots or more, any legal lateness gives the tokens of the serial engine."""
    assert serve(make(), lag=lag, run_ahead=run_ahead, slots=slots) == reference


@pytest.mark.parametrize("runner", ["main", "piecewise", "eager"])
def test_one_slot_changes_tokens_on_a_late_device(serve, make, reference, runner):
    """One slot in any one runner: a step reads the next step's layout, and its tokens change."""
    assert serve(make(), lag="latest", slots={runner: 1}) != reference


@pytest.mark.parametrize("runner", ["main", "piecewise", "eager"])
def test_one_slot_goes_unnoticed_on_a_prompt_device(serve, make, reference, runner):
    """The same bug when every copy wins: all tokens are right, so values alone are no verdict."""
    assert serve(make(), lag="eager", slots={runner: 1}) == reference


def test_two_slots_are_too_few_for_run_ahead_two(serve, make, reference):
    """The bound is run_ahead + 1, not two."""
    assert serve(make(), lag="latest", run_ahead=2, slots=2) != reference


def test_unequal_slot_counts_meet(serve, make, reference):
    """Two and three slots over shared buffers: after some turns consecutive steps get the same slot."""
    assert serve(make(), lag="latest", slots={"main": 2, "piecewise": 3, "eager": 3}) != reference


def test_a_request_gets_the_same_tokens_alone(serve, make, reference):
    """Noise depends on seed, position and group only: neither batch nor row nor order matter."""
    one = make()[4]
    assert serve([one])[one.id] == reference[one.id]


def test_more_requests_than_rows(serve, make):
    """Requests that wait for a row and get a recycled one are served alike at any run-ahead."""
    requests = make(13, last_arrival=0, frames=(1, 4))
    serial = serve(requests, lag="eager", run_ahead=0)
    assert {request.id: request.new_tokens for request in requests} == {i: len(f) for i, f in serial.items()}
    for run_ahead in (1, 2):
        assert serve(requests, run_ahead=run_ahead, slots=3) == serial


def test_an_engine_serves_again(make, reference):
    """A second run continues the rotation and the step count, and gives the same tokens."""
    with virtual_cuda(lag="latest"):
        engine = Engine()
        assert engine.run(make()) == reference
        steps = engine.step_count
        assert engine.run(make()) == reference
        assert engine.step_count == 2 * steps


def test_steps_bound_a_run(make, reference):
    """A run cut short returns the frames of its steps, waits for them all and drops its requests."""
    with virtual_cuda(lag="latest"):
        engine = Engine()
        tokens = engine.run(make(), steps=6)
        assert engine.step_count == 6
        assert len(engine.results) == 0
        assert 0 < sum(map(len, tokens.values())) < sum(map(len, reference.values()))
        assert all(frames == reference[name][: len(frames)] for name, frames in tokens.items())
        assert engine.run(make()) == reference


def test_seed_and_temperature_matter(serve, make):
    """Another seed gives other tokens, and so does another temperature."""
    one = make()[0]
    variants = [one, replace(one, seed=one.seed + 1), replace(one, temperature=1.7)]
    assert len({str(serve([variant], lag="eager")) for variant in variants}) == 3


class _SwappedRows(Sampler):
    """Gathers its requests' rows in reverse."""

    def layout(self, batch):
        (rows,) = super().layout(batch)
        rows[: batch.size] = rows[: batch.size].flip(0)
        return (rows,)


@pytest.mark.parametrize("name", ["talker_sampler", "code_predictor_sampler"])
def test_wrong_gather_indices_show(serve, make, reference, name):
    """Either sampler with its rows swapped changes tokens; the code predictor's leave group 0 of a first
    frame alone.
    """

    def sampler(own, *args):
        return (_SwappedRows if own == name else Sampler)(own, *args)

    tokens = serve(make(), lag="eager", parts=Parts(sampler=sampler))
    assert tokens != reference
    first = [tokens[i][0][0] == reference[i][0][0] for i in reference]
    assert all(first) == (name == "code_predictor_sampler")
