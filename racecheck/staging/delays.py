"""Host-delay points: named places in the host's code where a test may hold the host up.

A race needs the host to be early; a delay makes it late, so a delay can only hide one. They are drawn
data for the sequence generator and the shrinker, and cost one attribute look-up when nothing is
installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from racecheck.errors import UsageError

Delay = Callable[[str], None]

_installed: Delay | None = None


def host_delay(point: str) -> None:
    """Pass the delay point called `point` ("after_write", "after_copy", "before_launch", ...)."""
    if _installed is not None:
        _installed(point)


@contextmanager
def delays(delay: Delay) -> Iterator[None]:
    """Call `delay(point)` at every delay point passed inside the context.

    Raises:
        UsageError: `delay` cannot be called.
    """
    global _installed
    if not callable(delay):
        raise UsageError(f"delays() needs a function of the point's name, not {delay!r:.40}")
    outer, _installed = _installed, delay
    try:
        yield
    finally:
        _installed = outer
