"""Results as plain data: a report is a list of rows, a row is one runner at one slot count."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice, zip_longest
from typing import TYPE_CHECKING

from racecheck.detect.evidence import Evidence
from racecheck.detect.finding import Finding
from racecheck.detect.premises import Premises
from racecheck.report.picture import Picture
from racecheck.words import counted

if TYPE_CHECKING:  # staging imports torch, which takes seconds
    from racecheck.staging import SlotCost

#: From worst to best: a report's verdict is the worst of its rows.
VERDICTS = ("race", "stale", "hang", "inconclusive", "clean")
#: Verdicts that say something is wrong.
WRONG = ("race", "stale", "hang")

Tokens = Sequence[tuple[int, ...] | bytes]
#: A witness shows so many numbers of an item.
SHOWN_NUMBERS = 32


@dataclass(frozen=True)
class Expected:
    """What a scenario says a row must come to.

    `buffer` is the one the first finding must name; `buffers`, if any, are names or patterns of all those
    that findings must name, and no others.
    """

    verdict: str
    buffer: str | None = None
    buffers: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.verdict if self.buffer is None else f"{self.verdict} on {self.buffer}"


@dataclass(frozen=True)
class WrongTokens:
    """A request whose tokens differ from those of the serial reference: a witness, not a verdict.

    `position` is the first frame (or chunk of sound) that differs, `wrong` how many of the `of` compared
    frames do. `expected` and `found` are the codes of that frame, or bytes of the chunk from the first that
    differs; empty where there is none.
    """

    request: str
    position: int
    expected: tuple[int, ...]
    found: tuple[int, ...]
    wrong: int
    of: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """One runner at one slot count. `expected` is None in a probe, which has nothing to live up to."""

    scenario: str
    runner: str
    slots: int
    device: str
    lag: str | None  # None on a GPU
    seed: int
    steps: int
    verdict: str
    steps_run: int  # fewer than `steps` if the workload ended before
    expected: Expected | None = None
    reason: str | None = None  # why a verdict is what it is, where neither findings nor evidence say it
    findings: Sequence[Finding] = ()
    evidence: Evidence = field(default_factory=Evidence)
    witness: Sequence[WrongTokens] = ()
    requests: int = 0  # how many requests were compared with the reference
    other_slots: int | None = None  # slots of the runners that this row is not about
    costs: Sequence[SlotCost] = ()  # what its slots cost, if the engine says
    file: str | None = None  # the scenario file, as `scenario.source.portable` has it
    exact: bool = False
    premises: Premises | None = None  # of the slot theorem; None for a run without a trace
    replay: str | None = None  # the command that runs this row again
    pictures: Sequence[Picture | None] = ()  # of the findings, in their order, for the first ones

    @property
    def title(self) -> str:
        """Runner and slots."""
        slots = counted(self.slots, "slot")
        if self.other_slots is not None and self.other_slots > self.slots:
            slots += f" ({self.other_slots} for the other runners)"
        return f"{self.runner}, {slots}"

    @property
    def witnessed(self) -> str:
        """What became of the tokens, in a sentence; empty if they are those of the serial run."""
        if not self.witness:
            return ""
        wrong, requests = self.witness[0], counted(self.requests, "request")
        where = f"in {wrong.wrong} of {counted(wrong.of, 'frame')}, first in frame {wrong.position}"
        differ = f"Tokens of {len(self.witness)} of {requests} differ from the serial run"
        return f"{differ}: {wrong.request} {where}."

    @property
    def buffer(self) -> str | None:
        """The buffer that the first finding names."""
        return self.findings[0].buffer if self.findings else None

    @property
    def raced(self) -> list[str]:
        """The staged buffers that findings name; a buffer and its device twins are one."""
        return sorted({finding.buffer.removesuffix(" (device)") for finding in self.findings})

    @property
    def open_windows(self) -> int:
        """Rewrites made while an earlier device read of the same buffer was not yet ordered before them."""
        return sum(buffer.open_windows for buffer in self.evidence.buffers.values())

    @property
    def untested(self) -> bool:
        """Did the run put nothing to the test, although a verdict was asked for?"""
        return self.verdict == "inconclusive" and not (
            self.expected and self.expected.verdict == "inconclusive"
        )

    @property
    def problem(self) -> str | None:
        """What speaks against this row; None if nothing does."""
        if self.verdict == "clean" and self.witness:
            return "every access is ordered, but tokens differ from the serial reference"
        if self.expected is None:
            return f"the verdict is {self.verdict}" if self.verdict in WRONG else None
        if self.verdict != self.expected.verdict:
            return None if self.untested else f"expected {self.expected}, the verdict is {self.verdict}"
        if self.expected.buffer is not None and self.buffer != self.expected.buffer:
            return f"expected {self.expected}, the first finding names {self.buffer}"
        return _other_buffers(self.expected.buffers, self.raced) if self.expected.buffers else None

    @property
    def ok(self) -> bool:
        """Is the row what it must be: as expected, or (in a probe) clean?"""
        return self.problem is None and not self.untested


@dataclass(frozen=True)
class Report:
    """Everything one command found out."""

    rows: Sequence[Row]

    @property
    def verdict(self) -> str:
        """The worst verdict of all rows."""
        return worst(row.verdict for row in self.rows)

    @property
    def ok(self) -> bool:
        """Are all rows what they must be?"""
        return all(row.ok for row in self.rows)

    @property
    def exit_code(self) -> int:
        """0 all rows are what they must be; 1 one is not; 3 none is wrong, but one was not tested."""
        if any(row.problem for row in self.rows):
            return 1
        return 3 if any(row.untested for row in self.rows) else 0


def worst(verdicts: Iterable[str]) -> str:
    """The first of `VERDICTS` among `verdicts`; inconclusive for none at all."""
    present = set(verdicts)
    return next((verdict for verdict in VERDICTS if verdict in present), "inconclusive")


def compare(
    reference: dict[str, Tokens], found: dict[str, Tokens], whole: Container[str] = ()
) -> list[WrongTokens]:
    """Requests whose tokens differ, by name.

    `whole` are those that both runs served to their end, which must have as many tokens. Of the others,
    cut off by the number of steps or cancelled by their client, how far they got depends on how far the
    host ran ahead: what both produced is compared.
    """
    out = []
    for request in sorted(reference.keys() & found.keys()):
        want, got = ([_plain(item) for item in tokens[request]] for tokens in (reference, found))
        of = (max if request in whole else min)(len(want), len(got))
        pairs = list(islice(zip_longest(want, got, fillvalue=()), of))
        differ = [at for at, (one, other) in enumerate(pairs) if one != other]
        if differ:
            shown = _where_they_differ(*pairs[differ[0]])
            out.append(WrongTokens(request, differ[0], *shown, len(differ), of))
    return out


def _plain(item: tuple[int, ...] | bytes) -> tuple[int, ...]:
    """Codes as they are, sound as its bytes."""
    return tuple(item)


def _where_they_differ(
    want: tuple[int, ...], got: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Both items; of long ones, which are sound, the bytes from the first that differs."""
    if max(len(want), len(got)) <= SHOWN_NUMBERS:
        return want, got
    first = next((at for at, pair in enumerate(zip(want, got, strict=False)) if pair[0] != pair[1]), 0)
    return want[first : first + SHOWN_NUMBERS], got[first : first + SHOWN_NUMBERS]


def _other_buffers(expected: Sequence[str], raced: Sequence[str]) -> str | None:
    """What is wrong with the set of buffers that `raced`."""
    silent = [pattern for pattern in expected if not any(fnmatchcase(name, pattern) for name in raced)]
    more = [name for name in raced if not any(fnmatchcase(name, pattern) for pattern in expected)]
    words = [f"no finding names {', '.join(silent)}"] if silent else []
    words += [f"findings also name {', '.join(more)}"] if more else []
    return " and ".join(words) or None
