"""Regenerate docs/examples: `python docs/examples.py`; with `--check` only say whether it is current.

The loop of docs/examples/test_loop.py is run with one slot (a race) and with two (clean), in a folder of its
own that looks like a repository, so that nothing of this machine is in the reports.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import racecheck
from racecheck.cli import main
from racecheck.trace.file import write

EXAMPLES = Path(__file__).resolve().parent / "examples"
LOOP = "docs/examples/test_loop.py"
#: Each folder's test and its slots.
RUNS = {"race": ("test_one_slot", 1), "clean": ("test_two_slots", 2)}
SPANS = ("span", "reads", "writes", "call_reads", "any_reads")
#: Blocks of the trace are moved to multiples of this, in the order in which they appear.
BLOCK = 0x10000


def build() -> dict[str, str]:
    """Every file of the examples by its path in docs/examples, as it is today."""
    with tempfile.TemporaryDirectory() as name, _repository(Path(name)):
        for folder, (test, slots) in RUNS.items():
            Path("docs/examples", folder).mkdir()
            _from_a_trace(f"docs/examples/{folder}", slots)
            _from_pytest(f"docs/examples/{folder}", test)
        made = [file for folder in RUNS for file in sorted(Path("docs/examples", folder).iterdir())]
        return {str(file.relative_to("docs/examples")): file.read_text(encoding="utf-8") for file in made}


@contextlib.contextmanager
def _repository(top: Path) -> Iterator[None]:
    """Work in a repository at `top` that has the loop and nothing else, with no setting from outside."""
    (top / "docs" / "examples").mkdir(parents=True)
    (top / "pyproject.toml").touch()
    shutil.copy(EXAMPLES / "test_loop.py", top / LOOP)
    os.environ.update(COLUMNS="110", GITHUB_ACTIONS="true", PYTEST_ADDOPTS="")
    for name in [name for name in os.environ if name.startswith(("RACECHECK_", "GITHUB_STEP_"))]:
        del os.environ[name]
    sys.path.insert(0, str(top))
    sys.dont_write_bytecode = True
    with contextlib.chdir(top):
        yield


def _from_a_trace(folder: str, slots: int) -> None:
    """The text of an audit and its trace; from the trace all that `racecheck check` and `convert` write."""
    serve = runpy.run_path(str(Path(LOOP).resolve()))["serve"]
    with racecheck.virtual_cuda(lag="latest"), racecheck.audit() as audit:
        serve(slots)
    Path(folder, "report.txt").write_text(audit.report(width=110), encoding="utf-8")
    trace = f"{folder}/trace.jsonl"
    write(audit.trace, Path(trace))
    Path(trace).write_text(relocated(Path(trace).read_text(encoding="utf-8")), encoding="utf-8")
    files = [
        part for kind in ("html", "sarif", "markdown") for part in (f"--{kind}", f"{folder}/report.{kind}")
    ]
    printed = _printed("check", trace, "--json", *files)
    Path(folder, "report.json").write_text(printed, encoding="utf-8")
    Path(folder, "report.markdown").rename(Path(folder, "report.md"))
    _printed("convert", trace, f"{folder}/timeline.perfetto.json")


def _from_pytest(folder: str, test: str) -> None:
    """JUnit XML without times, and the annotations that GitHub shows."""
    xml = Path(folder, "junit.xml")
    printed = io.StringIO()
    options = ["-q", "--import-mode=importlib", "-p", "no:cacheprovider", "--junitxml", str(xml)]
    with contextlib.redirect_stdout(printed):
        pytest.main([f"{LOOP}::{test}", *options])
    text = re.sub(r' (time|timestamp|hostname)="[^"]*"', "", xml.read_text(encoding="utf-8"))
    xml.write_text(text + "\n", encoding="utf-8")
    commands = [line for line in printed.getvalue().splitlines() if line.startswith("::")]
    Path(folder, "annotations.txt").write_text("".join(f"{line}\n" for line in commands), encoding="utf-8")


def _printed(*arguments: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main(arguments)
    return printed.getvalue()


def relocated(trace: str) -> str:
    """The lines of a trace with its blocks at addresses that do not depend on the machine."""
    lines = [json.loads(line) for line in trace.splitlines()]
    # a name for part of a block comes after the block: the first span that holds an address is its block
    blocks: list[tuple[int, int]] = []
    for line in lines:
        if line.get("record") == "alloc" and not any(lo <= line["span"][0] < hi for lo, hi in blocks):
            blocks.append(tuple(line["span"]))
    moved = (_moved(line, blocks) for line in lines)
    return "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in moved)


def _moved(value: Any, blocks: list[tuple[int, int]], key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {key: _moved(part, blocks, key) for key, part in value.items()}
    if key not in SPANS or not isinstance(value, list):
        return value
    if value and isinstance(value[0], list):
        return [_moved(part, blocks, key) for part in value]
    at, base = next((at, lo) for at, (lo, hi) in enumerate(blocks, 1) if lo <= value[0] < hi)
    return [address - base + at * BLOCK for address in value]


def outdated(kept: Path, found: Mapping[str, str]) -> list[str]:
    """The files in the folder `kept` that are not as `found`, are missing there or are too many."""
    there = {
        str(file.relative_to(kept)): file.read_text(encoding="utf-8")
        for folder in RUNS
        for file in (kept / folder).iterdir()
    }
    return sorted(name for name in {*there, *found} if there.get(name) != found.get(name))


if __name__ == "__main__":
    found = build()
    if "--check" in sys.argv[1:]:
        if wrong := outdated(EXAMPLES, found):
            sys.exit(f"docs/examples is out of date ({', '.join(wrong)}): run python docs/examples.py")
    else:
        for name, text in found.items():
            (EXAMPLES / name).parent.mkdir(exist_ok=True)
            (EXAMPLES / name).write_text(text, encoding="utf-8")
