"""Where things of a timeline are: ticks to pixels, lanes to heights.

The same numbers go into the page's data attributes, so that its script moves items by them.
"""

from __future__ import annotations

from collections.abc import Sequence

from racecheck.report.picture import Item, Picture

#: Pixels: room above the lanes for the steps' names; of a lane without windows; of each window in it.
TOP, LANE, ROW = 26, 46, 20
#: From the top of a lane to the middle of what has no window.
BASE = 26
#: Pixels: what a host call takes, the work of a device at its end, room on the right for a name.
HOST, DONE, RIGHT = 18, 12, 150
#: Windows that lie above each other in a lane at most.
MOST_ROWS = 4
#: A picture that fits is so wide; ticks are no narrower and no wider than this.
FITTING, NARROW, WIDE = 810, 26, 150


class Geometry:
    """Pixels of one picture."""

    def __init__(self, picture: Picture) -> None:
        self.tick = min(WIDE, max(NARROW, FITTING / picture.width))
        self.rows = _rows(picture.items)
        heights = [
            LANE
            + ROW
            * max((row for item, row in self.rows.items() if picture.items[item].lane == lane), default=0)
            for lane in range(len(picture.lanes))
        ]
        self.tops = [TOP + sum(heights[:lane]) for lane in range(len(heights))]
        self.heights = heights
        self.width = round(picture.width * self.tick + RIGHT)
        self.height = TOP + sum(heights)

    def x(self, time: float) -> float:
        """The pixel of a time in ticks."""
        return 8 + time * self.tick

    def y(self, number: int, item: Item) -> float:
        """The middle of item `number`: windows have rows of their own, below what has none."""
        return self.tops[item.lane] + BASE + ROW * self.rows.get(number, 0)


def has_window(item: Item) -> bool:
    """Is it work of the device that touches the bytes of the finding?"""
    return item.moves and item.role in ("first", "second", "touch")


def _rows(items: Sequence[Item]) -> dict[int, int]:
    """For each item with a window its row in the lane, from 1."""
    rows: dict[int, int] = {}
    used: dict[int, int] = {}
    for number, item in enumerate(items):
        if has_window(item):
            rows[number] = used.get(item.lane, 0) % MOST_ROWS + 1
            used[item.lane] = used.get(item.lane, 0) + 1
    return rows
