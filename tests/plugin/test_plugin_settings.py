"""Where settings come from, what they are checked for, and what shows of them."""

from __future__ import annotations

import pytest
from samples import SCENARIO, write_scenario

ASKS = """
import pytest

@pytest.mark.race(slots=4, runner="eager", device="cuda")
class TestOfMine:
    @pytest.mark.race(slots=5)
    def test_asks(self, race_settings):
        s = race_settings
        print("said", s.device, s.slots, s.runner, s.lag, s.seed, s.exact)
"""


def test_the_first_that_says_anything_decides(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Command line, environment, ini file, marker (the closest to the test), default: for each setting."""
    pytester.makepyfile(ASKS)

    def said(*arguments: str) -> str:
        result = pytester.runpytest_inprocess("-s", *arguments)
        return next(line.partition("said ")[2] for line in result.outlines if "said " in line)

    assert said() == "cuda 5 eager None None False"
    pytester.makeini("[pytest]\nrace_slots = 3\nrace_seed = 7\nrace_exact = true\nrace_device = virtual")
    assert said() == "virtual 3 eager None 7 True"
    monkeypatch.setenv("RACECHECK_SLOTS", "2")
    monkeypatch.setenv("RACECHECK_LAG", "eager")
    monkeypatch.setenv("RACECHECK_EXACT", "0")
    assert said() == "virtual 2 eager eager 7 False"
    assert said("--race-slots=1", "--race-lag=seed:3", "--race-exact") == "virtual 1 eager seed:3 7 True"


def test_a_header_only_says_what_is_not_default(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And who said it, where that is not the command line."""
    result = project.runpytest_inprocess("test_own.py")
    result.stdout.no_fnmatch_line("racecheck:*")
    project.makeini("[pytest]\nrace_slots = 3")
    monkeypatch.setenv("RACECHECK_SEED", "5")
    result = project.runpytest_inprocess("test_own.py", "--race-lag", "eager", "--race-report", "out")
    result.stdout.fnmatch_lines(
        ["racecheck: slots 3 (race_slots in tox.ini), lag eager, seed 5 (RACECHECK_SEED), report out"]
    )


@pytest.mark.parametrize(
    ("ini", "variable", "wrong"),
    [
        ("race_device = tpu", None, "race_device in tox.ini: 'tpu' is not known; write virtual or cuda"),
        ("race_slots = two", None, "race_slots in tox.ini: 'two' will not do; write a whole number from 1 *"),
        ("race_scenarios = none", None, "race_scenarios: *none is not a folder; name folders of scenarios"),
        ("", ("RACECHECK_LAG", "soon"), "RACECHECK_LAG: 'soon' is not a lag; write latest, eager, seed:N*"),
        ("", ("RACECHECK_EXACT", "perhaps"), "RACECHECK_EXACT: 'perhaps' will not do; write true or false"),
    ],
)
def test_a_wrong_setting_names_where_it_was_written(
    project: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    ini: str,
    variable: tuple[str, str] | None,
    wrong: str,
) -> None:
    """One line, before anything is collected."""
    project.makeini(f"[pytest]\n{ini}\n")
    if variable is not None:
        monkeypatch.setenv(*variable)
    result = project.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {wrong}"])


@pytest.mark.parametrize(
    ("marker", "wrong"),
    [
        ("slot=1", "unknown key 'slot'; did you mean slots?"),
        ("slots=0", "slots: '0' will not do; write a whole number from 1 to *"),
        ("slots=True", "slots: True will not do; write a whole number from 1 to *"),
        ("runner='graph'", "runner: 'graph' is not known; write main, piecewise or eager"),
        ("device='tpu'", "device: 'tpu' is not known; write virtual or cuda"),
        ("2", "2 has no name; write slots=, runner= or device="),
    ],
)
def test_a_wrong_marker_is_one_line(pytester: pytest.Pytester, marker: str, wrong: str) -> None:
    """With file and line of the test, at collection."""
    pytester.makepyfile(f"import pytest\n\n@pytest.mark.race({marker})\ndef test_own(): pass")
    result = pytester.runpytest_inprocess("--strict-markers")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [f"test_a_wrong_marker_is_one_line.py:3: marker race: {wrong}"],
    )
    assert "Traceback" not in result.stdout.str()


def test_folders_of_scenarios_can_be_named(project: pytest.Pytester) -> None:
    """They take the place of every folder called `scenarios`."""
    write_scenario(project.path / "checks" / "deep", SCENARIO.replace('"small"', '"other"'))
    project.makeini("[pytest]\nrace_scenarios = checks")
    result = project.runpytest_inprocess("-m", "race", "-v")
    result.assert_outcomes(passed=3, deselected=1)
    result.stdout.fnmatch_lines(["checks/deep/small.toml::main-slots-1 PASSED*"])
    result.stdout.no_fnmatch_line("scenarios/*")


def test_slots_make_probes_of_scenarios(project: pytest.Pytester) -> None:
    """Each runner with so many slots; nothing is expected, so a race fails."""
    project.verdicts["piecewise", 2] = "race"  # type: ignore[attr-defined]
    result = project.runpytest_inprocess("-m", "race", "--race-slots", "2", "-v")
    result.assert_outcomes(passed=1, failed=1, deselected=1)
    result.stdout.fnmatch_lines(
        ["scenarios/small.toml::main-slots-2 PASSED*", "scenarios/small.toml::piecewise-slots-2 RACE*"]
    )


def test_without_the_plugin_scenarios_are_files(project: pytest.Pytester) -> None:
    """`-p no:racecheck` leaves nothing of it."""
    project.runpytest_inprocess("-p", "no:racecheck").assert_outcomes(passed=1)
