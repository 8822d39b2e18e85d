"""What a file is called, and whose line a location is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import racecheck
from racecheck.trace import caller, location
from racecheck.trace.location import relative


def make(path: Path) -> str:
    """An empty file at `path`, folders and all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return str(path)


@pytest.mark.parametrize("where", ["/", ".", "engine", ".."])
def test_racechecks_own_files_are_below_racecheck(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From wherever the command is typed."""
    package = Path(racecheck.__file__).parent
    monkeypatch.chdir(package / where)
    assert relative(str(package / "engine" / "results.py")) == "racecheck/engine/results.py"


@pytest.mark.parametrize("where", [".", "repo", "repo/mine", "elsewhere"])
def test_a_file_of_a_package_starts_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Whatever the working directory is, and however the file was started."""
    make(tmp_path / "repo" / "mine" / "__init__.py")
    make(tmp_path / "repo" / "mine" / "inner" / "__init__.py")
    file = make(tmp_path / "repo" / "mine" / "inner" / "plan.py")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / where)
    assert relative(file) == "mine/inner/plan.py"
    monkeypatch.syspath_prepend(str(tmp_path / "repo" / "mine" / "inner"))
    assert relative(file) == "mine/inner/plan.py"


def test_a_plain_file_is_relative_to_the_longest_import_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where no import root holds it, to the working directory, and else it is the bare name."""
    file = make(tmp_path / "repo" / "scripts" / "deep" / "go.py")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert relative(file) == "go.py"
    monkeypatch.chdir(tmp_path)
    assert relative(file) == "repo/scripts/deep/go.py"
    for root in ("repo/scripts", "repo"):
        monkeypatch.syspath_prepend(str(tmp_path / root))
        assert relative(file) == "deep/go.py"
    assert relative("<stdin>") == "<stdin>"


SCRIPT = """
import torch, racecheck
with racecheck.virtual_cuda(), racecheck.audit() as audit:
    pinned = torch.zeros(4, pin_memory=True)
    device = torch.empty(4, device="cuda")
    device.copy_(pinned, non_blocking=True)
    pinned.fill_(1)
print(audit.findings[0].fingerprint, audit.findings[0].first.loc, audit.findings[0].second.loc)
"""


def test_a_fingerprint_is_the_same_from_every_folder(tmp_path: Path) -> None:
    """The same script, started in its folder and above it."""
    script = tmp_path / "repo" / "scripts" / "go.py"
    make(script)
    script.write_text(SCRIPT)
    printed = {
        subprocess.run(
            [sys.executable, os.path.relpath(script, folder)],
            cwd=folder, capture_output=True, text=True, check=True,
        ).stdout
        for folder in (tmp_path, script.parent)
    }  # fmt: skip
    (line,) = printed
    assert line.endswith(" go.py:6 go.py:7\n")


def test_the_standard_library_is_machinery() -> None:
    """A location is the line of the program that called it, not a line of Python's own."""
    space: dict[str, Any] = {}
    exec(compile("def call(f): return f()", json.__file__, "exec"), space)
    found = space["call"](caller)
    assert (found.file, found.function) == (
        "test_location.py",
        "test_the_standard_library_is_machinery",
    )


def test_installed_packages_are_not_the_standard_library() -> None:
    """Although their folder lies inside of it; torch is machinery all the same."""
    library = os.path.dirname(os.__file__)
    for folder in ("site-packages", "dist-packages"):
        assert not location._is_machinery(f"{library}/{folder}/engine/plan.py")
        assert location._is_machinery(f"{library}/{folder}/torch/nn/module.py")


def test_what_racecheck_does_for_a_caller_is_at_the_callers_line() -> None:
    """Every public function that leaves records: they name this file, none of racecheck's own."""
    import torch

    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        buffer = racecheck.PinnedBuffer("rows", (4,), torch.int64)
        lease = buffer.lease(0)
        lease.write([1] * 4, holds="one")
        device = lease.copy()
        buffer.wants(0, "one")
        lease.wait_copied()
        racecheck.holds(device, "one")
        racecheck.wants(device, "one")
        racecheck.host_function(lambda: None, reads=[lease.host])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            racecheck.host_function(lambda: None, writes=[lease.host])
            device.add_(1)
        graph.replay()
    files = {record.loc.file for record in audit.trace}
    files |= {loc.file for record in audit.trace for loc in getattr(record, "locs", ())}
    assert {file for file in files if file.startswith("racecheck/")} == set()
    assert len(audit.trace) > 10
