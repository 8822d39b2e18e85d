"""Results as plain data: a report is a list of rows, a row is one runner at one slot count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from racecheck.detect.evidence import Evidence
from racecheck.detect.finding import Finding

#: From worst to best: a report's verdict is the worst of its rows.
VERDICTS = ("race", "stale", "hang", "inconclusive", "clean")
#: Verdicts that say something is wrong.
WRONG = ("race", "stale", "hang")

Tokens = Sequence[tuple[int, ...] | bytes]


@dataclass(frozen=True)
class Expected:
    """What a scenario says a row must come to; `buffer` is the one the first finding must name."""

    verdict: str
    buffer: str | None = None

    def __str__(self) -> str:
        return self.verdict if self.buffer is None else f"{self.verdict} on {self.buffer}"


@dataclass(frozen=True)
class WrongTokens:
    """A request whose tokens differ from those of the serial reference: a witness, not a verdict.

    `position` is the first frame that differs, `wrong` how many of the `of` compared frames do.
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

    @property
    def buffer(self) -> str | None:
        """The buffer that the first finding names."""
        return self.findings[0].buffer if self.findings else None

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
        return None

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


def compare(reference: dict[str, Tokens], found: dict[str, Tokens]) -> list[WrongTokens]:
    """Requests whose tokens differ, by name.

    A run cut off by its number of steps may have got less far than the reference, or, planning ahead,
    one step further: what both produced is compared.
    """
    out = []
    for request in sorted(reference.keys() & found.keys()):
        pairs = list(zip(reference[request], found[request], strict=False))
        differ = [at for at, (want, got) in enumerate(pairs) if tuple(want) != tuple(got)]
        if differ:
            want, got = pairs[differ[0]]
            out.append(WrongTokens(request, differ[0], tuple(want), tuple(got), len(differ), len(pairs)))
    return out
