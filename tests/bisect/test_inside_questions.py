"""Steps, lateness, slots and synchronisations of runs that are known in full."""

from __future__ import annotations

import math

import pytest
from pretended import RACE, SAFE, Pretended

from racecheck.bisect.inside import Late, enough_slots, first_step, needed_lateness, needed_syncs
from racecheck.bisect.inside.answers import told_delays, told_slots, told_steps, told_syncs
from racecheck.bisect.inside.delays import MOST_RUNS
from racecheck.bisect.inside.steps import SCHEDULES


@pytest.mark.parametrize("first", [1, 2, 3, 17, 63, 64])
def test_the_first_step_is_found(first: int) -> None:
    """With one step fewer it is not there; that takes about two logarithms of runs."""
    subject = Pretended(lambda steps, late, slots: RACE if steps >= first else SAFE)
    answer = first_step(subject.followed())
    assert (answer.steps, answer.of, answer.command) == (first, 64, f"run {first} d1.AAA None")
    assert answer.inevitable
    assert not answer.open
    assert len(subject.runs) <= 2 * math.ceil(math.log2(64)) + 1 + len(SCHEDULES) + 1
    assert any("yes, under any schedule" in line for line in told_steps(answer))


def test_a_finding_that_only_the_whole_run_has() -> None:
    """It ended otherwise than by its steps: no number of steps stands for it but all."""
    subject = Pretended(lambda steps, late, slots: RACE)
    followed = subject.followed()
    followed.seen.steps = 5
    subject.lines = lambda steps, late, slots: RACE if steps == 64 else SAFE
    assert first_step(followed).steps == 64


def test_a_schedule_that_avoids_it_is_named() -> None:
    """Eager retires at once; a program that waits then is safe."""
    subject = Pretended(lambda steps, late, slots: SAFE if late.decisions and all(late.decisions) else RACE)
    answer = first_step(subject.followed())
    assert not answer.inevitable
    assert [lag for lag, found in answer.found_under.items() if not found] == ["eager"]
    assert "inevitable: no, only under certain schedules: not under eager" in list(told_steps(answer))


def test_a_query_leaves_it_open() -> None:
    """All schedules tried have it, and another may all the same not."""
    subject = Pretended(lambda steps, late, slots: "query s -> pending\n" + RACE)
    answer = first_step(subject.followed())
    assert (answer.inevitable, answer.open) == (True, ("1 query",))
    assert any("open in these steps: 1 query" in line for line in told_steps(answer))


def test_a_hang_is_of_two_calls() -> None:
    """What two ranks do next to each other is no access; more slots do not end it."""
    subject = Pretended(lambda steps, late, slots: "rank0: coll a\nrank1: coll b\n")
    followed = subject.followed()
    assert followed.finding.kind == "hang"
    told = list(told_steps(first_step(followed)))
    assert told[1].startswith("  first call, of no known step: rank 0 issues a")
    assert told[2].startswith("  second call, of no known step: rank 1 issues b")
    counts = list(told_slots(enough_slots(followed)))
    assert counts[0] == "main: there at every count from 1 to 4: more slots do not end it"
    assert counts[1].startswith("  1 slot   there ")


def test_ordering_needs_nobody_to_be_late() -> None:
    """And the bytes are wrong in no run."""
    subject = Pretended(lambda steps, late, slots: RACE, late=Late((1, 0, 2), (3,)))
    answer = needed_lateness(subject.followed())
    assert (answer.by_order.late, answer.by_order.exact, answer.by_value) == (Late(), True, None)
    lines = list(told_delays(answer))
    assert "1 host delay and 2 lag decisions" in lines[0]
    assert "none needed" in lines[0]
    assert any("the bytes were right in all" in line for line in lines)


@pytest.mark.parametrize("needed", [{3}, {0, 7}, {1, 4, 6}])
def test_decisions_that_are_needed_are_found(needed: set[int]) -> None:
    """All of them and no other, from a list in which all eight are made."""

    def bad(late: Late) -> bool:
        return all((late.decisions or ())[at] for at in needed)

    subject = Pretended(
        lambda steps, late, slots: RACE if bad(late) else SAFE, late=Late((1,) * 8), wrong=bad
    )
    answer = needed_lateness(subject.followed())
    wanted = tuple(int(at in needed) for at in range(max(needed) + 1))
    assert answer.by_value is not None
    assert answer.by_order.late == answer.by_value.late == Late(wanted)
    assert answer.by_order.exact
    assert answer.by_value.exact
    assert (answer.wrong and (answer.wrong.expected, answer.wrong.found)) == ((1,), (2,))
    assert f"  lag: {answer.by_value.late.lag_name}" in list(told_delays(answer))


def test_host_delays_are_left_out_as_well() -> None:
    """Of three delays the second is needed."""
    subject = Pretended(
        lambda steps, late, slots: RACE if late.delays[1:2] == (5,) else SAFE, late=Late((1, 1), (4, 5, 6))
    )
    assert needed_lateness(subject.followed()).by_order.late == Late((), (0, 5))


def test_wrong_bytes_are_looked_for_under_other_lags() -> None:
    """The decisions of one that shows them are what is reduced."""
    subject = Pretended(
        lambda steps, late, slots: RACE, wrong=lambda late: bool((late.decisions or (0,) * 6)[5])
    )
    answer = needed_lateness(subject.followed())
    assert answer.by_value is not None
    assert answer.by_value.late == Late((0, 0, 0, 0, 0, 1))
    assert answer.by_value.steps == 1


def test_a_search_that_takes_too_long_says_so() -> None:
    """Every decision is needed: what is left is not claimed to be the least."""
    count = 200
    subject = Pretended(
        lambda steps, late, slots: RACE if all(late.decisions or (0,)) else SAFE,
        late=Late((1,) * count),
        asked=count,
    )
    answer = needed_lateness(subject.followed())
    assert not answer.by_order.exact
    assert answer.runs < MOST_RUNS + 50
    assert any("did not settle it" in line for line in told_delays(answer))


@pytest.mark.parametrize(
    ("racy", "enough", "monotone", "said"),
    [
        ({1}, 2, True, "main: gone from 2 slots on, and all is clean"),
        ({1, 2, 3, 4}, None, True, "main: there at every count from 1 to 4: more slots do not end it"),
        ({1, 3}, 2, False, "main: gone at 2 slots, but there again at 3: slots are not the remedy"),
        (set(), 1, True, "main: not there at any count from 1 to 4"),
    ],
)
def test_slots(racy: set[int], enough: int | None, monotone: bool, said: str) -> None:
    """Gone from a count on, at none, or there again; with the bytes of each."""
    subject = Pretended(lambda steps, late, slots: RACE if slots is None or slots[1] in racy else SAFE)
    [sweep] = enough_slots(subject.followed())
    assert (sweep.enough, sweep.monotone) == (enough, monotone)
    assert [one.pinned for one in sweep.tried] == [64, 128, 192, 256]
    assert next(iter(told_slots([sweep]))) == said
    assert (sweep.command is not None) == (enough == 2)


def test_a_count_that_rewrites_nothing_says_nothing() -> None:
    """With as many slots as the run has steps no slot is used twice: that is not the end of the race."""
    lines = {1: RACE, 2: RACE, 3: "h2d P -> D on s\n", 4: "h2d P -> D on s\n"}
    [sweep] = enough_slots(Pretended(lambda steps, late, slots: lines[slots[1] if slots else 1]).followed())
    assert (sweep.enough, sweep.matters, sweep.command) == (None, False, None)
    told = list(told_slots([sweep]))
    assert told[0] == "main: there at every count from 1 to 2: more slots do not end it"
    assert "not put to the test" in told[-1]


def test_one_edge_is_missing() -> None:
    """The finding's own; a second buffer's race needs another."""
    two = "alloc pinned Q\nalloc device E\nhost_write Q\nh2d Q -> E on t\nhost_write Q\n"
    answer = needed_syncs(Pretended(lambda steps, late, slots: RACE + two).followed())
    assert [edge.buffers for edge in answer.missing] == [["P"]]
    assert "record an event on stream s after" in answer.missing[0].text
    assert sorted(edge.buffers for edge in answer.for_all) == [["P"], ["Q"]]
    assert answer.unmended == ()


def test_an_edge_that_others_imply_is_left_out() -> None:
    """Waiting for the second copy of a stream orders the first as well."""
    lines = "alloc pinned Q\nalloc device E\nhost_write Q\nh2d P -> D on s\nh2d Q -> E on s\n"
    answer = needed_syncs(
        Pretended(lambda steps, late, slots: lines + "host_write Q\nhost_write P\n").followed()
    )
    assert len(answer.for_all) == 1
    assert answer.for_all[0].buffers == ["Q"]


def test_two_waits_that_stand_in_for_each_other() -> None:
    """One of them can go, not both."""
    lines = SAFE.replace("sync e\n", "sync e\nsync s\n") + RACE
    answer = needed_syncs(Pretended(lambda steps, late, slots: lines).followed())
    assert [line.what for line in answer.removable] == ["event synchronisation"]
    assert [line.what for line in answer.kept] == ["stream synchronisation"]
    assert "could go, all at once, without a new race (1 line):" in list(told_syncs(answer))


def test_no_edge_ends_a_stale_operand() -> None:
    """It is ordered as it is."""
    lines = "host_write P as a\nh2d P -> D on s want D=b\nsync s\nhost_write P\n"
    answer = needed_syncs(Pretended(lambda steps, late, slots: lines).followed())
    assert (answer.missing, answer.for_all) == ((), ())
    assert [finding.kind for finding in answer.unmended] == ["stale"]
    assert "to add, for this finding: no synchronisation ends it" in list(told_syncs(answer))
