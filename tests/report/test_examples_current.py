"""docs/examples is what racecheck writes today, and says nothing of the machine it was made on."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

from racecheck.detect import Detector
from racecheck.trace.file import read

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
FILES = sorted(file for folder in ("race", "clean") for file in (EXAMPLES / folder).iterdir())
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "examples.py"))


def test_examples_are_current() -> None:
    """Every byte of every file."""
    done = subprocess.run(
        [sys.executable, "docs/examples.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_file_that_differs_is_named(tmp_path: Path) -> None:
    """One that was changed, one that is missing, one too many."""
    for folder in ("race", "clean"):
        (tmp_path / folder).mkdir()
    (tmp_path / "race" / "same").write_text("1")
    (tmp_path / "race" / "changed").write_text("1")
    (tmp_path / "clean" / "left").write_text("1")
    found = {"race/same": "1", "race/changed": "2", "clean/new": "1"}
    assert SCRIPT["outdated"](tmp_path, found) == ["clean/left", "clean/new", "race/changed"]


def test_addresses_do_not_depend_on_the_machine() -> None:
    """Blocks are numbered as they appear; what lies in one moves with it."""

    def trace(base: int) -> str:
        records = [
            {"record": "alloc", "span": [base, base + 64], "name": "whole"},
            {"record": "alloc", "span": [base + 32, base + 64], "name": "half", "reuse": True},
            {"record": "alloc", "span": [base - 512, base - 256], "name": "other"},
            {"record": "device_op", "node": {"reads": [[base + 32, base + 40], [base - 512, base - 500]]}},
        ]
        return "".join(json.dumps(record) + "\n" for record in records)

    moved = SCRIPT["relocated"](trace(94327669473792))
    assert moved == SCRIPT["relocated"](trace(5000))
    assert json.loads(moved.splitlines()[-1])["node"] == {"reads": [[65568, 65576], [131072, 131084]]}


def test_nothing_of_the_machine_is_in_them() -> None:
    """No absolute path, no time of day; all of it stays small."""
    assert len(FILES) == 18
    for file in FILES:
        assert not re.search(r"/(tmp|home|root|usr|work)/|20\d\d-\d\d-\d\dT|hostname", file.read_text()), file
    assert sum(file.stat().st_size for file in EXAMPLES.rglob("*") if file.is_file()) < 200_000


def test_the_verdicts_are_those_of_the_folders() -> None:
    """The traces are judged again."""
    for folder in ("race", "clean"):
        path = EXAMPLES / folder / "trace.jsonl"
        trace, damage = read(path)
        assert damage is None
        detector = Detector()
        for record in trace:
            detector.feed(record)
        assert detector.verdict == folder


def test_the_page_has_a_link_to_every_file() -> None:
    """And none to anything else."""
    links = re.findall(r"\]\(((?:race|clean)/[^)]+)\)", (EXAMPLES / "README.md").read_text())
    assert sorted(links) == sorted(str(file.relative_to(EXAMPLES)) for file in FILES)
