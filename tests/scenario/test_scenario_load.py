from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from samples import SCENARIO, write_scenario

from racecheck.errors import ScenarioError, UsageError
from racecheck.scenario.load import find, load
from racecheck.scenario.source import LARGEST, is_scenario, shown


def complaint(path: Path) -> str:
    """The one line that `load(path)` complains with, without the folder."""
    with pytest.raises(ScenarioError) as caught:
        load(path)
    message = str(caught.value)
    assert re.fullmatch(r"[^\n]+:\d+: [^\n]+; [^\n]+", message), message
    return message.replace(f"{path.parent}{os.sep}", "")


def test_a_valid_file_loads(tmp_path: Path) -> None:
    """Defaults are filled in, a bare verdict is an expectation, slot counts are numbers."""
    scenario = load(write_scenario(tmp_path)).scenario
    assert (scenario.preset, scenario.run_ahead, scenario.lag, scenario.seed) == ("tiny", 1, "latest", 0)
    assert {n: e.verdict for n, e in scenario.runners["main"].expect.items()} == {1: "race", 2: "clean"}
    assert scenario.runners["piecewise"].expect[1].buffer == "sampler.rows"


@pytest.mark.parametrize(
    ("old", "new", "line", "wrong"),
    [
        ("racecheck = 1", "racecheck = 2", 1, "no format that this racecheck knows; write racecheck = 1"),
        ("racecheck = 1", "racecheck = true", 1, "no format that this racecheck knows; write racecheck = 1"),
        ("racecheck = 1", "", 1, "the key racecheck, which makes a file a scenario, is missing; write"),
        ("racecheck = 1", "\nracechek = 1", 2, "is missing; write racecheck = 1"),
        ("name =", "nam =", 2, "unknown key 'nam'; did you mean name?"),
        ('"small"', '"Big one"', 2, 'is no name; write up to 64 lower-case'),
        ('"small"', "3", 2, 'name: expected text in quotes, found 3; write name = "qwen3-tts"'),
        ('"small"', '"small', 2, "malformed TOML: illegal character '\\n'; close the quote"),
        ("steps = 12", 'steps = "12"', 4, 'steps: expected a whole number, found "12"; write steps = 40'),
        ("steps = 12", "steps = 1.5", 4, "steps: expected a whole number, found 1.5; write steps = 40"),
        ("steps = 12", "steps = true", 4, "steps: expected a whole number, found true; write steps = 40"),
        ("steps = 12", "steps = 0", 4, "steps: 0 is out of range, it must be at least 1; write steps = 40"),
        ("steps = 12", "steps = 1979-05-27", 4, 'steps: expected a whole number, found "1979-05-27"'),
        ("steps = 12", "", 1, "the key steps is missing; write steps = 40"),
        ("steps = 12", "steps = 12\nsteps = 13", 5, "malformed TOML: cannot overwrite a value; a key may"),
        ("steps = 12", "steps = 12\n\nlag = 'soon'", 6, "lag: 'soon' is not a lag; write latest, eager,"),
        ("steps = 12", "steps = 12\nlag = 'seed:x'", 5, "lag: 'seed:x' is not a lag; write latest, eager"),
        ("steps = 12", "steps = 4294967296", 4, "it must be at most 1000000; write steps = 40"),
        (
            "[runners.piecewise.expect]",
            "[runners.piecewise]\nwalks = 3\n[runners.piecewise.expect]",
            19,
            'walks: expected a table, found 3; write walks = { "talker.decode" = "piecewise" }',
        ),
        ("steps = 12", "steps = 12\nseed = -1", 5, "seed: -1 is out of range, it must be at least 0; write"),
        ("steps = 12", "steps = 12\npreset = 'huge'", 5, '"huge" is not known; write one of tiny, full'),
        ("steps = 12", "steps = 12\nrequests = 3", 5, "'requests'; write requests in the table [workload]"),
        ("steps = 12", "steps = = 12", 4, "malformed TOML: invalid value; write text in quotes"),
        ("[workload]", "[workloads]", 6, "unknown key 'workloads'; did you mean workload?"),
        ("[workload]", "[workload", 6, "malformed TOML: expected ']'"),
        ("[workload]\n", "workload = 3\n[x]\n", 6, "workload: expected a table, found 3; write a table ["),
        ("[workload]\n", "[zzz]\n[workload]\n", 6, "unknown key 'zzz'; write one of racecheck, name, engine"),
        ('"trace.csv"', "7", 7, "workload.trace: expected text in quotes, found 7; write trace ="),
        ('"trace.csv"', '""', 7, "workload.trace: this is empty; write trace ="),
        ("requests = 3", "requests = []", 8, "workload.requests: expected a whole number, found a list"),
        ("4.0", '"fast"', 9, 'expected a number, found "fast"; write steps_per_second = 4.0'),
        ("4.0", "nan", 9, "write steps_per_second = 4.0"),
        ("min = 2,", "min = 4,", 10, "workload.prompt_tokens: min 4 is larger than max 3; write min <= max"),
        ("{ max = 4 }", "4", 12, "workload.new_tokens: expected a table, found 4; write new_tokens = {"),
        ("{ max = 4 }", "{ mx = 4 }", 12, "unknown key 'mx'; did you mean max?"),
        ("[runners.main.", "[runners.mian.", 14, '"mian" is not known; did you mean main?'),
        ("runners.main.expect", "runners.main.expects", 14, "unknown key 'expects'; did you mean expect?"),
        (
            "{ max = 4 }", "{ max = 4 }\ntemperature = { min = 1e-300, max = 1.0 }", 13,
            "temperature.min: 1e-300 is out of range, it must be at least 0.01; write min = 0.4",
        ),
        ('1 = "race"', '0 = "race"', 15, "'0' is not a slot count; write a whole number from 1 to 64"),
        ('1 = "race"', '1.5 = "race"', 15, "unknown key '5'; write one of verdict, buffer, buffers"),
        ('1 = "race"', '1 = "rac"', 15, '"rac" is not known; did you mean race?'),
        ('1 = "race"', "1 = 5", 15, "expected a verdict in quotes or a table; write"),
        ('2 = "clean"', '2 = { verdict = "clean", buffer = "b" }', 16, "no finding to name a buffer; leave"),
        ('2 = "clean"', '2 = { buffer = "b" }', 16, 'the key verdict is missing; write verdict = "race"'),
        ('2 = "clean"', '2 = { verdict = "clean", buffers = ["b"] }', 16, "buffer; leave buffers out"),
        ('2 = "clean"', '2 = { verdict = "race", buffers = "b" }', 16, "expected a list, found"),
        ("steps = 12", "steps = 12\nengine = 'my engine'", 5, "no import path; write package.module:factory"),
        ("{ max = 4 }", "{ max = 4 }\nmedia = { video = {} }", 13, "unknown key 'video'; write one of audio"),
        ("{ max = 4 }", "{ max = 4 }\nmedia = { audio = { share = 2 } }", 13, "share: 2 is out of range"),
        ("{ max = 4 }", "{ max = 4 }\nmedia = { audio = { shar = 2 } }", 13, "'shar'; did you mean share?"),
        (
            "{ max = 4 }",
            "{ max = 4 }\nmedia.audio = { share = 1, tokens = { min = 5, max = 7 }, multiple_of = 4 }",
            13, "no multiple of 4 lies in 5..7; write tokens with max = 8",
        ),
        (
            "{ max = 4 }",
            "{ max = 4 }\nmedia.audio = { share = 0.6, tokens = { min = 1, max = 2 } }\n"
            "media.vision = { share = 0.6, tokens = { min = 1, max = 2 } }",
            13, "the shares add up to 1.2; write shares of at most 1 in all",
        ),
        ("{ max = 4 }", "{ max = 4 }\ncancel = { every = 0 }", 13, "every: 0 is out of range, it must be at"),
        ("[runners.main.", "[runners.main]\nwalks = { a = 'no' }\n[runners.main.", 15, '"no" is not known;'),
        ('1 = "race"\n2 = "clean"', "", 14, "runners.main.expect: this is empty; write expect = {"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(tmp_path: Path, old: str, new: str, line: int, wrong: str) -> None:
    """Every mistake in a file is one line: file, line, what is wrong, what to write instead."""
    assert old in SCENARIO
    message = complaint(write_scenario(tmp_path, SCENARIO.replace(old, new, 1)))
    assert message.startswith(f"small.toml:{line}: ")
    assert wrong in message


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"racecheck = 1\nname = '\xff'\n", "small.toml:2: byte 0xff is not UTF-8; save the file in UTF-8"),
        (b"\x7fELF\n\x00\x00", "small.toml:2: this is a binary file; write UTF-8 text"),
        (b"", "small.toml:1: the key racecheck, which makes a file a scenario, is missing;"),
        (b"a" * (LARGEST + 1), "small.toml:1: this file is larger than 1 MiB;"),
        (b"x = " + b"[" * 5000, "small.toml:1: malformed TOML"),
        (b"racecheck = 1\n\xe2\x80\xa8x = 1\n", "small.toml:2: malformed TOML"),
    ],
)
def test_what_is_no_text_is_one_line(tmp_path: Path, content: bytes, wrong: str) -> None:
    """Bad encodings, binary, empty, huge and absurdly nested files are told like any mistake."""
    path = tmp_path / "small.toml"
    path.write_bytes(content)
    assert wrong in complaint(path)


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    """Editors on Windows write one."""
    path = write_scenario(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert is_scenario(path)
    assert load(path).scenario.name == "small"


def test_what_is_no_file_is_one_line(tmp_path: Path) -> None:
    """A missing file, a folder called x.toml, a pipe and a name that is too long."""
    assert "there is no such file" in complaint(tmp_path / "missing.toml")
    (tmp_path / "folder.toml").mkdir()
    assert "this is a folder" in complaint(tmp_path / "folder.toml")
    os.mkfifo(tmp_path / "pipe.toml")
    assert "this is not a regular file" in complaint(tmp_path / "pipe.toml")
    assert "cannot be read" in complaint(tmp_path / ("x" * 300 + ".toml"))


def test_a_file_without_permission_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions do not bind the superuser, so the refusal is played."""

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    path = write_scenario(tmp_path)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert (
        complaint(path)
        == "small.toml:1: cannot be read (Permission denied); check its permissions and its name"
    )


def test_a_folder_stands_for_its_scenarios(tmp_path: Path) -> None:
    """Sorted, each once, other TOML files and hidden folders left out."""
    second = write_scenario(tmp_path, name="b.toml")
    first = write_scenario(tmp_path / "a")
    write_scenario(tmp_path / ".venv")
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n[tool.racecheck]\nracecheck = 1\n")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert find([tmp_path]) == [first, second]
    assert find([second, tmp_path, first]) == [second, first]


def test_a_malformed_scenario_in_a_folder_is_not_passed_over(tmp_path: Path) -> None:
    """A file with a line `racecheck = ...` counts as a scenario although it does not parse."""
    path = write_scenario(tmp_path, SCENARIO + "= nonsense")
    assert find([tmp_path]) == [path]


@pytest.mark.parametrize("name", ["empty", "folder.toml"])
def test_a_folder_without_scenarios_is_one_line(tmp_path: Path, name: str) -> None:
    """Nothing to run is a mistake, not a success."""
    (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match=r"^\S+:1: [^\n]+; [^\n]+$"):
        find([tmp_path / name])


def test_any_name_is_shown_on_one_line() -> None:
    """Line breaks, escapes and undecodable bytes in a file name do not tear the message."""
    assert shown("a\nb\x1b[31m\udcff") == r"a\nb\x1b[31m\udcff"
