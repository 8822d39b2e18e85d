"""What pull requests and CI servers show: annotations, JUnit properties, the Markdown summary."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from samples import make_finding, make_outcome, make_row

from racecheck.report import Report, github, json, junit, markdown, outcome
from racecheck.report.outcome import exit_code, from_report

GOLDEN = Path(__file__).parent / "golden" / "race.md"
KNOWN = {make_finding().fingerprint: "fixed soon (until 2027-01-31)"}


def test_an_annotation_is_one_line() -> None:
    """With the place of the later access, from the top of the repository."""
    assert github.render([make_outcome("race", [make_finding()])]) == (
        "::error file=src/engine/sampler.py,line=85,title=race/h2d-read-vs-host-write on sampler.rows::"
        "sampler.rows: nothing orders the h2d copy reads before the host write (h2d copy reads at "
        "engine/sampler.py:88, stream 1, step 4; host write at engine/sampler.py:85, thread main, step 5). "
        "Repair: wait for the copy.\n"
    )


def test_annotations_are_escaped() -> None:
    """A name cannot end the command, the property or the line, and cannot start another one."""
    nasty = "a%b:c,d\r\n::warning::e"
    (line,) = github.render([make_outcome("inconclusive", name=nasty, reason="no")]).splitlines()
    assert line == (
        "::warning title=inconclusive%3A a%25b%3Ac%2Cd%0D%0A%3A%3Awarning%3A%3Ae::"
        "a%25b:c,d%0D%0A::warning::e: no"
    )


def test_a_known_finding_is_a_notice() -> None:
    """It says why it is known."""
    line = github.render([make_outcome("race", [make_finding()], known=KNOWN)])
    assert line.startswith("::notice file=")
    assert line.endswith(" Known: fixed soon (until 2027-01-31)\n")


def test_junit_properties_name_findings() -> None:
    """The verdict, then fingerprint and buffer of each."""
    findings = [make_finding(), make_finding("kv.indices")]
    assert junit.properties(make_outcome("race", findings)) == [
        ("racecheck_verdict", "race"),
        ("racecheck_fingerprint", findings[0].fingerprint),
        ("racecheck_buffer", "sampler.rows"),
        ("racecheck_fingerprint", findings[1].fingerprint),
        ("racecheck_buffer", "kv.indices"),
    ]


def test_the_golden_summary() -> None:
    """Every byte of a summary of a race, a known one, something untested and what is fine."""
    other = make_finding("kv.indices", certain=False, reasons=["the event sync at a_b.py:3 comes too late"])
    text = markdown.render(
        [
            make_outcome("clean"),
            make_outcome("race", [make_finding()], name="known", known=KNOWN),
            make_outcome("race", [other], name="test_a.py::test[x|y]"),
            make_outcome("inconclusive", name="test_b.py::test"),
        ]
    )
    assert text == GOLDEN.read_text()


def test_a_summary_says_the_worst() -> None:
    """Of what failed: then what is untested, then what is known."""
    race = make_outcome("race", [make_finding()], known=KNOWN)
    for outcomes, heading in (
        ([], "passed"),
        ([make_outcome("clean")], "passed"),
        ([make_outcome("clean"), race], "known findings only"),
        ([race, make_outcome("inconclusive")], "inconclusive"),
        ([race, make_outcome("stale", [make_finding()])], "stale"),
    ):
        assert markdown.render(outcomes).startswith(f"## racecheck: {heading}\n"), heading


def test_a_summary_ends_somewhere() -> None:
    """What is beyond 20 is counted."""
    many = [make_outcome("race", [make_finding(f"b{n}")], name=f"test_{n}") for n in range(25)]
    text = markdown.render(many)
    assert text.count("\n### ") == 20
    assert "\n5 verdicts more.\n" in text
    assert text.endswith("\n5 alerts more.\n")


@pytest.mark.parametrize("name", ["a|b", "`a`", "<script>", "*a*_b_[c](d)", "a\nb", "#1 ~~x~~ &lt;"])
def test_a_summary_shows_names_as_they_are(name: str) -> None:
    """Neither Markdown nor HTML in them, nor a table's cell ended early."""
    text = markdown.render([make_outcome("race", [make_finding(name)], name=name)])
    title = re.search(r"^### race/h2d-read-vs-host-write on (.*)$", text, re.MULTILINE)
    assert title is not None
    assert "<" not in title[1]
    assert not re.search(r"(?<!\\)[`*_|~#\[\]]", title[1])
    row = text.splitlines()[6]
    assert len(re.findall(r"(?<!\\)\|", row)) == 5


def test_a_step_of_a_workflow_has_a_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is appended to the file that the environment names, and only there."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    markdown.append_to_step_summary([make_outcome("clean")])
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    markdown.append_to_step_summary([make_outcome("clean")])
    assert path.read_text() == "before\n" + markdown.render([make_outcome("clean")])


def test_rows_become_outcomes() -> None:
    """Each with its own findings, its expectation's place, and the exit code that the rows have."""
    rows = [make_row("race", "race"), make_row("race", "clean", slots=2), make_row("inconclusive", "clean")]
    report = Report(rows[:2])
    found = from_report(json.as_dict(report), "/", [("a.toml", 15), ("a.toml", 16)])
    assert [(each.name, each.state, each.line, len(each.findings)) for each in found] == [
        ("small::main-slots-1", "ok", 15, 1),
        ("small::main-slots-2", "failed", 16, 1),
    ]
    for some in (rows[:1], rows[:2], rows[2:], [*rows[:1], *rows[2:]], rows):
        report = Report(some)
        assert exit_code(from_report(json.as_dict(report), "/")) == report.exit_code


def test_outcomes_survive_being_plain() -> None:
    """What a worker sends is what the controller reads."""
    made = make_outcome("race", [make_finding()], known=KNOWN)
    (plain,) = outcome.as_dict([made])["outcomes"]
    assert (plain["state"], outcome.from_dict(plain)) == ("known", made)
