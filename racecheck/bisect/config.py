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
from racecheck.scenario.problems import toml
from racecheck.scenario.run import References, run_row
from racecheck.scenario.source import read_toml
from racecheck.words import counted, few

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
        self._known: dict[frozenset[Key], list[Finding] | None] = {}
        self.count = 0
        self.refused = ""  # why the latest mixture that cannot run cannot

    def findings(self, content: dict[str, Any], keys: frozenset[Key]) -> list[Finding] | None:
        """What all rows find with the bad values of `keys`; None if that is no scenario that can run.

        No mixture is run twice.
        """
        if keys not in self._known:
            self._known[keys] = self._run(content, keys)
        return self._known[keys]

    def _run(self, content: dict[str, Any], keys: frozenset[Key]) -> list[Finding] | None:
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
    at_good = {finding.fingerprint for finding in trials.findings(content, frozenset()) or []}
    new = [finding for finding in at_bad if finding.fingerprint not in at_good]
    wanted = [finding for finding in new if fingerprint in (None, finding.fingerprint)]
    if not wanted:
        names = list(dict.fromkeys(finding.fingerprint for finding in at_bad))
        raise _wrong(_unwanted(good, bad, fingerprint, names, at_good))
    followed = next((finding for finding in wanted if finding.certain), wanted[0])

    def shows(table: dict[str, Any], keys: frozenset[Key]) -> bool:
        found = trials.findings(table, keys) or []
        return followed.fingerprint in {finding.fingerprint for finding in found}

    def opens(keys: frozenset[Key]) -> bool:
        return shows(changed(content, {key: differ[key][1] for key in keys}), keys)

    found = {key: differ[key] for key in minimal(list(differ), opens)}
    mended = changed(worse, {key: values[0] for key, values in found.items()})
    closed = not shows(mended, every - frozenset(found))
    others = list({one.fingerprint: one for one in new if one.fingerprint != followed.fingerprint}.values())
    return Opened(found, followed, trials.count, len(differ), closed, others)


def _unwanted(good: Path, bad: Path, asked: str | None, at_bad: list[str], at_good: set[str]) -> str:
    """Why there is no race to follow, and what to write instead."""
    only_good = at_good - set(at_bad)
    if asked in only_good:
        return f"{bad}: lacks the race {asked}, and {good} has it; did you swap them?"
    if asked is not None and asked not in at_bad:
        has = f"has {few(at_bad)}" if at_bad else "shows no race"
        return f"--fingerprint {asked}: {bad} {has}; write one it has"
    if asked is not None:
        return f"{good}: the race {asked} of {bad} is in it too; name a scenario that lacks it"
    if only_good:
        lacks = f"has no race that {good} lacks" if at_bad else "shows no race"
        return f"{bad}: {lacks}, and {good} has one that it lacks; did you swap them?"
    if not at_bad:
        return f"{bad}: shows no race; name a scenario that does"
    return f"{good}: every race of {bad} is in it too; name a scenario that lacks it"


def _content(path: Path) -> dict[str, Any]:
    """The TOML of a valid scenario, its request trace by absolute path: two files may be in two folders."""
    check(load(path))
    _, content = read_toml(path)
    workload = content["workload"]
    workload["trace"] = str(path.parent.absolute() / workload["trace"])
    return content


def markdown(opened: Opened, good: Path, bad: Path) -> str:
    """The result to paste: the keys with their values, the race, and what else the bad file shows."""
    finding = opened.finding
    names = [f"`{'.'.join(key)}`" for key in opened.keys]
    differ = "key differs" if opened.differing == 1 else "keys differ"
    lines = [
        f"# {' and '.join(names)} {'opens' if len(names) == 1 else 'open'} the race",
        "",
        "| key | good | bad |",
        "|---|---|---|",
        *(
            f"| {name} | {_cell(one)} | {_cell(two)} |"
            for name, (one, two) in zip(names, opened.keys.values(), strict=True)
        ),
        "",
        f"- {opened.differing} {differ} between `{good}` and `{bad}`, {counted(opened.trials, 'trial')}",
        f"- race: `{finding.rule}` on `{finding.buffer}`, fingerprint {finding.fingerprint}",
        f"- first: {finding.first}",
        f"- second: {finding.second}",
        f"- missing: {finding.missing}",
        f"- without {'it' if len(names) == 1 else 'them'}, `{bad}` "
        + ("lacks this race" if opened.closed else "has this race all the same: other keys open it too"),
        *_others(opened.others),
    ]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    """A value as it stands in the file; a bar would end the cell."""
    return "(absent)" if value is ABSENT else f"`{toml(value)}`".replace("|", "\\|")


def _others(findings: list[Finding]) -> list[str]:
    if not findings:
        return []
    lines = [f"- {other.rule} on {other.buffer} ({other.fingerprint})" for other in findings[:MOST_OTHERS]]
    left = len(findings) - MOST_OTHERS
    more = [f"- and {left} more"] if left > 0 else []
    return [
        "",
        "Other races of the bad file, not followed (`--fingerprint F` follows one):",
        "",
        *lines,
        *more,
    ]


def _wrong(message: str) -> BisectError:
    return BisectError(f"racecheck bisect config: {message}")
