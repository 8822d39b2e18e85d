"""`racecheck baseline`, from a report to a list; and what commands write for CI."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from racecheck import cli
from racecheck.report import baseline

Run = Callable[..., tuple[int, str, str]]

PROGRAM = """\
# expect: RACE
alloc device D
alloc pinned {name}
host_write {name}
h2d {name} -> D on s
host_write {name}
"""
SAFE = "# expect: SAFE\nalloc pinned P\nhost_write P\n"
REASON = ("--reason", "soon", "--expires", "2026-06-15")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in a folder of two programs with a race, p and q, on the 15th of June 2026."""
    for name in ("P", "Q"):
        (tmp_path / f"{name.lower()}.litmus").write_text(PROGRAM.format(name=name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.setattr(baseline, "today", lambda: datetime.date(2026, 6, 15))

    def call(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    for name in ("p", "q"):
        _, out, _ = call("check", f"{name}.litmus", "--json")
        (tmp_path / f"{name}.json").write_text(out)
    return call


def test_a_list_is_made_from_a_report(run: Run) -> None:
    """Then the same findings are known, and others new; a second update adds nothing."""
    assert run("baseline", "update", "p.json", *REASON) == (
        0, "racecheck-baseline.toml: 1 added, 0 renewed, 0 kept\n", "",
    )  # fmt: skip
    assert run("baseline", "update", "p.json", *REASON)[1].endswith(" 0 added, 0 renewed, 1 kept\n")
    code, out, _ = run("baseline", "check", "p.json")
    assert (code, out.split()[:2]) == (0, ["known", "racecheck-baseline.toml:3:"])
    code, out, _ = run("baseline", "check", "q.json")
    assert code == 1
    assert [line.split()[0] for line in out.splitlines()] == ["not", "new"]
    assert "race/h2d-read-vs-host-write on Q, seen in q.json" in out


def test_an_expired_entry_fails_until_it_is_renewed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or pruned, where nothing shows it any more."""
    run("baseline", "update", "p.json", "q.json", *REASON)
    monkeypatch.setattr(baseline, "today", lambda: datetime.date(2026, 6, 16))
    code, out, _ = run("baseline", "check", "p.json", "q.json")
    assert (code, out.count("expired   ")) == (1, 2)
    out = run("baseline", "update", "p.json", "--reason", "again", "--expires", "2026-07-01")[1]
    assert out.endswith(" 0 added, 1 renewed, 1 kept\n")
    code, out, _ = run("baseline", "check", "p.json")
    assert (code, out.count("expired   "), out.count("again, until 2026-07-01")) == (1, 1, 1)
    out = run("baseline", "prune", "p.json")[1]
    assert (out.count("deleted   "), out.endswith(" 1 deleted, 1 kept\n")) == (1, True)
    assert run("baseline", "check", "p.json")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("check", "none.json"), "none.json:1: there is no such file; name a report: what --json printed, *"),
        (("check", "p.litmus"), "p.litmus:1: malformed JSON: *; name a report: *"),
        (("check", "list.json"), "list.json:1: its format is none of racecheck-report/1, *; name a *"),
        (("check", "half.json"), "half.json:1: this report is not whole ('findings'); write it again"),
        (("check", "p.json"), "racecheck-baseline.toml:1: there is no such file; name a baseline *"),
        (("update", "p.json", "--reason", " ", "--expires", "2026-07-01"),
         "racecheck baseline update: --reason: '' is no reason; say why this may stay for now"),
        (("update", "p.json", "--reason", "x", "--expires", "soon"),
         "racecheck baseline update: --expires: 'soon' is no date; write one as 2027-01-31"),
        (("update", "p.json", "--reason", "x", "--expires", "2026-06-14"),
         "racecheck baseline update: --expires: 2026-06-14 has passed; write a later day"),
        (("update", "p.json", *REASON, "--baseline", "no/where.toml"),
         "no/where.toml:1: cannot be written (*); name another file"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(run: Run, arguments: tuple[str, ...], wrong: str) -> None:
    """On stderr, with file and line or the option, and exit code 2."""
    Path("list.json").write_text("[]")
    Path("half.json").write_text('{"format": "racecheck-check/1", "verdict": "race"}')
    code, _, err = run("baseline", *arguments)
    assert code == 2
    pytest.LineMatcher(err.splitlines()).fnmatch_lines([wrong], consecutive=True)
    assert err.count("\n") == 1


def test_a_trace_is_judged_against_a_list(run: Run) -> None:
    """What it knows does not fail: on paper, and in JSON with the reason."""
    run("baseline", "update", "p.json", *REASON)
    code, out, _ = run("check", "p.litmus", "--baseline", "racecheck-baseline.toml")
    assert (code, out.splitlines()[-1].split()[0]) == (0, "known")
    assert run("check", "q.litmus", "--baseline", "racecheck-baseline.toml")[0] == 1
    code, out, err = run("check", "p.litmus", "--baseline", "racecheck-baseline.toml", "--json")
    (reason,) = json.loads(out)["known"].values()
    assert (code, reason, err.split()[0]) == (0, "soon (until 2026-06-15)", "known")


def test_a_trace_is_written_for_ci(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """SARIF, Markdown and the summary of a step; the exit code is that of the verdict."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    code, _, _ = run("check", "p.litmus", "--sarif", "p.sarif", "--markdown", "p.md")
    assert code == 1
    (result,) = json.loads(Path("p.sarif").read_text())["runs"][0]["results"]
    assert result["ruleId"] == "race/h2d-read-vs-host-write"
    assert Path("p.md").read_text() == Path("summary.md").read_text()
    Path("safe.litmus").write_text(SAFE)
    assert run("check", "safe.litmus", "--sarif", "p.sarif")[0] == 3
    (result,) = json.loads(Path("p.sarif").read_text())["runs"][0]["results"]
    assert result["ruleId"] == "expectation/not-tested"


def test_a_place_that_cannot_be_written_is_one_line(run: Run) -> None:
    """Before the work, with the command and the option."""
    code, out, err = run("check", "p.litmus", "--sarif", "no/where.sarif")
    assert (code, out) == (2, "")
    assert err.startswith("racecheck check: --sarif no/where.sarif: cannot be written (")
