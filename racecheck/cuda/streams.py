"""Streams by the driver's handles, and what a trace calls them.

Destroying a stream waits for nothing, and the driver hands its handle out again: a stream that takes the
handle of one that may be at work is another stream, and nothing orders the two.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable

from racecheck.detect.ordering import LEGACY

#: The driver's names for the default streams: legacy, and the one each thread has of its own.
LEGACY_HANDLES = (0, 1)


class Streams:
    """Names, numbered in the order in which streams appear; `device` tells the current device."""

    def __init__(self, device: Callable[[], int]) -> None:
        self.device = device
        self._names: dict[Hashable, Hashable] = {}
        self._of_device: dict[int, list[Hashable]] = {}
        self._busy: set[Hashable] = set()
        self._numbers = itertools.count(1)

    def name(self, handle: int) -> Hashable:
        """What the trace calls the stream `handle`."""
        name = self._names.get(handle)
        if name is not None:  # never of a default stream: each device has one of these
            return name
        device = self.device()
        known = (device, 0) if handle in LEGACY_HANDLES else handle
        name = self._names.get(known)
        if name is None:
            own = LEGACY if known != handle else str(next(self._numbers))
            name = self._names[known] = f"{device}.{own}" if device else own
            self._of_device.setdefault(device, []).append(name)
        return name

    @property
    def several_devices(self) -> bool:
        """Have streams of more than one device appeared?"""
        return len(self._of_device) > 1

    def of_this_device(self) -> list[Hashable]:
        """The names of the current device's streams."""
        return self._of_device.get(self.device(), [])

    def works(self, name: Hashable) -> None:
        """Work was issued to it."""
        self._busy.add(name)

    def waited(self, scope: str, target: Hashable) -> None:
        """The host waited for a stream, or the only device there is, to be done with all that it holds."""
        if scope == "device":
            self._busy.clear()
        elif scope == "stream":
            self._busy.discard(target)

    def free(self, handle: int) -> None:
        """The stream `handle` is destroyed; a name is used again if all of its work was waited for."""
        name = self._names.get(handle)
        if name in self._busy:
            self._busy.discard(name)
            del self._names[handle]
            for names in self._of_device.values():
                if name in names:
                    names.remove(name)
