from __future__ import annotations

from pathlib import Path

import pytest
from samples import SCENARIO, TRACE, write_scenario

from racecheck.engine import preset
from racecheck.errors import ScenarioError
from racecheck.scenario.load import load
from racecheck.scenario.workload import Arrival, build_requests, read_arrivals

SPEC = preset("qwen3-tts", "tiny")


def test_arrivals_count_from_the_first_request(tmp_path: Path) -> None:
    """Times are relative to the first request taken, counts are the trace's."""
    path = write_scenario(tmp_path, SCENARIO.replace("requests = 3", "requests = 2\nfirst = 1"))
    assert read_arrivals(load(path)) == [Arrival(0.0, 100, 2), Arrival(1.5, 8, 3)]


def test_requests_follow_the_trace(tmp_path: Path) -> None:
    """Arrival steps and lengths come from the trace, scaled and clamped."""
    requests = build_requests(load(write_scenario(tmp_path)), 0, SPEC)
    assert [r.id for r in requests] == ["r0", "r1", "r2"]
    assert [r.arrival for r in requests] == [0, 2, 8]
    assert [len(r.text) for r in requests] == [5, 12, 8]
    assert [r.new_tokens for r in requests] == [4, 2, 3]
    assert all(2 <= r.prompt_tokens <= 3 for r in requests)


def test_no_two_requests_sample_alike(tmp_path: Path) -> None:
    """Temperatures and seeds are distinct, or a wrong sampler row would not show."""
    requests = build_requests(load(write_scenario(tmp_path)), 0, SPEC)
    assert len({r.temperature for r in requests}) == len({r.seed for r in requests}) == 3
    assert all(0.4 <= r.temperature <= 1.4 for r in requests)


def test_everything_is_drawn_from_the_seed(tmp_path: Path) -> None:
    """The same seed gives the same requests, another seed others."""
    file = load(write_scenario(tmp_path))
    assert build_requests(file, 7, SPEC) == build_requests(file, 7, SPEC)
    assert build_requests(file, 7, SPEC) != build_requests(file, 8, SPEC)


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ('"trace.csv"', '"none.csv"', "7: workload.trace: there is no file 'none.csv'; name a CSV"),
        ('"trace.csv"', '"."', "7: workload.trace: there is no file '.'; name a CSV"),
        ("requests = 3", "requests = 9", "8: workload.requests: trace.csv has 4 requests, 9 are"),
        ("requests = 3", "requests = 3\nfirst = 2", "8: workload.requests: trace.csv has 4 requests"),
        ("{ max = 12 }", "{ max = 900, scale = 9 }", "6: workload: request r1: len(text) must lie in"),
        ("min = 2, max = 3", "min = 60, max = 60", "6: workload: request r0: prompt_tokens must lie"),
    ],
)  # fmt: skip
def test_a_workload_that_cannot_be_had(tmp_path: Path, old: str, new: str, wrong: str) -> None:
    """What a scenario asks of its trace or its model in vain is one line that names the key."""
    file = load(write_scenario(tmp_path, SCENARIO.replace(old, new)))
    with pytest.raises(ScenarioError) as caught:
        build_requests(file, 0, SPEC)
    assert f"small.toml:{wrong}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        (
            "ContextTokens",
            "Context",
            "trace.csv:1: the column ContextTokens is missing; write a first line TIME",
        ),
        ("100,2", "many,2", "trace.csv:3: this is no request; write timestamp,tokens,tokens"),
        ("100,2", "100", "trace.csv:3: this is no request;"),
        ("2023-11-16 18:15:48.0000000", "yesterday", "trace.csv:4: this is no request;"),
        ("100,2", "100,\x002", "trace.csv:3: this is a binary file;"),
    ],
)
def test_a_trace_that_is_none(tmp_path: Path, old: str, new: str, wrong: str) -> None:
    """A broken line of the trace is named by file and line, too."""
    path = write_scenario(tmp_path)
    (tmp_path / "trace.csv").write_text(TRACE.replace(old, new))
    with pytest.raises(ScenarioError) as caught:
        build_requests(load(path), 0, SPEC)
    assert wrong in str(caught.value)
