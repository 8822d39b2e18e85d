"""The premises that were found broken, each way once, with how often and on which buffers."""

from __future__ import annotations

from dataclasses import replace

from racecheck.detect.premises.blame import Blame
from racecheck.detect.premises.result import Broken

_EXPLAINS = ("one-stays", "shared-across-buckets")


class Notes:
    """Broken premises, by letter and way."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Broken] = {}
        self._latest: dict[tuple[str, str], int] = {}  # the step that broke it last

    def add(self, why: Blame, step: int, buffer: str) -> None:
        """`step` broke it, on `buffer`; it counts once a step."""
        key = why.letter, why.how
        known = self._found.get(key)
        if known is None:
            self._found[key] = Broken(*why, step=step, buffers=(buffer,))
        else:
            buffers = known.buffers if buffer in known.buffers else (*known.buffers, buffer)
            count = known.count + (self._latest[key] != step)
            self._found[key] = replace(known, buffers=buffers, count=count)
        self._latest[key] = step

    def broken(self) -> tuple[Broken, ...]:
        """All of them, by letter.

        Buffers that do not rotate with the others, or counters that are not one, explain as well why a
        dropped plan's slot was not the next one.
        """
        explained = {name for each in self._found.values() if each.how in _EXPLAINS for name in each.buffers}
        kept = [
            each
            for each in self._found.values()
            if each.how != "drop-advance" or explained.isdisjoint(each.buffers)
        ]
        return tuple(sorted(kept, key=lambda each: (each.letter, each.how)))
