"""From paths on a command line to validated scenarios."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from racecheck.errors import ScenarioError, UsageError
from racecheck.scenario import source
from racecheck.scenario.lines import KeyPath, key_lines, line_of
from racecheck.scenario.model import Scenario
from racecheck.scenario.problems import one_problem


@dataclass(frozen=True)
class ScenarioFile:
    """A validated scenario, the file it came from, and where its keys stand there."""

    path: Path
    scenario: Scenario
    lines: dict[KeyPath, int]

    def error(self, key: KeyPath, wrong: str, instead: str) -> ScenarioError:
        """A problem with the value of `key` that only shows outside the file."""
        line, name = line_of(self.lines, key), ".".join(map(str, key))
        return ScenarioError(source.shown(f"{self.path}:{line}: {name}: {wrong}; {instead}"))


def load(path: Path) -> ScenarioFile:
    """Read and validate the scenario `path`; `ScenarioError` (one line) if that cannot be done."""
    text, content = source.read_toml(path)
    where = key_lines(text)
    if "racecheck" not in content:
        close = next((key for key in content if key.lower().replace("-", "").startswith("race")), None)
        line = 1 if close is None else where[(close,)]
        source.fail(
            path, line, "the key racecheck, which makes a file a scenario, is missing", "write racecheck = 1"
        )
    try:
        scenario = Scenario.model_validate(content)
    except ValidationError as error:
        source.fail(path, *one_problem(error, Scenario, where))
    return ScenarioFile(path, scenario, where)


def load_all(
    paths: Sequence[Path], check: Callable[[ScenarioFile], None] = lambda file: None
) -> tuple[list[ScenarioFile], list[str]]:
    """Every scenario at `paths` that loads and passes `check`, and one line for each that does not.

    Two of one name would be one table in a report: the second of them is wrong, too.
    """
    files: dict[str, ScenarioFile] = {}
    wrong = []
    for path in find(paths):
        try:
            file = load(path)
            other = files.get(file.scenario.name)
            if other is not None:
                said = f"{file.scenario.name!r} is also the name of {other.path}"
                raise file.error(("name",), said, "give each its own, or run one of them")
            check(file)
        except ScenarioError as error:
            wrong.append(str(error))
        else:
            files[file.scenario.name] = file
    return list(files.values()), wrong


def find(paths: Sequence[Path]) -> list[Path]:
    """The scenario files that `paths` (files and folders) stand for: sorted in a folder, each once."""
    found: dict[str, Path] = {}
    for path in paths:
        for file in _inside(path) if os.path.isdir(path) else [path]:
            found.setdefault(os.path.realpath(file), file)
    return list(found.values())


def _inside(folder: Path) -> list[Path]:
    if folder.suffix == ".toml":
        source.fail(folder, 1, "this is a folder", "name a scenario (.toml) or a folder of them")
    files = sorted(file for file in _walk(folder) if source.is_scenario(file))
    if not files:
        raise UsageError(
            f"{source.shown(folder)}:1: there is no scenario in this folder; "
            "name a folder with a .toml file that says racecheck = 1"
        )
    return files


def _walk(folder: Path) -> Iterator[Path]:
    """Every .toml file below `folder`, hidden folders (version control, environments) left out."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        source.fail(folder, 1, f"cannot be read ({error.strerror})", "check its permissions")
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            if not entry.name.startswith("."):
                yield from _walk(entry)
        elif entry.suffix == ".toml":
            yield entry
