"""`racecheck exec` and `racecheck doctor`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from racecheck.cli import main
from racecheck.cuda import doctor

PROGRAM = """
import multiprocessing, os, sys, torch
def step(waits):
    host = torch.zeros(64, dtype=torch.int64, pin_memory=True)
    device = torch.zeros(64, dtype=torch.int64, device="cuda")
    copied = torch.cuda.Event()
    for number in range(3):
        if waits:
            copied.synchronize()
        host.numpy()[:] = number + 1
        device.copy_(host, non_blocking=True)
        copied.record()
if __name__ == "__main__":
    how = sys.argv[1]
    step(waits=how != "race")
    if how in ("fork", "spawn"):
        child = multiprocessing.get_context(how).Process(target=step, args=(False,))
        child.start()
        child.join()
    print("done", os.environ.get("RACECHECK"))
    sys.exit(7)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A program that knows nothing of racecheck."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def execute(*arguments: str) -> tuple[int, str, str]:
    """`racecheck exec` with `arguments`, as a process."""
    command = [sys.executable, "-m", "racecheck", "exec", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_a_race_makes_the_exit_code_66(program: str, tmp_path: Path) -> None:
    """The finding names the program's lines; the report file has a line for the process."""
    report = tmp_path / "report.jsonl"
    code, out, err = execute(
        "--device", "virtual", "--report", str(report), "--", sys.executable, program, "race"
    )
    assert (code, out) == (66, "done 1\n")
    assert "h2d copy reads at program.py:11 in step" in err
    (line,) = map(json.loads, report.read_text().splitlines())
    assert line["verdict"] == "race"


def test_a_clean_program_keeps_its_own_exit_code(program: str) -> None:
    """7 is the program's."""
    code, _, err = execute("--device", "virtual", "--", sys.executable, program, "clean")
    assert code == 7
    assert "verdict: clean" in err


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_child_processes_are_audited_too(program: str, how: str) -> None:
    """The parent is clean, its child is not: each has its own verdict."""
    code, _, err = execute("--device", "virtual", "--", sys.executable, program, how)
    assert code == 66
    assert (err.count("verdict: clean"), err.count("verdict: race")) == (1, 1)


@pytest.mark.parametrize(
    ("line", "code", "verdicts", "lost"),
    [
        ("os._exit(5)", 66, 1, 0),
        ("os.fork() or (step(False), os._exit(0)); os.wait()", 66, 2, 0),
        ("os.environ.clear()", 66, 1, 0),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, 0, 1),
        ("os.execv(sys.executable, [sys.executable, '-c', 'print(2)'])", 0, 0, 1),
    ],
)
def test_every_way_to_end_has_a_verdict_or_is_said_to_have_none(
    tmp_path: Path, line: str, code: int, verdicts: int, lost: int
) -> None:
    """`os._exit` in a fork too; who is killed, or becomes another program, is named."""
    source = PROGRAM.split("if __name__")[0].replace("import ", "import signal, ", 1)
    path = tmp_path / "ending.py"
    path.write_text(f"{source}step(False)\n{line}\n")
    got, _, err = execute("--device", "virtual", "--", sys.executable, str(path))
    assert (got, err.count("verdict: race"), err.count("no verdict: it was killed")) == (code, verdicts, lost)
    assert "no process used the GPU" not in err


def test_asking_whether_there_is_a_torch_is_no_import(tmp_path: Path) -> None:
    """Libraries look for its spec first; the import that follows is audited. Its own audit is no process."""
    path = tmp_path / "asks.py"
    body = "import racecheck\nwith racecheck.audit():\n    step(False)\n"
    asks = "import importlib.util\nassert importlib.util.find_spec('torch').loader\n"
    path.write_text(asks + PROGRAM.split("if __name__")[0] + body)
    code, _, err = execute("--device", "virtual", "--", sys.executable, str(path))
    assert code == 66
    assert err.rstrip().endswith("racecheck: 1 finding in 1 audited process")


def test_the_environment_alone_does_it(program: str) -> None:
    """What `--env` prints audits any later command, which prints its own verdict."""
    code, out, _ = execute("--env", "--device", "virtual")
    pairs = [line.removeprefix("export ").split("=", 1) for line in out.splitlines()]
    environment = {**os.environ, **{name: value.strip("'") for name, value in pairs}}
    done = subprocess.run(
        [sys.executable, program, "race"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (code, done.returncode) == (0, 66)
    assert "race/h2d-read-vs-host-write" in done.stderr


def test_a_program_s_own_sitecustomize_is_kept(tmp_path: Path) -> None:
    """It is imported after racecheck's."""
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 'kept'\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "racecheck", "exec", "--", sys.executable, "-c", "print(mine)"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "kept\n")
    assert "no process used the GPU" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], "no command is given; write: racecheck exec -- python script.py"),
        (["--", "no-such-program"], "no-such-program: cannot be run (No such file or directory)"),
        (["--capture", "luck", "--", "true"], "'luck' is not known; write one of auto, cupti, hooks"),
        (["--lag", "eager", "--", "true"], "only the virtual device is late on purpose"),
        (["--report", "/no/such/folder/x", "--", "true"], "cannot be written"),
    ],
)
def test_what_cannot_be_meant_is_one_line(
    arguments: list[str], wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2."""
    assert main(["exec", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert wanted in err


def test_the_doctor_says_what_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    """Each way of seeing a GPU with what it misses; nothing installed is broken."""
    assert main(["doctor", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    names = {check["name"]: check["ok"] for check in content["checks"]}
    assert names["torch"]
    assert names["gpu"] is (True if torch.cuda.is_available() else None)
    assert [way["name"] for way in content["captures"]] == list(doctor.SEES)


def test_the_doctor_names_what_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Installed and not working is exit code 1, with the reason."""
    pytest.importorskip("z3")

    def broken() -> None:
        raise OSError("libz3.so: wrong version")

    monkeypatch.setattr(doctor, "_import", lambda module: broken)
    assert main(["doctor"]) == 1
    assert "z3-solver          WRONG" in capsys.readouterr().out


@pytest.mark.parametrize(("version", "tested"), [("2.10.0", False), ("2.11.0+cu130", True), ("3.0.1", False)])
def test_other_versions_of_torch_are_told_apart(version: str, tested: bool) -> None:
    """Hooks hang on what PyTorch may move."""
    assert doctor.is_tested(version) is tested
