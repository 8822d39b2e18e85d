"""One run at one commit: a scenario by `racecheck run --json`, or any command.

The child sees the worktree first, and what is sought in it (`places.python_path`). racecheck itself is the
one that bisects, unless the repository holds racecheck: then each commit runs its own.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import racecheck
from racecheck.bisect import child, observe
from racecheck.bisect.child import Interrupts
from racecheck.bisect.git import clean_environment
from racecheck.bisect.state import Settings
from racecheck.bisect.verdict import Run, classify
from racecheck.errors import UsageError
from racecheck.report.channel import VARIABLE
from racecheck.scenario.load import load
from racecheck.scenario.model import MOST_STEPS

#: How many times the steps a run gets that had put nothing to the test.
MORE_STEPS = 4
FACTOR_VARIABLE = "RACECHECK_STEPS_FACTOR"


class Copied(NamedTuple):
    """A scenario that stays the same at every commit, its steps, and the folder that it is told to lie in."""

    path: Path
    steps: int
    folder: str

    def told(self, text: str) -> str:
        """`text` with the name that the user knows in the place of the copy's."""
        return text.replace(
            os.path.join(self.path.parent, ""), os.path.join(self.folder, "").removeprefix("./")
        )


def copy_scenario(path: Path, folder: Path) -> tuple[Path, int]:
    """Copy the scenario and its trace, which can be read, below `folder`: where it is then, and its steps.

    The trace is named relative to the scenario, so both keep their places to each other.
    """
    file = load(path)
    trace = os.path.normpath(file.scenario.workload.trace)
    depth = trace.split(os.sep).count(os.pardir)
    place = folder.joinpath("scenario", *["below"] * depth, path.name)
    target = Path(os.path.normpath(place.parent / trace))
    for source, to in ((path, place), (path.parent / trace, target)):
        if not to.is_absolute() or to != source:
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, to)
    return place, file.scenario.steps


class Runner:
    """Runs what the settings say in the worktree at `folder`."""

    def __init__(
        self, settings: Settings, scenario: Copied | None, folder: Path, path: Sequence[str], scratch: Path
    ) -> None:
        """`path` is where modules are looked for, relative to `folder`."""
        self._settings = settings
        self._scenario = scenario
        self._folder = folder
        self._report = scratch / "report.json"
        self._env = clean_environment() | {"PYTHONPATH": self._python_path(path)}
        # Bytecode outside the worktree outlives its commit; one of the same second and size passes for it.
        self._env.pop("PYTHONPYCACHEPREFIX", None)
        self.seconds = 0.0
        self.runs = 0

    def set_up(self, interrupts: Interrupts) -> Run | None:
        """Run the set-up command; None if all is well."""
        if self._settings.setup is None:
            return None
        outcome = self._child(["sh", "-c", self._settings.setup], {}, interrupts)
        if outcome.code == 0:
            return None
        run = classify(outcome, None, scenario=True)
        remedy = run.remedy if outcome.code is None else "mend --setup, or name a commit at which it works"
        return Run(run.kind, f"set-up: {run.reason}", remedy=remedy)

    def once(self, interrupts: Interrupts, *, more: bool = False) -> Run:
        """One run, with `more` steps if the one before was inconclusive."""
        self.runs += 1
        self._report.unlink(missing_ok=True)
        factor = MORE_STEPS if more else 1
        env = {FACTOR_VARIABLE: str(factor)}
        if self._scenario is None:
            env[VARIABLE] = str(self._report)
        outcome = self._child(self._command(factor), env, interrupts)
        report = observe.read(outcome.stdout, self._report)
        return classify(outcome, report, scenario=self._scenario is not None)

    def _command(self, factor: int) -> list[str]:
        if self._scenario is None:
            return self._settings.command
        steps = min(self._scenario.steps * factor, MOST_STEPS)
        command = [sys.executable, "-m", "racecheck", "run", str(self._scenario.path), "--json"]
        return command if factor == 1 else [*command, "--steps", str(steps)]

    def _child(self, command: list[str], env: dict[str, str], interrupts: Interrupts) -> child.Outcome:
        try:
            outcome = child.run(command, self._folder, self._env | env, self._settings.timeout, interrupts)
        except OSError as error:
            if os.path.isabs(command[0]) or os.sep not in command[0]:
                raise UsageError(
                    f"{command[0]}: cannot be started ({error.strerror}); write a command that can"
                ) from None
            return child.Outcome(127, "", f"{command[0]}: {error.strerror}", 0.0)  # this commit lacks it
        self.seconds += outcome.seconds
        if self._scenario is None:
            return outcome
        told = self._scenario.told
        return replace(outcome, stdout=told(outcome.stdout), stderr=told(outcome.stderr))

    def _python_path(self, path: Sequence[str]) -> str:
        entries = [str(self._folder / entry) for entry in path]
        home = os.path.dirname(os.path.dirname(os.path.abspath(racecheck.__file__)))
        if home not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
            entries.append(home)
        return os.pathsep.join(dict.fromkeys(entries))
