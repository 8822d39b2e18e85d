from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from samples import make_evidence, make_finding, make_row, make_stall

from racecheck.report import Report
from racecheck.report.text import describe_finding, plain, render
from racecheck.staging import SlotCost

FULL = Report(
    [
        make_row("race", "race"),
        make_row("clean", "clean", slots=2),
        make_row("race", "clean", runner="piecewise"),
        make_row("inconclusive", "clean", runner="eager"),
    ]
)


def test_a_report_in_full() -> None:
    """The whole text: table, findings, certificates, summary."""
    assert (
        plain(FULL, 120)
        == """\
small  virtual device, lag latest, seed 0, 12 steps

Runner     Slots  Verdict       Expected         First buffer  Steps  Rewrites  Open  Tokens wrong
main           1  race          yes              sampler.rows     12         6     2        1 of 3
main           2  clean         yes              -                12         6     2        0 of 3
piecewise      1  race          clean (not met)  sampler.rows     12         6     2        1 of 3
eager          1  inconclusive  untested         -                12         0     0        0 of 3

main, 1 slot: race
  buffer   sampler.rows[0] bytes 0 to 16, 3 times, certain
  first    h2d copy reads at engine/sampler.py:88 in stage
           stream 1, step 4, phase plan, sampler, slot 0
  second   host write at engine/sampler.py:85 in stage
           thread main, step 5, phase plan, sampler
  missing  nothing orders the h2d copy reads before the host write
  repair   wait for the copy
           checked: made in the trace, it removes this race and brings no other
  made at  engine/sampler.py:41 in __init__
  rule     race/h2d-read-vs-host-write, fingerprint f9a760652f19c920
  explain  racecheck explain race/h2d-read-vs-host-write
  Tokens of 1 of 3 requests differ from the serial run: r1 in 4 of 9 frames, first in frame 2.

main, 2 slots: clean
  6 rewrites of 1 buffer checked, 2 while an earlier read of the buffer was still open
  ordered by event sync at engine/loop.py:7 (6)

piecewise, 1 slot: race - expected clean, the verdict is race
  buffer   sampler.rows[0] bytes 0 to 16, 3 times, certain
  first    h2d copy reads at engine/sampler.py:88 in stage
           stream 1, step 4, phase plan, sampler, slot 0
  second   host write at engine/sampler.py:85 in stage
           thread main, step 5, phase plan, sampler
  missing  nothing orders the h2d copy reads before the host write
  repair   wait for the copy
           checked: made in the trace, it removes this race and brings no other
  made at  engine/sampler.py:41 in __init__
  rule     race/h2d-read-vs-host-write, fingerprint f9a760652f19c920
  explain  racecheck explain race/h2d-read-vs-host-write
  Tokens of 1 of 3 requests differ from the serial run: r1 in 4 of 9 frames, first in frame 2.
SUMMARY: racecheck: race/h2d-read-vs-host-write on sampler.rows[0]: engine/sampler.py:88 and \
engine/sampler.py:85

eager, 1 slot: inconclusive
  No staging buffer was rewritten.

2 of 4 rows as expected, 1 not, 1 not put to the test
"""
    )


def test_a_probe_of_one_row_shows_its_whole_certificate() -> None:
    """A clean verdict says which buffers were rewritten and what ordered each."""
    assert (
        plain(Report([make_row()]), 100)
        == """\
small  virtual device, lag latest, seed 0, 12 steps

Runner  Slots  Verdict  First buffer  Steps  Rewrites  Open  Tokens wrong
main        1  clean    -                12         6     2        0 of 3

main, 1 slot: clean
  6 rewrites of 1 buffer checked, 2 while an earlier read of the buffer was still open
  sampler.rows  2 slots, 6 rewrites, 2 open
    event sync at engine/loop.py:7 (6)

verdict: clean
"""
    )


@pytest.mark.parametrize("width", [40, 60, 80, 99, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Long names wrap; nothing is cut off. Only the line that is there to be found with grep is one line."""
    long = make_finding("code_predictor_sampler.gather_indices")
    text = plain(Report([*FULL.rows, make_row("race", findings=[long])]), width)
    summaries = [line for line in text.splitlines() if line.startswith("SUMMARY: ")]
    assert len(summaries) == 2
    assert max(len(line) for line in text.splitlines() if line not in summaries) <= width
    assert "..." not in text
    assert "code_predictor_sampler.gather_indices" in "".join(line.strip() for line in text.splitlines())


def test_a_narrow_table_keeps_what_decides() -> None:
    """Runner, slots, verdict, expectation and wrong tokens; the figures are below."""
    header = plain(FULL, 61).splitlines()[2]
    assert header.split() == ["Runner", "Slots", "Verdict", "Expected", "Tokens", "wrong"]


LONG = "code_predictor_sampler.gather_indices"


@pytest.mark.parametrize("width", [60, 80, 100])
def test_what_a_narrow_table_leaves_out_is_below_it(width: int) -> None:
    """For every row, also clean and untested ones: the steps run, rewrites, open windows and the buffer."""
    rows = [make_row("race", "race", findings=[make_finding(LONG)], steps_run=11), *FULL.rows[1:]]
    blocks = [" ".join(block.split()) for block in plain(Report(rows), width).split("\n\n")[2:6]]
    buffers = (LONG, "-", "sampler.rows", "-")
    for block, row, buffer in zip(blocks, rows, buffers, strict=True):
        figures = f"steps {row.steps_run}, rewrites {row.evidence.rewrites}, open {row.open_windows}, "
        assert f"{figures if width < 100 else ''}first buffer {buffer}" in block
        assert (figures in block) == (width < 100)


@pytest.mark.parametrize("width", [80, 100, 110, 120, 140])
def test_a_buffers_name_is_not_folded(width: int) -> None:
    """Not in the table, which leaves it to the details, and not there."""
    text = plain(Report([make_row("race", "race", findings=[make_finding(LONG)]), *FULL.rows]), width)
    assert f"{LONG}[0]" in text
    assert "code_predictor" not in text.replace(LONG, "")
    assert "\u2026" not in text


def test_the_slots_of_other_runners_are_said() -> None:
    """A row of one slot: the second one in its evidence is another runner's."""
    text = plain(Report([make_row(slots=1, other_slots=2), make_row(slots=2, other_slots=2)]), 120)
    assert "main, 1 slot (2 for the other runners): clean\n" in text
    assert "main, 2 slots: clean\n" in text


@pytest.mark.parametrize("rows", [1, 2])
def test_stalls_are_a_note_below_the_certificate(rows: int) -> None:
    """Also where the certificate is a line: the wait, what it waits for and how far back, what it allows."""
    evidence, stall = make_evidence(), make_stall()
    evidence.held[stall.what, stall.loc, stall.waited_loc] = stall
    text = plain(Report([make_row(evidence=evidence)] * rows), 200)
    told = (
        "\n  stall: event sync at engine/ring.py:12, 20 times: waits for the h2d copy at engine/ring.py:15, "
        "8 copies back in the same step; it allows rewriting kv.ring\n"
    )
    assert text.count(told) == rows


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"back": 0, "what": "blocking d2h copy"},
         "blocking d2h copy at engine/ring.py:12, 20 times: waits for what it issued itself"),
        ({"back": 1, "count": 1},
         "1 time: waits for the h2d copy at engine/ring.py:15, of the same step; it"),
        ({"waited_for": "replay", "back": 2}, "the replay at engine/ring.py:15, 2 replays back in the same"),
        ({"waited_for": "kernel mul", "back": 3}, "the kernel mul at engine/ring.py:15, 3 kernels back in"),
    ],
)  # fmt: skip
def test_a_stall_in_words(changes: dict[str, Any], told: str) -> None:
    """Of a blocking call, of the latest work, of work further back."""
    assert told in str(make_stall(**changes))


def test_colour_is_an_extra() -> None:
    """On a terminal the same words in colour; elsewhere no escape at all."""
    file = io.StringIO()
    console = Console(file=file, width=120, force_terminal=True, color_system="standard", highlight=False)
    render(FULL, console)
    assert "\x1b[1;31mrace" in file.getvalue()
    assert "\x1b" not in plain(FULL, 120)
    assert plain(FULL, 120).isascii()


def test_further_findings_are_counted_and_named() -> None:
    """The first one is told in full, the others by buffer."""
    findings = [make_finding(), make_finding("kv.page_table", certain=False), make_finding("kv.slots")]
    text = plain(Report([make_row("race", findings=findings)]), 120)
    assert "more     2 findings on kv.page_table, kv.slots (--json lists them)" in text


def test_uncertainty_and_a_missing_repair_are_said() -> None:
    """What was not proved is not claimed."""
    text = plain(
        Report([make_row("race", findings=[make_finding(certain=False, repairs=[], allocated=None)])]), 120
    )
    assert "may be the consequence of an earlier race" in text
    assert "repair   none found that removes it" in text
    assert "made at" not in text


def test_markup_in_a_name_is_text() -> None:
    """A buffer may be called anything."""
    text = plain(Report([make_row("race", findings=[make_finding("x[red]y[/]")])]), 120)
    assert "x[red]y[/]" in text


def test_many_orderings_are_counted() -> None:
    """The most frequent three by name."""
    evidence = make_evidence()
    evidence.buffers["sampler.rows"].ordered_by.update({f"event sync at x.py:{n}": n for n in range(1, 5)})
    text = plain(Report([make_row(evidence=evidence)]), 120)
    assert "loop.py:7 (6), event sync at x.py:4 (4), event sync at x.py:3 (3), 2 more" in text


def test_a_finding_on_its_own() -> None:
    """What an assertion shows: the same block under its rule and buffer."""
    text = describe_finding(make_finding())
    assert text.startswith(
        "race/h2d-read-vs-host-write on sampler.rows\nbuffer   sampler.rows[0] bytes 0 to 16"
    )
    assert "repair   wait for the copy" in text
    assert text.splitlines()[-1] == (
        "SUMMARY: racecheck: race/h2d-read-vs-host-write on sampler.rows[0]: "
        "engine/sampler.py:88 and engine/sampler.py:85"
    )
    assert "replay" not in text


COSTS = [
    SlotCost(resource="kv", slots=3, pinned=2048, device=2048, needs={"main": 3, "eager": 2}),
    SlotCost(resource="code_predictor_sampler", slots=2, pinned=64, device=64, needs={"piecewise": 2}),
]


def test_slots_have_their_price() -> None:
    """Under the certificate of a single row a table; among other rows one line."""
    table = plain(Report([make_row(costs=COSTS)]), 100)
    assert (
        """\
  What a slot costs        Pinned   Device  Slots  Needed by
  kv                      2.0 KiB  2.0 KiB      3  main 3, eager 2
  code_predictor_sampler     64 B     64 B      2  piecewise 2
"""
        in table
    )
    assert max(map(len, plain(Report([make_row(costs=COSTS)]), 50).splitlines())) <= 50
    line = plain(Report([make_row(costs=COSTS), make_row(slots=2)]), 120)
    assert (
        "  a slot costs 2.1 KiB of pinned and 2.1 KiB of device memory; 6.1 KiB are pinned in all\n" in line
    )
    assert "costs" not in plain(Report([make_row("race", costs=COSTS)]), 100)
