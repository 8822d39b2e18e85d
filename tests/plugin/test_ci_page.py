"""docs/ci.md and the files beside it say what is there, and can be copied as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: F401 - pytester forgets modules imported in a test, and torch cannot be imported twice

import racecheck.virtual  # noqa: F401 - registers a backend, once a process
from racecheck.pytest_plugin.settings import VARIABLES
from racecheck.report.baseline import load

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "ci.md").read_text()
WORKFLOWS = sorted((DOCS / "ci").glob("*.yml"))


def block(language: str, word: str) -> str:
    """The code block in `language` that has `word` in it."""
    parts = [part.partition("```")[0] for part in PAGE.split(f"```{language}\n")[1:]]
    return next(part for part in parts if word in part)


def test_every_setting_is_on_the_page() -> None:
    """Option, environment and ini key of each in one row."""
    for name, variable in VARIABLES.items():
        row = rf"^\| `--race-{name}[^|]* \| `{variable}` \| `race_{name}` \|"
        assert re.search(row, PAGE, re.MULTILINE), name


def test_two_lines_audit_a_folder(pytester: pytest.Pytester) -> None:
    """Every test below the conftest file is audited and has the marker."""
    pytester.makeconftest(block("python", "autouse"))
    pytester.makepyfile("def test_of_nothing(): pass")
    result = pytester.runpytest_inprocess("-m", "race", "-v")
    result.stdout.fnmatch_lines(["*::test_of_nothing INCONCLUSIVE*"])


def test_the_baseline_on_the_page_is_one(tmp_path: Path) -> None:
    """It loads."""
    path = tmp_path / "known.toml"
    path.write_text(block("toml", "[[known]]"))
    (entry,) = load(path).entries.values()
    assert entry.buffer == "sampler.rows"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_valid_and_may_do_little(path: Path) -> None:
    """YAML with jobs whose token reads, and writes nothing but code scanning's results."""
    yaml = pytest.importorskip("yaml")
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert job["permissions"] == {"contents": "read", "security-events": "write"}
    assert job["timeout-minutes"] <= 60
    used = [step.get("uses", "").partition("@")[0] for step in job["steps"]]
    assert {"github/codeql-action/upload-sarif", "actions/upload-artifact"} <= set(used)
    checkout = job["steps"][used.index("actions/checkout")]
    assert checkout["with"] == {"persist-credentials": False}
    assert all("@" in step["uses"] for step in job["steps"] if "uses" in step)


def test_a_gpu_of_ones_own_runs_no_strangers_code() -> None:
    """The workflow for it does not run on pull requests; its options are those of the plugin."""
    text = (DOCS / "ci" / "github-gpu.yml").read_text()
    assert "pull_request" not in text
    assert "--race-device cuda" in text


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_command_of_a_workflow_runs(pytester: pytest.Pytester, path: Path) -> None:
    """Its options are known, and it writes the files that later steps take."""
    yaml = pytest.importorskip("yaml")
    (job,) = yaml.safe_load(path.read_text())["jobs"].values()
    (command,) = [step["run"] for step in job["steps"] if "pytest" in step.get("run", "")]
    arguments = command.replace("-n auto", "-n 0").split()[1:]
    pytester.makepyfile("def test_own(): pass")
    result = pytester.runpytest_inprocess(*arguments)
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    (upload,) = [step["with"]["sarif_file"] for step in job["steps"] if "sarif" in step.get("uses", "")]
    assert Path(upload).is_file()
