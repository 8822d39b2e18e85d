"""Which keys of a scenario open a race."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from samples import SCENARIO, make_finding, make_row, write_scenario

from racecheck import cli
from racecheck.bisect import config
from racecheck.bisect.keys import ABSENT, Key, changed, differences, minimal
from racecheck.report import Row
from racecheck.scenario.load import ScenarioFile
from racecheck.scenario.plan import RowPlan

KEYS = [(name,) for name in "abcdefgh"]


@pytest.mark.parametrize("wanted", ["a", "h", "cf", "abh", "abcdefgh"])
def test_a_smallest_set_is_found(wanted: str) -> None:
    """One key, some that only together open the race, or all; no set is tried twice."""
    asked: list[frozenset[Key]] = []

    def opens(keys: frozenset[Key]) -> bool:
        asked.append(keys)
        return {(name,) for name in wanted} <= keys

    assert minimal(KEYS, opens) == [(name,) for name in wanted]
    assert len(asked) == len(set(asked))
    assert len(wanted) > 1 or len(asked) <= 6


def test_one_of_two_that_each_suffice():
    """Either is an answer; no key is left in it that could be left out."""
    assert len(minimal(KEYS, lambda keys: bool({("b",), ("g",)} & keys))) == 1


def test_differences_and_changes_are_inverse():
    """Values, keys that one file lacks, whole tables; the name is no difference."""
    good = {"name": "a", "steps": 4, "w": {"first": 0}, "runners": {"main": {"expect": {"2": "clean"}}}}
    bad = {"name": "b", "steps": 4, "lag": "eager", "runners": {"eager": {"expect": {"2": "race"}}}}
    differ = differences(good, bad)
    assert differ == {
        ("lag",): (ABSENT, "eager"),
        ("w", "first"): (0, ABSENT),
        ("runners", "main", "expect"): ({"2": "clean"}, ABSENT),
        ("runners", "eager", "expect"): (ABSENT, {"2": "race"}),
    }
    assert changed(good, {key: values[1] for key, values in differ.items()}) == {**bad, "name": "a"}
    assert good["w"] == {"first": 0}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two scenarios in two folders; run_ahead 2 together with seed 3 races, and lag eager does otherwise."""
    good = SCENARIO.replace("steps = 12", 'steps = 12\nrun_ahead = 1\nseed = 1\nlag = "latest"')
    bad = good.replace("run_ahead = 1", "run_ahead = 2").replace("seed = 1", "seed = 3")
    bad = bad.replace('lag = "latest"', 'lag = "eager"').replace("requests = 3", "requests = 2")

    def run_row(plan: RowPlan, references: Any) -> Row:
        scenario = plan.file.scenario
        found = [make_finding("rows")] if scenario.run_ahead == 2 and scenario.seed == 3 else []
        found += [make_finding("pages")] if scenario.lag == "eager" else []
        return make_row("race" if found else "clean", findings=found)

    monkeypatch.setattr(config, "run_row", run_row)
    return (
        str(write_scenario(tmp_path / "good", good)),
        str(write_scenario(tmp_path / "bad", bad, "small-bad.toml")),
    )


def test_the_keys_are_named(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """With their values, the race, and what the bad file is without them."""
    assert cli.main(["bisect", "config", *files]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("# `run_ahead` and `seed` open the race\n")
    for part in (
        "- 5 keys differ",
        "`race/h2d-read-vs-host-write` on `rows`",
        f"- without them, `{files[1]}` lacks this race",
        "not followed (`--fingerprint F` follows one):\n\n- race/h2d-read-vs-host-write on pages",
        "| `run_ahead` | `1` | `2` |",
        "| `seed` | `1` | `3` |",
    ):
        assert part in out
    assert "bad values of none: no race" in err
    assert out.index("| `seed` | `1` | `3` |") < out.index("- 5 keys differ") < out.index("not followed")
    said = err.splitlines()
    assert len(said) == len(set(said))  # no mixture is run twice
    assert "bad values of lag, run_ahead, seed and 2 more: race/" in said[0]


def test_a_single_key_that_differs(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Both files are all that there is to run; the value is TOML, and one key is no `1 keys`."""
    good = Path(files[0])
    text = good.read_text().replace('lag = "latest"', 'lag = "eager"')
    assert cli.main(["bisect", "config", str(good), str(write_scenario(good.parent, text, "bad.toml"))]) == 0
    out, err = capsys.readouterr()
    ran = ["bad values of lag: race/h2d-read-vs-host-write on pages", "bad values of none: no race"]
    assert err.splitlines() == ran
    assert out.splitlines()[2:5] == [
        "| key | good | bad |",
        "|---|---|---|",
        '| `lag` | `"latest"` | `"eager"` |',
    ]
    assert "- 1 key differs between" in out
    assert ", 2 trials\n" in out


def test_tables_and_bars_in_a_cell() -> None:
    """An expectation as it stands in a file; what would end a cell of a table does not."""
    keys: dict[Key, tuple[Any, Any]] = {("runners", "main", "expect"): ({"2": "clean"}, {"1": "a|b"})}
    opened = config.Opened(keys, make_finding("rows"), 3, 1)
    report = config.markdown(opened, Path("good.toml"), Path("bad.toml"))
    assert '| `runners.main.expect` | `{ 2 = "clean" }` | `{ 1 = "a\\|b" }` |' in report


def test_another_race_has_other_keys(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """--fingerprint follows another race of the bad file."""
    fingerprint = make_finding("pages").fingerprint
    assert cli.main(["bisect", "config", *files, "--fingerprint", fingerprint]) == 0
    assert capsys.readouterr().out.startswith("# `lag` opens the race\n")


def test_mixtures_that_cannot_run_are_passed_over(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trial whose keys contradict each other opens nothing; what makes them agree belongs to the answer."""

    def check(file: ScenarioFile) -> None:
        if file.scenario.run_ahead == 2 and file.scenario.lag == "latest":
            raise file.error(("run_ahead",), "needs another lag", "write one")

    monkeypatch.setattr(config, "check", check)
    assert cli.main(["bisect", "config", *files]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("# `run_ahead` and `seed` and `lag` open the race\n")
    assert "bad values of run_ahead, seed: cannot run" in err


def test_a_file_of_another_editor(files: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A byte-order mark and Windows line ends are no difference."""
    for name in files:
        path = Path(name)
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert cli.main(["bisect", "config", *files]) == 0
    assert capsys.readouterr().out.startswith("# `run_ahead` and `seed` open the race\n")


def test_a_bad_file_that_cannot_run(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Is not one that shows no race."""

    def run_row(plan: RowPlan, references: Any) -> Row:
        raise plan.file.error(("engine",), "run() raised KeyError", "mend it there")

    monkeypatch.setattr(config, "run_row", run_row)
    assert cli.main(["bisect", "config", *files]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "small-bad.toml: cannot be run (" in said
    assert "run() raised KeyError" in said


def test_mistakes(files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Equal files, a bad one that is good, a race that both or neither have, a file that is none."""
    good, bad = files
    rows, pages = (make_finding(buffer).fingerprint for buffer in ("rows", "pages"))
    text = Path(good).read_text()
    at_lag = text.replace('lag = "latest"', 'lag = "eager"')
    texts = {"idle": text.replace("steps = 12", "steps = 11"), "lag": at_lag,
             "longer": at_lag.replace("steps = 12", "steps = 11")}  # fmt: skip
    idle, lag, longer = (str(write_scenario(tmp_path / name, each)) for name, each in texts.items())
    for arguments, said in (
        ((good, good), "differs from"),
        ((bad, good), f"{good}: shows no race, and {bad} has one that it lacks; did you swap them?"),
        ((bad, good, "--fingerprint", rows), f"lacks the race {rows}, and {bad} has it; did you swap them?"),
        ((good, bad, "--fingerprint", "0"), f"{bad} has {rows}, {pages}; write one it has"),
        ((idle, good), f"{good}: shows no race; name a scenario that does"),
        ((lag, bad, "--fingerprint", pages), f"the race {pages} of {bad} is in it too; name"),
        ((bad, lag), f"has no race that {bad} lacks, and {bad} has one that it lacks; did you swap them?"),
        ((lag, longer), f"{lag}: every race of {longer} is in it too; name a scenario that lacks it"),
        ((good, "nope.toml"), "nope.toml:1: there is no such file"),
    ):
        assert cli.main(["bisect", "config", *arguments]) == 2
        assert said in capsys.readouterr().err.splitlines()[-1]
