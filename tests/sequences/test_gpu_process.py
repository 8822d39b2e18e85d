"""Sequences on a GPU: one process for many, a new one where a run spoilt it. A virtual device stands in."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace

import pytest
import served
import torch
from free_gate import Free

from racecheck.cli import main
from racecheck.errors import UsageError
from racecheck.provider import own_device
from racecheck.sequences import Ask, StepSequence, Target, gpu_process
from racecheck.sequences.campaign import Campaign
from racecheck.sequences.gpu_process import GpuProcess
from racecheck.sequences.on_gpu import outcome_here
from racecheck.virtual import virtual_cuda

STORY = StepSequence((Ask(8, new=3), Ask(8, arrival=1, new=3)), 8)


@pytest.fixture
def serving(monkeypatch):
    """The client of a process that does as `serve` does, waited for so many seconds."""

    def start(serve, patience=60):
        monkeypatch.setattr(gpu_process, "_serve", serve or gpu_process._serve)
        monkeypatch.setattr(gpu_process, "PATIENCE", patience)
        return GpuProcess(Target(name="x", model="orpheus"))

    return start


def test_one_process_serves_until_it_says_that_it_cannot_go_on(serving):
    """A CUDA error stays in its process: the sequence behind it has another one."""
    engine = serving(served.well)
    try:
        first, second, last, after = (engine.run(replace(STORY, steps=n)).message for n in (1, 2, 5, 6))
    finally:
        engine.close()
    assert engine.hoped_for == ("promoted",)
    assert first == second == last != after


@pytest.mark.parametrize(
    ("serve", "patience", "signature"),
    [
        (served.dying, 60, "crash SIGKILL"),
        (served.tearing, 60, "crash SIGKILL"),
        (served.hanging, 0.05, "stuck"),
        (served.stalling, 0.05, "stuck"),
    ],
)
def test_a_run_that_dies_or_never_ends_is_an_outcome(serving, serve, patience, signature):
    """In the middle of an answer, too; the next run has a new process."""
    engine = serving(serve, patience=patience)
    try:
        assert [engine.run(STORY).signature for _ in range(2)] == [signature] * 2
    finally:
        engine.close()


def test_a_process_that_went_away_between_two_runs_is_replaced(serving):
    """It said nothing."""
    engine = serving(served.ending)
    try:
        first, second = (engine.run(STORY) for _ in range(2))
    finally:
        engine.close()
    assert (first.verdict, second.verdict) == ("clean", "clean")
    assert first.message != second.message


def test_a_bug_is_raised_and_its_process_over(serving):
    """What it was is the caller's to tell."""
    engine = serving(served.raising)
    try:
        for _ in range(2):
            with pytest.raises(KeyError, match="a bug"):
                engine.run(STORY)
    finally:
        engine.close()


def test_an_engine_that_is_never_built_is_one_line(serving, monkeypatch):
    """Its process is ended."""
    monkeypatch.setattr(gpu_process, "BUILD_PATIENCE", 0.05)
    before = set(multiprocessing.active_children())
    with pytest.raises(UsageError, match="not built within"):
        serving(served.building)
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize(
    ("serve", "error", "said"),
    [
        (served.refusing, UsageError, "there is no engine"),
        (served.mute, RuntimeError, "without a word"),
        (None, UsageError, "no CUDA GPU"),
    ],
)
def test_a_process_that_cannot_serve_says_why(serving, serve, error, said):
    """The last one is the real one, on a machine without a GPU."""
    if serve is None and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(error, match=said):
        serving(serve)


def test_the_right_engine_is_clean_with_evidence(target):
    """Windows, events and moves are counted as on the virtual device."""
    with virtual_cuda():
        outcome = outcome_here(target(), STORY, gate=Free)
    assert (outcome.verdict, outcome.signature, outcome.tokens) == ("clean", None, None)
    assert outcome.open_windows > 0
    assert outcome.steps > 0
    assert {"admit", "finish"} <= set(outcome.events)


def test_a_fault_has_one_signature_and_reasons_on_request(target, built):
    """The same findings as in a fork; the first by fingerprint is the one that names them."""
    faulty = target(fault="captured-copy")
    with virtual_cuda():
        plain, told = (outcome_here(faulty, STORY, explain, gate=Free) for explain in (False, True))
    forked = built(fault="captured-copy").run(STORY, explain=True)
    assert plain.signature == told.signature == min(f.base_fingerprint for f in forked.findings)
    assert {f.base_fingerprint for f in told.findings} == {f.base_fingerprint for f in forked.findings}
    assert told.findings[0].repair is not None


def test_an_error_of_cuda_s_is_a_crash_and_any_other_a_bug(target, monkeypatch):
    """Nothing was found that explains it."""
    with virtual_cuda(), monkeypatch.context() as patched:
        patched.setattr(
            Target, "build", lambda self: (_ for _ in ()).throw(torch.AcceleratorError("illegal"))
        )
        assert outcome_here(target(), STORY, gate=Free).signature == "crash AcceleratorError"
        patched.setattr(Target, "build", lambda self: {}["x"])
        with pytest.raises(KeyError):
            outcome_here(target(), STORY, gate=Free)


@pytest.mark.parametrize(
    ("worker", "devices", "index"), [("", 1, 0), ("gw0", 1, 0), ("gw3", 1, 1), ("gw3", 2, 0)]
)
def test_workers_take_turns_at_the_gpus(monkeypatch, worker, devices, index):
    """Who needs several has the first ones."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    with virtual_cuda(devices=2), own_device(devices):
        assert torch.cuda.current_device() == index


def test_a_gpu_s_campaign_is_another_one(target, space, tmp_path):
    """It keeps its results elsewhere."""
    here, there = (Campaign(target(), space, 0, 25, device) for device in ("virtual", "cuda"))
    assert here.folder(tmp_path) != there.folder(tmp_path)


@pytest.mark.parametrize(("device", "said"), [("tpu", "write virtual or cuda"), ("cuda", "no CUDA GPU")])
def test_fuzz_on_a_device_that_is_not_there(device, said, capsys):
    """One line and exit code 2."""
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert main(["fuzz", "scenarios/orpheus.toml", "--device", device]) == 2
    assert said in capsys.readouterr().err
