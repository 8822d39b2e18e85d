"""Exact host-write detection by page protection: `protect`, and what `virtual_cuda(exact=True)` is made of.

The pages of staging memory are write-protected. A write faults, whoever makes it: torch, numpy, ctypes, a C++
planner, an OpenMP thread; the handler notes address, thread and line of Python, opens the page and returns.
A write of the very bytes that were there is seen too.
"""

from racecheck.exact.watch import Watch, explained, protect, unprotected

__all__ = ["Watch", "explained", "protect", "unprotected"]
