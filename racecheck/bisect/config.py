"""Which key of a scenario opens a race: trials between a good file and a bad one, in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from racecheck.bisect.keys import ABSENT, Key, changed, differences, minimal
from racecheck.detect.finding import Finding
from racecheck.errors import BisectError, RacecheckError
from racecheck.scenario.load import ScenarioFile, load
from racecheck.scenario.model import Scenario
from racecheck.scenario.plan import Overrides, check, plan_all
from racecheck.scenario.run import References, run_row
from racecheck.scenario.source import read_toml

#: Races to list that were not followed.
MOST_OTHERS = 12
#: Called after each trial: the keys that had their bad values, and what came of it.
OnTrial = Callable[[frozenset[Key], str], None]


@dataclass
class Opened:
    """`keys` open the race `finding`, together and not without any one of them."""

    keys: dict[Key, tuple[Any, Any]]  # the good and the bad value
    finding: Finding
    trials: int
    differing: int
    closed: bool = False  # is the race gone from the bad file when these keys alone are good?
    others: list[Finding] = field(default_factory=list)


class _Trials:
    """Runs scenarios between the good file and the bad one."""

    def __init__(self, good: Path, on_trial: OnTrial) -> None:
        self._path = good
        self._references = References()
        self._on_trial = on_trial
        self.count = 0
        self.refused = ""  # why the latest mixture that cannot run cannot

    def findings(self, content: dict[str, Any], keys: frozenset[Key]) -> list[Finding] | None:
        """What all rows find; None if this mixture is no scenario that can run."""
        self.count += 1
        try:
            file = ScenarioFile(self._path, Scenario.model_validate(content), {(): 1})
            check(file)
            rows = [run_row(plan, self._references) for plan in plan_all([file], Overrides())]
        except (ValidationError, RacecheckError) as error:
            self.refused = " ".join(str(error).split())
            self._on_trial(keys, "cannot run")
            return None
        found = [finding for row in rows for finding in row.findings]
        self._on_trial(keys, found[0].rule + " on " + found[0].buffer if found else "no race")
        return found


def bisect_keys(good: Path, bad: Path, fingerprint: str | None, on_trial: OnTrial) -> Opened:
    """The keys that open the first race of `bad` that `good` lacks, or the one with `fingerprint`.

    Raises:
        ScenarioError: a file is no scenario (one line).
        BisectError: the files do not differ, bad is good, or good is bad.
    """
    content, worse = _content(good), _content(bad)
    differ = differences(content, worse)
    if not differ:
        raise _wrong(f"{bad}: differs from {good} in nothing but its name; name two that do")
    trials = _Trials(good, on_trial)
    every = frozenset(differ)
    at_bad = trials.findings(worse, every)
    if at_bad is None:
        raise _wrong(f"{bad}: cannot be run ({trials.refused}); name a scenario that can")
    if not at_bad:
        raise _wrong(f"{bad}: shows no race; name a scenario that does")
    at_good = {finding.fingerprint for finding in trials.findings(content, frozenset()) or []}
    new = [finding for finding in at_bad if finding.fingerprint not in at_good]
    wanted = [finding for finding in new if fingerprint in (None, finding.fingerprint)]
    if not wanted:
        which = "every race" if fingerprint is None else f"the race {fingerprint}"
        raise _wrong(f"{good}: {which} of {bad} is in it too, or in neither; name a scenario that lacks it")
    followed = next((finding for finding in wanted if finding.certain), wanted[0])

    def shows(table: dict[str, Any], keys: frozenset[Key]) -> bool:
        found = trials.findings(table, keys) or []
        return followed.fingerprint in {finding.fingerprint for finding in found}

    def opens(keys: frozenset[Key]) -> bool:
        return keys == every or shows(changed(content, {key: differ[key][1] for key in keys}), keys)

    found = {key: differ[key] for key in minimal(list(differ), opens)}
    mended = changed(worse, {key: values[0] for key, values in found.items()})
    closed = not shows(mended, every - frozenset(found))
    others = [finding for finding in new if finding is not followed]
    return Opened(found, followed, trials.count, len(differ), closed, others)


def _content(path: Path) -> dict[str, Any]:
    """The TOML of a valid scenario, its request trace by absolute path: two files may be in two folders."""
    check(load(path))
    _, content = read_toml(path)
    workload = content["workload"]
    workload["trace"] = str(path.parent.absolute() / workload["trace"])
    return content


def markdown(opened: Opened, good: Path, bad: Path) -> str:
    """The result to paste."""
    finding = opened.finding
    names = [f"`{'.'.join(key)}`" for key in opened.keys]
    lines = [
        f"# {' and '.join(names)} {'opens' if len(names) == 1 else 'open'} the race",
        "",
        f"- {opened.differing} keys differ between `{good}` and `{bad}`, {opened.trials} trials",
        f"- race: `{finding.rule}` on `{finding.buffer}`, fingerprint {finding.fingerprint}",
        f"- first: {finding.first}",
        f"- second: {finding.second}",
        f"- missing: {finding.missing}",
        f"- without {'it' if len(names) == 1 else 'them'}, `{bad}` "
        + ("lacks this race" if opened.closed else "has this race all the same: other keys open it too"),
        *_others(opened.others),
        "",
        "| key | good | bad |",
        "|---|---|---|",
    ]
    for key, values in opened.keys.items():
        shown = ("(absent)" if value is ABSENT else f"`{value}`" for value in values)
        lines.append(f"| `{'.'.join(key)}` | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def _others(findings: list[Finding]) -> list[str]:
    lines = [f"- not followed: {other.rule} on {other.buffer} ({other.fingerprint})" for other in findings]
    left = len(lines) - MOST_OTHERS
    return lines if left <= 0 else [*lines[:MOST_OTHERS], f"- and {left} more"]


def _wrong(message: str) -> BisectError:
    return BisectError(f"racecheck bisect config: {message}")
