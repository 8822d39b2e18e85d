"""The list of known findings: what it says, what it is refused for, and what it does to outcomes."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from samples import make_finding, make_outcome

from racecheck.detect.finding import Finding
from racecheck.errors import UsageError
from racecheck.report.baseline import Entry, described, load, render

DAY = datetime.date(2026, 6, 15)
PRINT = make_finding().fingerprint
OTHER = make_finding("kv.indices").fingerprint
TEXT = f"""\
baseline = 1

[[known]]
fingerprint = "{PRINT}"
reason = "soon"
expires = 2026-06-15

[[known]]
fingerprint = "{OTHER}"
rule = "race/h2d-read-vs-host-write"
buffer = "kv.indices"
reason = "later"
expires = 2026-06-14
"""


def write(tmp_path: Path, text: str = TEXT) -> Path:
    """A baseline with `text`."""
    path = tmp_path / "known.toml"
    path.write_text(text)
    return path


def test_a_known_finding_is_known_to_its_last_day(tmp_path: Path) -> None:
    """Not the day after; and only if all findings of an outcome are known."""
    baseline = load(write(tmp_path))
    one, both = (
        make_outcome("race", findings) for findings in ([make_finding()], [make_finding(), make_finding("x")])
    )
    states = [outcome.state for outcome in baseline.apply([one, both, make_outcome("clean")], DAY)]
    assert states == ["known", "failed", "ok"]
    (known, _) = baseline.apply([one, both], DAY)
    assert known.known == {PRINT: "soon (until 2026-06-15)"}
    (late,) = baseline.apply([one], DAY + datetime.timedelta(days=1))
    assert (late.state, dict(late.known)) == ("failed", {})


def test_a_finding_does_not_inherit_what_was_accepted_of_another(tmp_path: Path) -> None:
    """Two findings alike, numbered as they appear: one that was accepted goes, or a third one comes."""
    first, second, third = (make_finding(ordinal=number) for number in (1, 2, 3))
    entries = [
        Entry(fingerprint=each.fingerprint, alike=2, reason="soon", expires=DAY) for each in (first, second)
    ]

    def states(accepted: list[Entry], *runs: list[Finding]) -> list[str]:
        baseline = load(write(tmp_path, render(accepted)))
        outcomes = [make_outcome("race", run) for run in runs]
        return [outcome.state for outcome in baseline.apply(outcomes, DAY)]

    assert states(entries[:1], [first]) == ["failed"], "what is left has taken its number"
    runs = [first, second], [first], [first, second, third]
    assert states(entries, *runs) == ["known", "known", "failed"]
    (one,) = load(write(tmp_path, render(entries[:1]))).apply([make_outcome("race", [first])], DAY)
    assert described(load(write(tmp_path)), [one], DAY)[0].startswith("changed ")


def test_a_baseline_excuses_findings_only(tmp_path: Path) -> None:
    """Not an expectation that is not met, and nothing that was not put to the test."""
    baseline = load(write(tmp_path))
    others = [make_outcome("clean", ok=False), make_outcome("inconclusive")]
    assert [each.state for each in baseline.apply(others, DAY)] == ["failed", "untested"]


def test_each_entry_is_told_in_a_line(tmp_path: Path) -> None:
    """Known, expired or not seen, with its place in the file."""
    path = write(tmp_path)
    seen = load(path).apply([make_outcome("race", [make_finding()])], DAY)
    none = [make_outcome("clean")]
    about = f"{path}:3: {PRINT} (soon, until 2026-06-15)"
    other = f"{path}:8: {OTHER} race/h2d-read-vs-host-write on kv.indices (later, until 2026-06-14)"
    expired = f"expired   {other}"
    assert described(load(path), seen, DAY) == [f"known     {about}", expired]
    assert described(load(path), none, DAY) == [f"not seen  {about}", expired]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """Also reasons with quotes, backslashes and other letters; sorted by what entries are about."""
    entries = [
        Entry(fingerprint="f" * 16, rule="stale/x", buffer="b", reason='"so" \\ ü\n', expires=DAY),
        Entry(fingerprint="0" * 16, rule="race/y", buffer="c", reason="no", expires=DAY),
    ]
    again = load(write(tmp_path, render(entries))).entries
    assert list(again.values()) == entries[::-1]
    assert render(again.values()) == render(entries)


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("baseline = 1", "", "1: the key baseline is missing; write baseline = 1"),
        ("baseline = 1", "baseline = 2", "1: baseline: 2 is not known; write one of 1"),
        ('reason = "soon"', "", "3: the key reason is missing; write reason = *"),
        ('reason = "soon"', 'reason = ""', "5: known.0.reason: this is empty; write reason = *"),
        ('reason = "soon"', 'raeson = "soon"', "5: unknown key 'raeson'; did you mean reason?"),
        (
            "2026-06-15",
            '"2026-06-15"',
            "6: known.0.expires: expected a date without quotes; *",
        ),
        ("2026-06-15", "2026-06-35", "6: malformed TOML: *"),
        (PRINT, "d2f4", "4: known.0.fingerprint: 'd2f4' is no fingerprint; write the 16 characters *"),
        (OTHER, PRINT, f"9: {PRINT} is here twice; delete one of the two entries"),
        ("[[known]]", "[known]", "*; *"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, old: str, new: str, wrong: str) -> None:
    """With file, line and what to write instead."""
    path = write(tmp_path, TEXT.replace(old, new, 1))
    with pytest.raises(UsageError) as raised:
        load(path)
    pytest.LineMatcher(str(raised.value).splitlines()).fnmatch_lines([f"{path}:{wrong}"], consecutive=True)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    """It says what should be there."""
    with pytest.raises(UsageError, match=r"none\.toml:1: there is no such file; name a baseline"):
        load(tmp_path / "none.toml")
