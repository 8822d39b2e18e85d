from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from samples import SCENARIO, TRACE, write_scenario

from racecheck.engine import Request, preset
from racecheck.errors import ScenarioError
from racecheck.scenario.draw import Arrival
from racecheck.scenario.load import load
from racecheck.scenario.workload import build_requests, read_arrivals

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


def test_a_trace_may_say_where_on_earth(tmp_path: Path) -> None:
    """All of its timestamps have an offset then; arrivals are the same."""
    path = write_scenario(tmp_path)
    plain = read_arrivals(load(path))
    (tmp_path / "trace.csv").write_text(TRACE.replace("00000,", "00000+02:00,"))
    assert read_arrivals(load(path)) == plain


def test_everything_is_drawn_from_the_seed(tmp_path: Path) -> None:
    """The same seed gives the same requests, another seed others."""
    file = load(write_scenario(tmp_path))
    assert build_requests(file, 7, SPEC) == build_requests(file, 7, SPEC)
    assert build_requests(file, 7, SPEC) != build_requests(file, 8, SPEC)


def with_table(tmp_path: Path, line: str, requests: int = 3) -> list[Request]:
    """The requests of the sample with one more line in its workload, of the omni model."""
    text = SCENARIO.replace("min = 2, max = 3", "min = 6, max = 7")
    text = text.replace("max = 4 }", f"max = 4 }}\n{line}").replace("requests = 3", f"requests = {requests}")
    text = text.replace("new_tokens = {", "new_tokens = { min = 3,")
    return build_requests(load(write_scenario(tmp_path, text)), 0, preset("qwen3-omni", "tiny"))


def test_media_come_in_their_share(tmp_path: Path) -> None:
    """Every request has one medium or none, in segments of the lengths that were asked for."""
    audio = "{ share = 0.5, segments = { min = 1, max = 2 }, tokens = { min = 3, max = 8 }, multiple_of = 4 }"
    vision = "{ share = 0.5, tokens = { min = 8, max = 16 }, multiple_of = 8 }"
    requests = with_table(tmp_path, f"media = {{ audio = {audio}, vision = {vision} }}", 4)
    assert {request.medium for request in requests} == {"audio", "vision"}
    for request in requests:
        lengths = {"audio": {4, 8}, "vision": {8, 16}}[request.medium]
        assert set(request.segments) <= lengths
        assert 1 <= len(request.segments) <= 2


def test_some_clients_hang_up(tmp_path: Path) -> None:
    """Every so-many-th, after a number of steps in the range; nothing else of the workload changes."""
    requests = with_table(tmp_path, "cancel = { every = 2, after = { min = 3, max = 4 } }", 4)
    assert [request.cancel_after is None for request in requests] == [True, False, True, False]
    assert all(request.cancel_after in (None, 3, 4) for request in requests)
    plain = with_table(tmp_path, "", 4)
    assert [replace(request, cancel_after=None) for request in requests] == plain


def test_groups_begin_alike(tmp_path: Path) -> None:
    """The groups take turns; behind the prefix each request has tokens of its own."""
    first, second, third, fourth = (
        request.text for request in with_table(tmp_path, "prefix = { groups = 2, tokens = 2 }", 4)
    )
    assert first[:2] == third[:2] != second[:2]
    assert second[:2] == fourth[:2]
    assert first[2:6] != third[2:6]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        (
            "media.audio = { share = 1, tokens = { min = 5, max = 5 } }",
            "audio comes in segments of a multiple of 4",
        ),
        (
            "media.vision = { share = 1, tokens = { min = 40, max = 40 } }",
            "the sum of segments must lie in 1..32",
        ),
    ],
)
def test_media_that_the_model_cannot_take(tmp_path: Path, line: str, wrong: str) -> None:
    """One line that names the request."""
    with pytest.raises(ScenarioError, match=rf"small.toml:6: workload: request r\d: .*{wrong}"):
        with_table(tmp_path, line)


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ('"trace.csv"', '"none.csv"', "7: workload.trace: there is no file 'none.csv'; name a CSV"),
        ('"trace.csv"', '"."', "7: workload.trace: there is no file '.'; name a CSV"),
        ("requests = 3", "requests = 9", "8: workload.requests: trace.csv has 4 requests, 9 are"),
        ("requests = 3", "requests = 3\nfirst = 2", "8: workload.requests: trace.csv has 4 requests"),
        ("{ max = 12 }", "{ max = 900, scale = 9 }", "6: workload: request r1: len(text) must lie in"),
        (
            "max = 4 }",
            "max = 4 }\ntemperature = { min = 0.4, max = 0.4001 }",
            "13: workload.temperature: from 0.4 to 0.4001 there are too few for 3 requests, no two of which "
            "may share one; write min and max at least 0.0003 apart",
        ),
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
        ("100,2", "many,2", "trace.csv:3: this is no request: ContextTokens is 'many'; write a whole num"),
        ("100,2", "-5,2", "trace.csv:3: this is no request: ContextTokens is '-5'; write a whole number"),
        ("100,2", "100,\u0663", "trace.csv:3: this is no request: GeneratedTokens is '\u0663'; write a"),
        ("100,2", "100, 1_0 ", "trace.csv:3: this is no request: GeneratedTokens is ' 1_0 '; write a whole"),
        ("100,2", "9" * 401 + ",2", "trace.csv:3: this is no request: ContextTokens is '999"),
        ("100,2", "100", "trace.csv:3: this is no request: 2 values under 3 columns; write TIMESTAMP,"),
        ("100,2", "100,2,7", "trace.csv:3: this is no request: 4 values under 3 columns; write TIMESTAMP,"),
        ("dTokens\n", "dTokens,Model\n", "trace.csv:1: the column 'Model' is one too many; write a fi"),
        ("dTokens\n", "dTokens,TIMESTAMP\n", "trace.csv:1: the column 'TIMESTAMP' is one too many"),
        ("2023-11-16 18:15:48.0000000", "yesterday", "trace.csv:4: this is no request: TIMESTAMP is 'yeste"),
        ("46.5000000", "46.5000000+02:00", "trace.csv:3: this timestamp has an offset from UTC and the one"),
        ("46.0000000", "46.0000000+02:00", "trace.csv:3: this timestamp has an offset from UTC and the one"),
        (
            "18:15:48",
            "18:15:45",
            "trace.csv:4: this request comes before the one above it; sort the trace by",
        ),
        ("100,2\n", "100,2\n\n", "trace.csv:4: this is no request: 0 values under 3 columns; write TIMES"),
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
