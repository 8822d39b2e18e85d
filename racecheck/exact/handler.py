"""The process's SIGSEGV handler: it notes who wrote to a protected page, lifts the protection and returns.

It is machine code, because a handler in Python can stop the process for ever: a thread that holds the GIL
and joins others (an extension that fills a buffer with OpenMP and does not release the GIL) waits for a
thread that waits, in the handler, for the GIL. The machine code lifts the protection first. Then

- a thread known to Python calls `_note`, which needs the GIL and names line, thread and mark;
- any other thread leaves the address in a ring and goes on; it waits for nothing.

What is not a write to a protected page goes to the handler that was there before: it is put back, and the
faulting instruction runs again. So a crash stays a crash, with its core or its faulthandler report. A span
may be disarmed while a thread is on its way here, so an unknown fault is first tried again, 64 times.

One way to stop for ever is left: a thread that has released the GIL faults while it holds a lock, and the
thread that has the GIL waits for that lock without releasing it. Such code inverts two locks, and hangs as
soon as anything else makes the first thread wait for the GIL.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import signal
import sys
import threading
from collections import deque
from typing import NamedTuple

from racecheck.errors import UnsupportedOperation
from racecheck.exact import code_aarch64, code_x86_64
from racecheck.trace import caller, current_mark, thread_name
from racecheck.trace.records import NO_MARK, NOWHERE, Loc, Mark

_CODE = {"x86_64": code_x86_64.CODE, "aarch64": code_aarch64.CODE}
_RING = 1 << 16  # addresses; the machine code knows the number
_SA_SIGINFO, _SA_NODEFER = 0x4, 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class Fault(NamedTuple):
    """A write to a protected page. `thread` is None if Python does not know the thread."""

    address: int
    thread: str | None = None
    loc: Loc = NOWHERE
    mark: Mark = NO_MARK


class _Sigaction(ctypes.Structure):
    """`struct sigaction` of glibc and musl on 64-bit machines."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class State(ctypes.Structure):
    """What the machine code reads and writes: a table of 8-byte fields."""

    _fields_ = (
        ("note", ctypes.c_void_p),  # 0
        ("this_thread", ctypes.c_void_p),  # 8: PyGILState_GetThisThreadState, null if Python knows it not
        ("mprotect", ctypes.c_void_p),  # 16
        ("sigaction", ctypes.c_void_p),  # 24
        ("raise_", ctypes.c_void_p),  # 32
        ("errno_location", ctypes.c_void_p),  # 40
        ("page_mask", ctypes.c_uint64),  # 48
        ("page_size", ctypes.c_uint64),  # 56
        ("strays", ctypes.c_uint64),  # 64: unknown faults since the spans changed
        ("handed_over", ctypes.c_uint64),  # 72: 1 once the handler before ours was put back
        ("before", ctypes.c_void_p),  # 80: its sigaction
        ("count", ctypes.c_uint64),  # 88: protected spans
        ("spans", ctypes.c_void_p),  # 96: their first and last address, the last excluded
        ("natives", ctypes.c_uint64),  # 104: faults of threads that Python does not know, ever
        ("ring", ctypes.c_void_p),  # 112: the addresses of the latest of them
        ("default", ctypes.c_void_p),  # 120: a sigaction that says SIG_DFL
    )


state = State()
sinks: list[deque[Fault]] = []  # who is told of faults; replaced, never changed
_before, _default, _ours = _Sigaction(), _Sigaction(), _Sigaction()
_ring = (ctypes.c_uint64 * _RING)()
_drained = 0
_pages: list[mmap.mmap] = []  # the code is never unmapped: a later handler may know its address


def _note(address: int) -> None:
    """Called by the machine code, on the faulting thread."""
    try:
        fault = Fault(address, thread_name(), caller(), current_mark())
        for sink in sinks:
            sink.append(fault)
    except KeyboardInterrupt:
        # ctypes would drop it. Sent again, it waits until the handler returns, which unblocks it.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)


_callback = ctypes.CFUNCTYPE(None, ctypes.c_size_t)(_note)


def install() -> None:
    """Be the process's SIGSEGV handler, on top of whatever is there; nothing if we are that already.

    Raises:
        UnsupportedOperation: another system than Linux, or another machine than x86-64 and AArch64.
    """
    if not _pages:
        _write_code()
    current = _Sigaction()
    _libc.sigaction(signal.SIGSEGV, None, ctypes.byref(current))
    if current.handler != _ours.handler:
        ctypes.pointer(_before)[0] = current
        state.handed_over = 0
        _libc.sigaction(signal.SIGSEGV, ctypes.byref(_ours), None)


def uninstall() -> None:
    """Put the handler before ours back, unless somebody else has come since."""
    current = _Sigaction()
    _libc.sigaction(signal.SIGSEGV, None, ctypes.byref(current))
    if current.handler == _ours.handler:
        _libc.sigaction(signal.SIGSEGV, ctypes.byref(_before), None)


def drain_natives() -> None:
    """Tell the sinks of the faults that the machine code has left in the ring."""
    global _drained
    _drained = max(_drained, state.natives - _RING)  # older ones are overwritten: their bytes still differ
    while _drained < state.natives and _ring[_drained % _RING]:
        fault = Fault(_ring[_drained % _RING])
        _ring[_drained % _RING] = 0
        _drained += 1
        for sink in sinks:
            sink.append(fault)


def require_support(option: str = "exact=True") -> str:
    """The machine code for this machine; `UnsupportedOperation` if there is none."""
    if sys.platform != "linux" or platform.machine() not in _CODE:
        raise UnsupportedOperation(
            f"{option}: host writes are found by page protection on Linux on x86-64 and AArch64, not on "
            f"{sys.platform} on {platform.machine()}; leave it out, and they are found by comparing bytes"
        )
    return _CODE[platform.machine()]


def _write_code() -> None:
    text = require_support()
    lines = (line.split()[0] for line in text.splitlines() if line and not line.endswith(":"))
    page = mmap.mmap(-1, mmap.PAGESIZE)
    page.write(ctypes.addressof(state).to_bytes(8, sys.byteorder) + bytes.fromhex("".join(lines)))
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    executable = mmap.PROT_READ | mmap.PROT_EXEC
    if _libc.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(mmap.PAGESIZE), executable):
        raise UnsupportedOperation(
            "exact host-write detection needs a page of executable memory, which this system refuses; "
            "leave exact=True out: writes are then found by comparing bytes"
        )
    _fill_state()
    _ours.handler, _ours.flags = start + 8, _SA_SIGINFO | _SA_NODEFER
    _pages.append(page)


def _fill_state() -> None:
    def address(function: object) -> int | None:
        return ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]

    state.note = address(_callback)
    state.this_thread = address(ctypes.pythonapi.PyGILState_GetThisThreadState)
    state.mprotect, state.sigaction = address(_libc.mprotect), address(_libc.sigaction)
    state.raise_, state.errno_location = address(getattr(_libc, "raise")), address(_libc.__errno_location)
    state.page_mask, state.page_size = (1 << 64) - mmap.PAGESIZE, mmap.PAGESIZE
    state.before, state.default = ctypes.addressof(_before), ctypes.addressof(_default)
    state.ring = ctypes.addressof(_ring)
