from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
from samples import SCENARIO, make_row, write_scenario

import racecheck
from racecheck import cli
from racecheck.commands import run as run_command
from racecheck.report import Row
from racecheck.scenario.plan import RowPlan

ROOT = Path(__file__).parents[2]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in a folder with the sample scenario: exit code, stdout, stderr."""
    write_scenario(tmp_path / "scenarios")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], str]:
    """What rows come to, by runner and slots; what is not in it comes to what the sample expects."""
    known = {("main", 1): "race", ("piecewise", 1): "race"}
    plans: list[RowPlan] = []

    def run_row(plan: RowPlan, references: Any, on_step: Any, trace: Any) -> Row:
        plans.append(plan)
        on_step("row")
        verdict = known.get((plan.runner, plan.slots), "clean")
        return make_row(
            verdict, plan.expected, runner=plan.runner, slots=plan.slots,
            lag=plan.lag, seed=plan.seed, steps=plan.steps, device=plan.device,
        )  # fmt: skip

    monkeypatch.setattr(run_command, "run_row", run_row)
    return known


# -- what it says --------------------------------------------------------------------------------


def test_version(run: Run) -> None:
    """Name and version, nothing else."""
    assert run("--version") == (0, f"racecheck {racecheck.__version__}\n", "")


def test_help_names_every_option(run: Run) -> None:
    """And says what the exit codes mean."""
    code, out, err = run("run", "--help")
    assert (code, err) == (0, "")
    for option in ("--slots", "--runner", "--device", "--lag", "--seed", "--steps", "--json", "Exit code"):
        assert option in out


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ([], "racecheck: missing command; see racecheck --help"),
        (["rnu"], "racecheck: no such command 'rnu'; see racecheck --help"),
        (["run"], "racecheck run: no PATH is given; name a file or a folder"),
        (["run", "scenarios", "--slotz", "2"], "racecheck run: no such option: --slotz; write --slots"),
        (["run", "scenarios", "--slots"], "racecheck: option '--slots' requires an argument; see"),
        (["run", "scenarios", "--json=yes"], "racecheck: option '--json' does not take a value; see"),
        (["run", "scenarios", "--slots", "0"], "--slots: '0' will not do; write a whole number from 1 to 64"),
        (["run", "scenarios", "--slots", "-1"], "--slots: '-1' will not do; write a whole number from 1 to"),
        (["run", "scenarios", "--slots", "65"], "--slots: '65' will not do; write a whole number from 1 to"),
        (["run", "scenarios", "--slots", "two"], "--slots: 'two' will not do; write a whole number"),
        (["run", "scenarios", "--slots", ""], "--slots: '' will not do; write a whole number"),
        (["run", "scenarios", "--slots", "²"], "--slots: '²' will not do; write a whole number"),
        (["run", "scenarios", "--steps", "0"], "--steps: '0' will not do; write a whole number from 1 to"),
        (["run", "scenarios", "--steps", "9" * 5000], "will not do; write a whole number from 1 to 1000000"),
        (["run", "scenarios", "--seed", "-1"], "--seed: '-1' will not do; write a whole number from 0 to"),
        (["run", "scenarios", "--seed", "1.5"], "--seed: '1.5' will not do; write a whole number from 0"),
        (["run", "scenarios", "--lag", "foo"], "--lag: 'foo' is not a lag; write latest, eager, seed:N"),
        (["run", "scenarios", "--lag", "seed:"], "--lag: 'seed:' is not a lag; write latest, eager, seed:N"),
        (["run", "scenarios", "--device", "tpu"], "--device: 'tpu' is not known; write one of virtual, cuda"),
        (["run", "scenarios", "--device", "cude"], "--device: 'cude' is not known; did you mean cuda?"),
        (["run", "scenarios", "--runner", "mian"], "--runner: 'mian' is not known; did you mean main?"),
        (["run", "scenarios", "--runner", "eager"], "run: --runner eager: no scenario here has this runner"),
        (["run", "scenarios", "--device", "cuda", "--lag", "eager"], "run: --lag eager: only the virtual d"),
        (["run", "scenarios", "--trace", "x"], "racecheck run: --trace: a trace is that of one row; choose"),
        (["run", ""], "racecheck run: '' is no path; name a file or a folder (. is the present one)"),
        (["run", "scenarios", ""], "racecheck run: '' is no path; name a file or a folder"),
        (["run", "scenarios", "--trace", ""], "run: --trace: '' is no path; name a file or a folder"),
        (["litmus", ""], "racecheck litmus: '' is no path; name a file or a folder"),
        (["check", ""], "racecheck check: '' is no path; name a file or a folder"),
        (["convert", "", "x"], "racecheck convert: '' is no path; name a file or a folder"),
        (["run", "loop.toml"], "loop.toml:1: cannot be read (Too many levels of symbolic links); check its"),
        (["run", "loop"], "loop:1: cannot be read (Too many levels of symbolic links); check its"),
        (["run", "x" * 300], "xx:1: cannot be read (File name too long); check its permissions and its name"),
        (["run", "long.toml"], "long.toml:7: workload.trace: there is no file 'xxx"),
        (["run", "nothing"], "nothing:1: there is no such file; name a scenario (.toml)"),
        (["run", "broken.toml"], "broken.toml:1: malformed TOML: invalid value; write text in quotes"),
        (["run", "empty"], "empty:1: there is no scenario in this folder; name a folder with"),
        (["run", "folder.toml"], "folder.toml:1: this is a folder; name a scenario"),
        (["run", "scenarios/trace.csv"], "scenarios/trace.csv:1: malformed TOML"),
        (["run", "binary.toml"], "binary.toml:1: this is a binary file; write UTF-8 text"),
        (["run", "line\nbreak.toml"], r"line\nbreak.toml:1: there is no such file; name a scenario"),
        (["run", "model.toml"], "model.toml:3: model: no preset gpt tiny; known are"),
        (["run", "trace.toml"], "trace.toml:7: workload.trace: there is no file 'none.csv'; name a CSV file"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_exit_code_2(run: Run, arguments: list[str], wrong: str) -> None:
    """Whatever is wrong with options or files: one line on stderr, nothing on stdout, no traceback."""
    here = Path.cwd()
    (here / "empty").mkdir()
    (here / "folder.toml").mkdir()
    (here / "binary.toml").write_bytes(b"\x00\x01")
    (here / "model.toml").write_text(SCENARIO.replace('"qwen3-tts"', '"gpt"'))
    (here / "trace.toml").write_text(SCENARIO.replace('"trace.csv"', '"none.csv"'))
    (here / "long.toml").write_text(SCENARIO.replace('"trace.csv"', f'"{"x" * 300}"'))
    for loop in ("loop", "loop.toml"):
        (here / loop).symlink_to(loop)
    (here / "broken.toml").write_text("racecheck = \n")
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert wrong in err
    assert "; " in err


def test_no_gpu_is_said_before_anything_runs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, exit code 2."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, out, err = run("run", "scenarios", "--device", "cuda")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(
        "racecheck run: --device cuda: PyTorch finds no CUDA GPU here; write --device virtual"
    )


def test_every_bad_file_of_a_folder_is_named(run: Run, verdicts: dict[tuple[str, int], str]) -> None:
    """A line each, whatever is wrong with it; then exit code 2, and nothing runs."""
    folder = Path("scenarios")
    write_scenario(folder, "racecheck = \n", "a.toml")
    write_scenario(folder, SCENARIO.replace('"qwen3-tts"', '"gpt"').replace('"small"', '"b"'), "b.toml")
    write_scenario(folder, SCENARIO.replace("steps = 12", "").replace('"small"', '"c"'), "c.toml")
    code, out, err = run("run", "scenarios")
    assert (code, out) == (2, "")
    assert [line.split(":")[:2] for line in err.splitlines()] == [
        ["scenarios/a.toml", "1"],
        ["scenarios/b.toml", "3"],
        ["scenarios/c.toml", "1"],
    ]


def test_two_scenarios_of_one_name_are_refused(run: Run, verdicts: dict[tuple[str, int], str]) -> None:
    """They would be one table; the line names both files."""
    write_scenario(Path("more"))
    code, out, err = run("run", "scenarios", "more")
    assert (code, out) == (2, "")
    assert err == (
        "more/small.toml:2: name: 'small' is also the name of scenarios/small.toml; "
        "give each its own, or run one of them\n"
    )


def test_progress_counts_reference_and_row_apart() -> None:
    """Neither exceeds the number of steps in the heading."""
    count = run_command.StepCount(2)
    assert [count(part) for part in ("reference", "reference", "row")] == [
        "serial reference, step 1 of 2",
        "serial reference, step 2 of 2",
        "step 1 of 2",
    ]


def test_a_bug_does_not_pass_for_a_verdict(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception nobody foresaw has an exit code that no verdict has."""

    def explode(*_: Any) -> Row:
        raise ZeroDivisionError

    monkeypatch.setattr(run_command, "run_row", explode)
    code, out, err = run("run", "scenarios")
    assert (code, out) == (70, "")
    assert "ZeroDivisionError" in err
    assert "a bug in racecheck" in err


def test_what_racecheck_itself_complains_of_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that the virtual device cannot carry ends the command without a traceback."""

    def complain(*_: Any) -> Row:
        raise racecheck.errors.UnsupportedOperation("aten.foo: not carried;\n  avoid it")

    monkeypatch.setattr(run_command, "run_row", complain)
    assert run("run", "scenarios") == (2, "", "aten.foo: not carried; avoid it\n")


def test_a_trace_that_cannot_be_written_to_its_end_is_not_blamed_on_stdout(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may be full long after the file was opened."""

    def fill_the_disk(*_: Any) -> Row:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_command, "run_row", fill_the_disk)
    code, out, err = run("run", "scenarios", "--slots", "1", "--runner", "main", "--trace", "t.jsonl")
    wrong = "racecheck run: --trace t.jsonl: cannot be written (No space left on device); name another file\n"
    assert (code, out, err) == (2, "", wrong)


def test_an_interrupt_is_quiet(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends the command as a shell expects."""

    def interrupt(*_: Any) -> Row:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_command, "run_row", interrupt)
    assert run("run", "scenarios")[0] == 130


# -- what it finds -------------------------------------------------------------------------------


def test_expectations_that_hold(run: Run, verdicts: dict[tuple[str, int], str]) -> None:
    """Expected races are a success."""
    code, out, err = run("run", "scenarios")
    assert (code, err) == (0, "")
    assert out.endswith("3 of 3 rows as expected\n")


@pytest.mark.parametrize(
    ("row", "verdict", "code"),
    [
        (("main", 2), "race", 1),
        (("main", 1), "clean", 1),
        (("piecewise", 1), "stale", 1),
        (("main", 2), "inconclusive", 3),
        (("main", 1), "inconclusive", 3),
    ],
)
def test_an_expectation_that_does_not_hold(
    run: Run, verdicts: dict[tuple[str, int], str], row: tuple[str, int], verdict: str, code: int
) -> None:
    """Another verdict is 1; a row that put nothing to the test is 3."""
    verdicts[row] = verdict
    assert run("run", "scenarios")[0] == code


@pytest.mark.parametrize(
    ("slots", "verdict", "code"),
    [("1", "race", 1), ("2", "clean", 0), ("3", "stale", 1), ("3", "hang", 1), ("3", "inconclusive", 3)],
)
def test_a_probe_answers_by_its_verdict(
    run: Run, verdicts: dict[tuple[str, int], str], slots: str, verdict: str, code: int
) -> None:
    """Whatever the scenario expects of that slot count."""
    verdicts["main", int(slots)] = verdict
    assert run("run", "scenarios/small.toml", "--slots", slots, "--runner", "main")[0] == code


def test_json_is_one_object(run: Run, verdicts: dict[tuple[str, int], str]) -> None:
    """Nothing else is on stdout, and every option shows in it."""
    code, out, err = run(
        "run", "scenarios", "--json", "--slots", "1", "--lag", "seed:3", "--seed", "7", "--steps", "9"
    )
    report = json.loads(out)
    assert (code, err) == (1, "")
    assert (report["format"], report["verdict"]) == ("racecheck-report/1", "race")
    assert [report[key] for key in ("scenario", "lag", "seed", "steps")] == ["small", "seed:3", 7, 9]
    assert [(row["runner"], row["slots"]) for row in report["rows"]] == [("main", 1), ("piecewise", 1)]


def test_several_paths_make_one_report(run: Run, verdicts: dict[tuple[str, int], str]) -> None:
    """A file named twice runs once."""
    Path("other.toml").write_text(SCENARIO.replace('"small"', '"other"'))
    Path("trace.csv").write_text(Path("scenarios/trace.csv").read_text())
    _, out, _ = run("run", "other.toml", "scenarios", "./other.toml", "--json")
    assert len(json.loads(out)["rows"]) == 6


def test_a_pipe_is_wide_and_a_set_width_is_kept(
    run: Run, verdicts: dict[tuple[str, int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a terminal the report has 120 columns, unless COLUMNS says otherwise."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert "First buffer" in run("run", "scenarios")[1]
    monkeypatch.setenv("COLUMNS", "50")
    narrow = run("run", "scenarios")[1]
    assert "First buffer" not in narrow
    assert max(map(len, narrow.splitlines())) <= 50


def test_a_page_of_all_rows(run: Run, verdicts: dict[tuple[str, int], str]) -> None:
    """Besides the text; a place that cannot be written is known before any row runs."""
    plain = run("run", "scenarios")
    assert run("run", "scenarios", "--html", "page.html") == plain
    page = Path("page.html").read_text()
    assert page.count('<section class="chapter"') == 3
    code, out, err = run("run", "scenarios", "--html", "no/page.html")
    assert (code, out) == (2, "")
    assert err.endswith(
        "--html no/page.html: cannot be written (No such file or directory); name another file\n"
    )


def test_a_timeline_is_that_of_one_row(run: Run, verdicts: dict[tuple[str, int], str]) -> None:
    """Like a trace."""
    code, out, err = run("run", "scenarios", "--perfetto", "x.json")
    assert (code, out) == (2, "")
    assert err.startswith("racecheck run: --perfetto: a trace is that of one row; ")
    assert not Path("x.json").exists()
    code, _, err = run("run", "scenarios", "--runner", "main", "--slots", "1", "--perfetto", "x.json")
    assert (code, err) == (1, "")
    assert json.loads(Path("x.json").read_text())["displayTimeUnit"] == "ms"


# -- the real thing ------------------------------------------------------------------------------


def shell(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run racecheck in a process of its own, at the repository's root."""
    return subprocess.run(
        [sys.executable, "-m", "racecheck", *arguments],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_same_seed_gives_the_same_bytes() -> None:
    """In another process with another hash seed, and in ASCII."""
    options = (
        "run",
        "scenarios/qwen3-tts.toml",
        "--slots",
        "1",
        "--runner",
        "piecewise",
        "--steps",
        "20",
        "--json",
    )
    first = shell(*options, PYTHONHASHSEED="1")
    second = shell(*options, PYTHONHASHSEED="2", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (first.returncode, first.stderr) == (1, "")
    assert first.stdout == second.stdout
    assert json.loads(first.stdout)["findings"][0]["buffer"] == "code_predictor_sampler.gather_indices"
    assert "0x" not in first.stdout


def test_a_report_does_not_depend_on_the_working_directory() -> None:
    """File names and fingerprints are the same from the repository's root and from above it."""
    options = ("--slots", "1", "--runner", "piecewise", "--steps", "16", "--json")
    reports = [
        subprocess.run(
            [sys.executable, "-m", "racecheck", "run", f"{ROOT}/scenarios/qwen3-tts.toml", *options],
            cwd=folder, capture_output=True, text=True, check=False,
        )
        for folder in (ROOT, ROOT.parent, ROOT / "racecheck" / "engine")
    ]  # fmt: skip
    assert [done.stderr for done in reports] == ["", "", ""]
    assert len({done.stdout for done in reports}) == 1
    assert '"file": "racecheck/engine/resources/base.py"' in reports[0].stdout


def test_one_step_is_inconclusive() -> None:
    """A run that rewrites no buffer proves nothing."""
    done = shell("run", "scenarios/qwen3-tts.toml", "--steps", "1", "--runner", "main")
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.endswith("0 of 3 rows as expected, 3 not put to the test\n")


def test_a_reader_that_leaves_is_no_error() -> None:
    """`racecheck ... | head -1` ends quietly."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stdout:
        done = into(stdout)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_full_disk_is_one_line() -> None:
    """A report that cannot be written is not a report."""
    with Path("/dev/full").open("w") as stdout:
        done = into(stdout)
    assert done.returncode == 2
    assert done.stderr == "racecheck: stdout: No space left on device; write the report somewhere else\n"


def into(stdout: IO[str]) -> subprocess.CompletedProcess[str]:
    """Let racecheck write to `stdout`."""
    return subprocess.run(
        [sys.executable, "-m", "racecheck", "--version"],
        cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip


# -- for CI --------------------------------------------------------------------------------------


def test_a_run_is_written_for_ci(run: Run, verdicts: dict[tuple[str, int], str]) -> None:
    """What is not as expected is an alert at the line that expects it, or at the race; the rest is none."""
    verdicts["main", 2] = "race"
    verdicts["piecewise", 1] = "clean"
    code, _, _ = run("run", "scenarios", "--sarif", "out.sarif", "--markdown", "out.md")
    results = json.loads(Path("out.sarif").read_text())["runs"][0]["results"]
    assert code == 1
    assert [result["ruleId"] for result in results] == ["race/h2d-read-vs-host-write", "expectation/not-met"]
    place = results[1]["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("scenarios/small.toml", 19)
    assert "`small::main-slots-2`" in Path("out.md").read_text()


def test_a_run_knows_a_baseline(run: Run, verdicts: dict[tuple[str, int], str]) -> None:
    """A known race is shown and does not fail; one that is expected needs no entry."""
    verdicts["main", 2] = "race"
    _, out, _ = run("run", "scenarios", "--json")
    Path("report.json").write_text(out)
    run("baseline", "update", "report.json", "--reason", "soon", "--expires", "9999-01-01")
    code, out, _ = run("run", "scenarios", "--baseline", "racecheck-baseline.toml")
    assert code == 0
    assert out.splitlines()[-1].startswith("known     racecheck-baseline.toml:3: ")
    code, out, _ = run("run", "scenarios", "--baseline", "racecheck-baseline.toml", "--json")
    report = json.loads(out)
    assert (code, list(report["known"].values())) == (0, ["soon (until 9999-01-01)"])


def test_a_bad_baseline_is_one_line(run: Run, verdicts: dict[tuple[str, int], str]) -> None:
    """Before any row runs."""
    Path("known.toml").write_text("baseline = 1\n[[known]]\n")
    code, out, err = run("run", "scenarios", "--baseline", "known.toml")
    assert (code, out) == (2, "")
    assert err.startswith("known.toml:2: the key fingerprint is missing; write fingerprint = ")


def test_the_command_line_starts_without_what_takes_seconds() -> None:
    """Help, completion and a mistyped option need neither PyTorch nor Hypothesis nor a solver."""
    heavy = ("torch", "hypothesis", "z3", "cupti", "flashinfer")
    code = f"import sys, racecheck.cli; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--examples", "0", "racecheck fuzz: --examples: must be 1 or more; see racecheck fuzz --help"),
        ("--minutes", "nan", "racecheck fuzz: --minutes: must be 0.01 or more; see racecheck fuzz --help"),
        ("-n", "x", "racecheck fuzz: -n: must be a whole number; see racecheck fuzz --help"),
        ("-n", "5000", "racecheck fuzz: -n: must be 1024 or less; see racecheck fuzz --help"),
    ],
)
def test_a_number_that_will_not_do(
    option: str, value: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In racecheck's words, not in those of a library."""
    assert cli.main(["fuzz", "scenarios/orpheus.toml", option, value]) == 2
    assert capsys.readouterr().err == f"{said}\n"
