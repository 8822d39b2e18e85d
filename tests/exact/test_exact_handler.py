"""The signal handler, each test in a process of its own: a hang or a crash must not stop the test run."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

START = """
import ctypes, faulthandler, mmap, os, signal, sys, threading
faulthandler.dump_traceback_later(50, exit=True)
from racecheck.exact import handler, pages
from racecheck.exact.protector import Protector

size = mmap.PAGESIZE
memory = mmap.mmap(-1, 16 * size)
base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
c, holding = ctypes.CDLL(None), ctypes.PyDLL(None)  # calls that release the GIL, and calls that hold it

def current():
    found = handler._Sigaction()
    c.sigaction(signal.SIGSEGV, None, ctypes.byref(found))
    return found.handler

def places(protector):
    return sorted(((fault.address - base, fault.thread) for fault in protector.take()), key=str)
"""


def run(body: str) -> subprocess.CompletedProcess[str]:
    """Run `body` after `START`; what it prints is its result."""
    return subprocess.run([sys.executable, "-c", START + body], capture_output=True, text=True, timeout=100)


def passes(body: str) -> None:
    """`body` must come to its end."""
    result = run(body + "\nprint('done')")
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


def test_holder_of_the_gil_that_joins_a_writer_does_not_hang():
    """The joined thread is no Python thread and does not wait for the GIL: its address comes by the ring."""
    passes("""
protector = Protector()
protector.arm((base, base + size))
thread = ctypes.c_ulong()
time = ctypes.cast(c.time, ctypes.c_void_p)  # time(p) writes 8 bytes to p
assert holding.pthread_create(ctypes.byref(thread), None, time, ctypes.c_void_p(base + 16)) == 0
assert holding.pthread_join(thread, None) == 0
assert places(protector) == [(16, None)]
""")


def test_openmp_region_under_the_gil_does_not_hang():
    """Eight OpenMP threads write one page while the caller holds the GIL; the caller's own write is named."""
    (library,) = Path(torch.__file__).parent.glob("lib/libgomp*")
    passes(f"""
os.environ["OMP_NUM_THREADS"] = "8"
openmp = ctypes.PyDLL({str(library)!r})
protector = Protector()
for _ in range(50):
    protector.arm((base, base + size))
    openmp.GOMP_parallel(ctypes.cast(c.time, ctypes.c_void_p), ctypes.c_void_p(base + 8), 8, 0)
    found = places(protector)
    assert found and all(place == 8 and thread in ("main", None) for place, thread in found), found
    protector.disarm((base, base + size))
""")


def test_writes_with_and_without_the_gil_are_noted_alike():
    """ctypes.CDLL releases the GIL, PyDLL and memoryviews hold it."""
    passes("""
protector = Protector()
protector.arm((base, base + 3 * size))
c.memset(ctypes.c_void_p(base + 5), 1, 4)
holding.memset(ctypes.c_void_p(base + size + 6), 1, 4)
memory[2 * size + 7] = 1
assert set(places(protector)) == {(5, "main"), (size + 6, "main"), (2 * size + 7, "main")}
""")


def test_threads_that_fault_at_once_are_all_noted():
    """Eight Python threads, two hundred rounds, each on a page of its own and without the GIL."""
    passes("""
protector = Protector()
protector.arm((base, base + 8 * size))
barrier = threading.Barrier(9)
def write(place):
    for _ in range(200):
        barrier.wait()
        c.memset(ctypes.c_void_p(base + place), 1, 8)
        barrier.wait()
for index in range(8):
    threading.Thread(target=write, args=(index * size + index,), name=f"w{index}", daemon=True).start()
for _ in range(200):
    barrier.wait()
    barrier.wait()
    assert set(places(protector)) == {(index * size + index, f"w{index}") for index in range(8)}
""")


CRASHES = {
    "null": "ctypes.string_at(0)",
    "read only page": "c.memset(ctypes.c_void_p(handler._ours.handler), 0, 1)",
    "sent": "os.kill(os.getpid(), signal.SIGSEGV)",
    "another thread": "t = threading.Thread(target=ctypes.string_at, args=(0,)); t.start(); t.join()",
}
CASES = [(crash, reporter) for crash in CRASHES for reporter in ("none", "below ours")]


@pytest.mark.parametrize(("crash", "reporter"), [*CASES, ("null", "first"), ("null", "on top")])
def test_crash_stays_a_crash(crash, reporter):
    """The process dies of SIGSEGV, and faulthandler reports it, whatever the order of installation.

    "below ours" was installed after ours and topped again: its own predecessor is then ours, a circle.
    """
    enable = "faulthandler.enable()"
    result = run(f"""
{enable if reporter == "first" else ""}
protector = Protector()
protector.arm((base, base + size))
{enable if reporter in ("on top", "below ours") else ""}
{"protector.take()" if reporter == "below ours" else ""}
{CRASHES[crash]}
""")
    assert result.returncode == -signal.SIGSEGV
    assert ("Fatal Python error: Segmentation fault" in result.stderr) == (reporter != "none")
    assert result.stderr.count("Fatal Python error") < 3


def test_a_handler_installed_later_is_topped_at_the_next_take():
    """TVM-FFI installs one on import. Ours comes back on top of it, and leaves it there at the end."""
    passes("""
protector = Protector()
protector.arm((base, base + size))
faulthandler.enable()
theirs = current()
assert theirs != handler._ours.handler
assert protector.take() == []
memory[3] = 1
assert places(protector) == [(3, "main")]
protector.close()
assert current() == theirs
""")


def test_nothing_is_left_behind():
    """After the last protector the memory is writable, and the handler is the one of before."""
    passes("""
before = current()
one, two = Protector(), Protector()
one.arm((base, base + size))
two.arm((base + 100, base + 200))
one.close()
memory[50] = memory[150] = 1
assert places(two) == []  # the address, not the page: 50 was a neighbour, and it opened the page
memory[151] = 1
assert places(two) == [(151, "main")]
two.close()
assert current() == before
memory[150] = 2
""")


def test_a_thread_that_comes_late_is_not_killed():
    """A thread on its way to the handler while its span is disarmed finds no span, and writes again."""
    passes("""
protector = Protector()
protector.arm((base, base + size))
handle = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(handler._ours.handler)
siginfo = (ctypes.c_uint64 * 16)(signal.SIGSEGV, 2, base + 1)  # as the kernel made it
protector.disarm((base, base + size))
handle(signal.SIGSEGV, ctypes.addressof(siginfo), None)
assert current() == handler._ours.handler and handler.state.strays == 1
memory[1] = 1
""")


def test_a_forked_child_writes_freely():
    """The child's memory is its own; the parent's protection goes on."""
    passes("""
protector = Protector()
protector.arm((base, base + size))
if os.fork() == 0:
    memory[1] = 1
    os._exit(0 if not protector.take() else 1)
assert os.wait()[1] == 0
memory[2] = 1
assert places(protector) == [(2, "main")]
""")


def test_a_key_press_inside_the_handler_is_not_lost():
    """KeyboardInterrupt raised while the fault is noted arrives after it."""
    passes("""
def interrupted():
    raise KeyboardInterrupt
handler.caller = interrupted
protector = Protector()
protector.arm((base, base + size))
try:
    memory[1] = 1
    for _ in range(1000): pass
    raise SystemExit("lost")
except KeyboardInterrupt:
    pass
""")


def test_many_spans_are_found():
    """More spans than the first table holds, and removal in any order."""
    passes("""
spans = [(base + i % 16 * size, base + i % 16 * size + size) for i in range(3000)]
protector = Protector()
for span in spans:
    protector.arm(span)
memory[5 * size + 5] = 1
assert places(protector) == [(5 * size + 5, "main")]
for span in spans[:2995]:
    protector.disarm(span)
for page in range(16):
    memory[page * size] = 1
assert {place // size for place, _ in places(protector)} == {(lo - base) // size for lo, _ in spans[2995:]}
""")
