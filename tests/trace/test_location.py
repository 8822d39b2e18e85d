"""What a file is called, and whose line a location is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import racecheck
from racecheck.exact import protect
from racecheck.litmus import judge, load
from racecheck.trace import caller, location
from racecheck.trace.location import relative
from racecheck.trace.records import NOWHERE, Record

PACKAGE = Path(racecheck.__file__).parent


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
    """Where no import root holds it, to the top of its repository; in none, it has its bare name."""
    file = make(tmp_path / "repo" / "scripts" / "deep" / "go.py")
    loose = make(tmp_path / "loose" / "go.py")
    (tmp_path / "repo" / ".git").mkdir()
    for where in (".", "loose", "repo"):
        monkeypatch.chdir(tmp_path / where)
        assert (relative(loose), relative(file)) == ("go.py", "scripts/deep/go.py")
    for root in ("repo/scripts", "repo"):
        monkeypatch.syspath_prepend(str(tmp_path / root))
        assert relative(file) == "deep/go.py"
    assert relative("<stdin>") == "<stdin>"


def test_a_litmus_finding_has_one_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From every working directory, and with other lines above the accesses."""
    program = "alloc device D\nalloc pinned P\nhost_write P\nh2d P -> D on s\nhost_write P\n"
    path = tmp_path / "repo" / "litmus" / "one.litmus"
    make(path)
    make(tmp_path / "repo" / "pyproject.toml")
    found = set()
    for where, above in ((".", ""), ("repo", "# a note\n\n"), ("repo/litmus", "alloc pinned Q\n")):
        path.write_text("# expect: RACE\n" + above + program)
        monkeypatch.chdir(tmp_path / where)
        (finding,) = judge(load(Path(os.path.relpath(path)))).findings
        found.add((finding.fingerprint, finding.first.loc.file))
    assert [file for _, file in found] == ["litmus/one.litmus"]


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


def test_a_fingerprint_outlives_lines_above_it(tmp_path: Path) -> None:
    """Other code before the two accesses, in the same file, moves them only."""
    printed = []
    for above in ("", "# a note\n\n\ndef unrelated():\n    pass\n\n\n"):
        (tmp_path / "go.py").write_text(above + SCRIPT)
        command = [sys.executable, "go.py"]
        printed.append(
            subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        )
    (before, after) = (line.split() for line in printed)
    assert before[0] == after[0]
    assert before[1:] == ["go.py:6", "go.py:7"]
    assert after[1:] == ["go.py:13", "go.py:14"]


def test_the_standard_library_is_machinery() -> None:
    """A location is the line of the program that called it, not a line of Python's own."""
    found = through(json.__file__)
    assert (found.file, found.function) == (
        "test_location.py",
        "through",
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


def through(file: str) -> Any:
    """The location of a call that is made by code of `file`."""
    space: dict[str, Any] = {}
    exec(compile("def call(f): return f()", file, "exec"), space)
    return space["call"](caller)


@pytest.mark.parametrize("door", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.name)
def test_no_door_of_racecheck_is_anybodys_line(door: Path) -> None:
    """The modules beside `racecheck/__init__.py` stand between the program and the machinery."""
    assert through(str(door)).file == "test_location.py"


@pytest.mark.parametrize("part", ["engine/results.py", "faults/slots.py", "scenario/reference.py"])
def test_the_reference_engine_is_a_program(part: str) -> None:
    """So is what runs it, and a fault in it: a finding names their lines."""
    assert (PACKAGE / part).is_file()
    assert through(str(PACKAGE / part)).file == f"racecheck/{part}"


def _staged(call: Callable[[torch.Tensor, torch.Tensor], object]) -> list[Record]:
    """What an audit records of `call(pinned, device)`."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        call(torch.zeros(4, pin_memory=True), torch.zeros(4, device="cuda"))
        torch.cuda.synchronize()
    return list(audit.trace)


def _leased(pinned: torch.Tensor, device: torch.Tensor) -> None:
    buffer = racecheck.PinnedBuffer("b", (4,), torch.float32)
    lease = buffer.lease(0)
    lease.write(torch.ones(4), holds="a")
    lease.copy()
    buffer.wants(0, "a")
    buffer.wait_copied(0)


def _delayed(pinned: torch.Tensor, device: torch.Tensor) -> None:
    with racecheck.delays(lambda point: device.copy_(pinned, non_blocking=True)):
        racecheck.host_delay("here")
        device.copy_(pinned, non_blocking=True)


def _marked(pinned: torch.Tensor, device: torch.Tensor) -> None:
    with racecheck.mark(step=1):
        device.copy_(pinned, non_blocking=True)


def _audited(pinned: torch.Tensor, device: torch.Tensor) -> None:
    with racecheck.audit():
        device.copy_(pinned, non_blocking=True)
        pinned.numpy()[:] = 1


def _protected(pinned: torch.Tensor, device: torch.Tensor) -> None:
    with protect([pinned]):
        pinned.numpy()[:] = 1


DOORS: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "host_function": lambda pinned, device: racecheck.host_function(lambda: None, reads=[pinned]),
    "holds": lambda pinned, device: racecheck.holds(pinned, "a"),
    "wants": lambda pinned, device: racecheck.wants(pinned, "a"),
    "PinnedBuffer": _leased,
    "delays": _delayed,
    "mark": _marked,
    "audit": _audited,
    "protect": _protected,
}
#: What records nothing of its own: types of results and errors, and what other doors here go through.
PASSIVE = {"Audit", "Inconclusive", "Lease", "RaceFound", "host_delay", "virtual_cuda"}


def test_every_public_name_is_tried() -> None:
    """A new one must come to `DOORS`, or be passive."""
    assert set(racecheck.__all__) == (set(DOORS) - {"protect"}) | PASSIVE


@pytest.mark.parametrize("door", DOORS)
def test_no_record_has_a_line_of_racecheck(door: str) -> None:
    """Whatever is called, the line is the program's."""
    records = _staged(DOORS[door])
    assert len(records) > 2
    assert {record.loc.file for record in records if record.loc != NOWHERE} == {"test_location.py"}
