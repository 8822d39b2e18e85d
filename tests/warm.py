"""Runs Python scripts in forks of a process that has torch and racecheck imported already.

Importing them takes longer than a small run: `WarmPython` has it done once. A script has a process of its own
all the same, with the folder, environment, output and exit code of the command that stands for it.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import socket
import socketserver
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

READY = b"ready\n"
#: As a command of its own: it sends what it was given to the socket, and ends as the fork does.
CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    told = {"folder": os.getcwd(), "environment": dict(os.environ), "arguments": sys.argv[2:]}
    socket.send_fds(server, [json.dumps(told).encode() + b"\\n"], [1, 2])
    code = server.recv(3)
sys.exit(int(code or b"70"))
"""


class WarmPython:
    """The process; `command` is what to run in place of `python SCRIPT ...`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()  # a socket's path must be short
        self._socket = Path(self._folder.name) / "warm"
        command = [sys.executable, __file__, str(self._socket)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> WarmPython:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == READY
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.communicate()
        self._folder.cleanup()

    def command(self, *arguments: str) -> list[str]:
        """The command for a script and its arguments."""
        return [sys.executable, "-I", "-S", "-c", CLIENT, str(self._socket), *arguments]


class _Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    pass


class _Run(socketserver.BaseRequestHandler):
    """In a fork of its own."""

    def handle(self) -> None:
        """Become the process that the client stands for; it ends with the exit code."""
        text, files, _, _ = socket.recv_fds(self.request, 1 << 20, 2)
        while not text.endswith(b"\n"):
            text += self.request.recv(1 << 20)
        for number, file in enumerate(files, 1):
            os.dup2(file, number)
        code = _run(**json.loads(text))
        sys.stdout.flush()
        sys.stderr.flush()
        self.request.sendall(b"%d" % code)


def _run(folder: str, environment: dict[str, str], arguments: list[str]) -> int:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments
    added = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [
        os.path.dirname(arguments[0]),
        *added,
        *(path for path in sys.path[1:] if path not in added),
    ]
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        return _code(end.code)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _code(value: Any) -> int:
    """What `sys.exit` makes of `value`."""
    if value is None or isinstance(value, int):
        return value or 0
    print(value, file=sys.stderr)
    return 1


def main() -> None:
    """Import what takes long, say so, serve until terminated."""
    import racecheck.detect.advice
    import racecheck.judge
    import racecheck.provider
    import racecheck.report.json
    import racecheck.staging
    import racecheck.virtual  # noqa: F401

    assert "racecheck.engine" not in sys.modules  # it comes from the commit
    gc.freeze()  # a collection in a fork would copy every page
    sys.dont_write_bytecode = True  # nobody would read it: each run is of another commit
    with _Server(sys.argv[1], _Run) as server:
        os.write(1, READY)
        server.serve_forever()


if __name__ == "__main__":
    main()
