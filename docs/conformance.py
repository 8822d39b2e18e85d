"""The record of the conformance tests: `python docs/conformance.py [--device virtual|cuda] [--check]`.

With --device the tests run there and benchmarks/results/conformance_DEVICE.json is written (--out FOLDER puts
it elsewhere). Then, and without --device, docs/conformance.md is made anew from the two records; --check
changes nothing and fails if it would.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Iterable
from datetime import date
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "conformance.md"
DEVICES = ("virtual", "cuda")

_HEAD = """# Conformance: the rules, on the virtual device and on a GPU

Each rule is a plain `torch.cuda` test below `tests/conformance`; with `pytest tests/conformance --race-device
cuda` the same files run on a GPU. This page is made by `python docs/conformance.py` from the records of both.
"""


class Recorder:
    """A pytest plugin: the rule and the outcome of every test."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, str]] = {}

    def pytest_collection_modifyitems(self, items: Iterable[Any]) -> None:
        """Note each test's rule: the first paragraph of its docstring."""
        for item in items:
            rule = " ".join((item.function.__doc__ or "").split("\n\n")[0].split())
            self.tests[_name(item.nodeid)] = {"rule": rule, "outcome": "not run"}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note its outcome: the worst of set-up, call and tear-down."""
        entry = self.tests[_name(report.nodeid)]
        if report.when == "call" or report.outcome != "passed":
            entry["outcome"] = report.outcome


def _name(nodeid: str) -> str:
    return nodeid.rpartition("/")[2]


def run(device: str) -> dict[str, Any]:
    """Run the conformance tests on `device`: their record."""
    import pytest
    import torch

    recorder = Recorder()
    installed = any(entry.name == "racecheck" for entry in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "racecheck.pytest_plugin"]
    where = [str(ROOT / "tests" / "conformance"), "--race-device", device]
    pytest.main(["-q", "-p", "no:cacheprovider", *plugin, *where], plugins=[recorder])
    import racecheck

    versions = {"racecheck": racecheck.__version__, "commit": _said("git", "rev-parse", "--short", "HEAD")}
    versions |= {"python": platform.python_version(), "torch": torch.__version__}
    if device == "cuda":
        smi = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
        versions |= {"cuda": torch.version.cuda, "driver": _said(*smi), "gpu": torch.cuda.get_device_name()}
    return {"date": date.today().isoformat(), "device": device, "versions": versions, "tests": recorder.tests}


def _said(*command: str) -> str | None:
    """The first line that `command` prints; None if it cannot be run."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return (done.stdout.strip().splitlines() or [None])[0]


def load() -> dict[str, Any]:
    """The committed records by device; a device that was never run is missing."""
    paths = {device: RESULTS / f"conformance_{device}.json" for device in DEVICES}
    return {device: json.loads(path.read_text()) for device, path in paths.items() if path.exists()}


def page(records: dict[str, Any]) -> str:
    """The page that `records` give."""
    lines = [_HEAD, *(_run_line(device, records.get(device)) for device in DEVICES), ""]
    for file, rules in _by_file(records).items():
        lines += [f"## {file}", "", "| rule | test | virtual | GPU |", "|---|---|---|---|"]
        for function, rule in rules.items():
            cells = [_cell(records.get(device), f"{file}::{function}") for device in DEVICES]
            lines.append(f"| {rule.replace('|', '/')} | `{function}` | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _run_line(device: str, record: dict[str, Any] | None) -> str:
    title = "Virtual device" if device == "virtual" else "GPU"
    if record is None:
        return f"- {title}: not run yet."
    outcomes = [test["outcome"] for test in record["tests"].values()]
    passed = outcomes.count("passed")
    versions = ", ".join(f"{name} {value}" for name, value in record["versions"].items() if value)
    link = f"[record](../benchmarks/results/conformance_{device}.json)"
    return f"- {title}, {record['date']}: {passed} of {len(outcomes)} tests passed ({versions}; {link})."


def _by_file(records: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Files, and in each the functions with their rules, in the order of the tests."""
    files: dict[str, dict[str, str]] = {}
    for device in DEVICES:
        for name, test in records.get(device, {"tests": {}})["tests"].items():
            file, _, function = name.partition("::")
            files.setdefault(file, {}).setdefault(function.partition("[")[0], test["rule"])
    return files


def _cell(record: dict[str, Any] | None, function: str) -> str:
    tests = record["tests"] if record is not None else {}
    outcomes = [test["outcome"] for name, test in tests.items() if name.partition("[")[0] == function]
    if not outcomes:
        return "not run"
    kinds = sorted(set(outcomes), key=outcomes.index)
    count = f" ({len(outcomes)})" if len(outcomes) > 1 else ""
    return kinds[0] + count if len(kinds) == 1 else ", ".join(f"{outcomes.count(k)} {k}" for k in kinds)


def main() -> None:
    """Run what is asked for, and write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=DEVICES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.device:
        arguments.out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(run(arguments.device), indent=1) + "\n"
        (arguments.out / f"conformance_{arguments.device}.json").write_text(text)
    new = page(load())
    if not arguments.check:
        PAGE.write_text(new)
    elif not PAGE.exists() or PAGE.read_text() != new:
        sys.exit("docs/conformance.md is out of date: run python docs/conformance.py")


if __name__ == "__main__":
    main()
