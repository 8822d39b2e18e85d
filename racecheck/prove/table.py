"""The table: every premise broken by itself, for 1 to 4 slots and a run-ahead of 0 to 3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from racecheck.prove.answer import Answer, ask
from racecheck.prove.protocol import Protocol
from racecheck.words import counted

SLOTS = range(1, 5)
RUN_AHEAD = range(4)

#: What each row breaks, with the premise's letter.
ROWS: dict[str, Protocol] = {
    "none": Protocol(),
    "a completion wait skipped": Protocol(completion_wait=False),
    "b replay not covered": Protocol(wait_covers_replay=False),
    "b the same on one stream": Protocol(wait_covers_replay=False, one_stream=True),
    "c event before its readers": Protocol(event="before"),
    "c event on another stream": Protocol(event="other-stream"),
    "d one buffer stays in place": Protocol(all_rotate=False),
    "d buffer written twice": Protocol(write_twice=True),
    "e dropped plan advances": Protocol(drop="advance"),
    "e dropped plan not waited": Protocol(drop_wait=False),
    "f counter per bucket": Protocol(shared_counter=False),
    "none, own-event wait too": Protocol(wait_own_event=True),
    "a but own-event wait": Protocol(completion_wait=False, wait_own_event=True),
}


@dataclass(frozen=True)
class Row:
    """The answers for one broken premise, by (run-ahead, slots)."""

    name: str
    answers: dict[tuple[int, int], Answer]


def rows(method: str) -> Iterator[Row]:
    """All rows, one after the other."""
    return (row(name, method) for name in ROWS)


def row(name: str, method: str) -> Row:
    """The row called `name`."""
    sizes = [(run_ahead, slots) for run_ahead in RUN_AHEAD for slots in SLOTS]
    return Row(name, {(r, s): ask(replace(ROWS[name], slots=s, run_ahead=r), method) for r, s in sizes})


WIDTH = max(map(len, ROWS)) + 1


def heading() -> list[str]:
    """The two lines above the rows."""
    ahead = "".join(f"| R = {r}".ljust(13) for r in RUN_AHEAD)
    slots = "".join("|" + "".join(f"{s:3}" for s in SLOTS) for _ in RUN_AHEAD)
    return [f"{'':{WIDTH}}{ahead}".rstrip(), f"{'Broken':{WIDTH - 3}}S ={slots}"]


def line(row: Row) -> str:
    """One row: a cell is `ok`, `r` with the step of the racing write, or `?`."""
    cells = "".join("|" + "".join(f"{_cell(row.answers[r, s]):>3}" for s in SLOTS) for r in RUN_AHEAD)
    return f"{row.name:{WIDTH}}{cells}"


def legend(done: list[Row], method: str) -> list[str]:
    """What the cells mean, and whether the methods agree."""
    answers = [answer for row in done for answer in row.answers.values()]
    unsure = sum(answer.status == "unknown" for answer in answers)
    agreed = f"{len(answers) - unsure} of {counted(len(answers), 'cell')}"
    by = {"both": f"z3 and exhaustive exploration agree on {agreed}"}
    return [
        "S: slots, R: run-ahead. ok: proved for every number of steps. rN: step N's write races. ?: unknown.",
        by.get(method, f"{method} alone answers {agreed}") + ".",
    ]


def _cell(answer: Answer) -> str:
    if answer.status == "refuted" and answer.counterexample is not None:
        return f"r{answer.counterexample.second.step}"
    return "ok" if answer.status == "proved" else "?"
