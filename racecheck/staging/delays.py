"""Host-delay points: named places in the host's code where a test may hold the host up.

A race needs the host to be early; a delay makes it late, so a delay can only hide one. They are drawn
data for the sequence generator and the shrinker, and cost one attribute look-up when nothing is
installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Delay = Callable[[str], None]

_installed: Delay | None = None


def host_delay(point: str) -> None:
    """Pass the delay point called `point` ("after_write", "after_copy", "before_launch", ...)."""
    if _installed is not None:
        _installed(point)


@contextmanager
def delays(delay: Delay) -> Iterator[None]:
    """Call `delay(point)` at every delay point passed inside the context."""
    global _installed
    outer, _installed = _installed, delay
    try:
        yield
    finally:
        _installed = outer
