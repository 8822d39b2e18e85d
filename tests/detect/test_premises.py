"""Each premise of the slot theorem is found broken where it is, and held where it is not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest

import pytest
from toy_engine import COPY, RECORD, WRITE, Toy

from racecheck.detect import Detector
from racecheck.detect.premises import Premises
from racecheck.prove.certificate import certificate
from racecheck.trace import records as r


def seen(toy: Toy, told: bool = True) -> tuple[Premises, str]:
    """What the premises and the verdict of the toy's run are."""
    return judged(toy.records(), toy.run_ahead if told else None)


def judged(records: Iterable[r.Record], told: int | None = None) -> tuple[Premises, str]:
    """The same of any records."""
    detector = Detector(told)
    for record in records:
        detector.feed(record)
    return detector.premises.result(), detector.verdict


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("slots", [2, 3])
@pytest.mark.parametrize("dropped", [(), (3, 4, 6)])
def test_a_right_rotation_keeps_all(slots: int, dropped: tuple[int, ...], told: bool) -> None:
    """With as many slots as are needed or more, and plans dropped or not."""
    premises, verdict = seen(Toy(slots=slots, dropped=dropped), told)
    assert (premises.status, premises.letters, verdict) == ("held", "", "clean")
    assert (premises.slots, premises.run_ahead, premises.steps) == (slots, 1, 8)
    assert premises.assumed == (1 if told else slots - 1)
    assert premises.dropped == len(dropped)


@pytest.mark.parametrize("run_ahead", [0, 2, 3])
def test_other_run_aheads(run_ahead: int) -> None:
    """One slot more than the run-ahead is enough, one fewer is too few, and no premise is to blame."""
    enough, _ = seen(Toy(slots=run_ahead + 1, run_ahead=run_ahead))
    assert (enough.status, enough.run_ahead) == ("held", run_ahead)
    if run_ahead:
        few, verdict = seen(Toy(slots=run_ahead, run_ahead=run_ahead, steps=12))
        assert (few.status, verdict) == ("too few slots", "race")
        assert certificate(few)[0].startswith(f"certificate: none: {run_ahead} slot")


@pytest.mark.parametrize(
    ("toy", "letter", "how", "where"),
    [
        (Toy(skipped=(2,)), "a", "no-completion-wait", WRITE),
        (Toy(event="copy"), "b", "wait-covers-copy", RECORD),
        (Toy(event="before"), "c", "event-before", RECORD),
        (Toy(event="plan"), "c", "event-other-stream", RECORD),
        (Toy(stays=True), "d", "one-stays", WRITE),
        (Toy(twice=True), "d", "write-twice", WRITE),
        (Toy(dropped=(3,), advances=True), "e", "drop-advance", WRITE),
        (Toy(apart=True), "f", "shared-across-buckets", WRITE),
    ],
)
def test_a_broken_premise_is_named(toy: Toy, letter: str, how: str, where: object) -> None:
    """Its letter and no other's, the way, and the line; the theorem says that this races."""
    premises, verdict = seen(toy)
    assert [(each.letter, each.how, each.where) for each in premises.broken] == [(letter, how, where)]
    assert premises.status == "broken"
    assert verdict == "race"
    first, *_, last = certificate(premises)
    assert first.startswith(f"premise ({letter}) broken at toy.py:")
    assert last.startswith("certificate: none: ")


def test_a_kernel_that_reads_the_slot_itself() -> None:
    """Premise b: what stays in place is also read by the kernel, which no wait covers before the write."""
    premises, _ = seen(Toy(stays=True, itself=True))
    assert premises.letters == "bd"
    assert "reads buffer 1 0 itself" in premises.broken[0].what


def test_a_dropped_plan_that_nobody_waits_for() -> None:
    """Premise e's other half; with one host thread it is a buffer written twice in a step."""
    premises, verdict = seen(Toy(dropped=(3,), unfenced=True))
    assert (premises.letters, verdict) == ("d", "race")


@pytest.mark.parametrize(
    ("toy", "letter", "left"),
    [
        (
            Toy(slots=3, skipped=(2,)),
            "a",
            "certificate: none: while (a) is broken no slot count is safe with run-ahead 1",
        ),
        (
            Toy(slots=3, dropped=(3,), advances=True),
            "e",
            "certificate: 3 slots will do with run-ahead 1 all the same",
        ),
        (Toy(slots=3, event="before"), "c", "certificate: 3 slots will do with run-ahead 1 all the same"),
    ],
)
def test_a_clean_run_may_have_broken_one(toy: Toy, letter: str, left: str) -> None:
    """No race came of it in this run, and what it does to the certificate is said all the same."""
    premises, verdict = seen(toy)
    assert verdict == "clean"
    assert premises.letters == letter
    assert certificate(premises)[-1] == left


def test_waiting_for_the_own_slot_needs_no_rotation() -> None:
    """A buffer that stays where it is, and whose copies each write waits for, breaks nothing."""
    premises, _ = seen(Toy(slots=2, stays=True, own_wait=True))
    assert premises.letters == ""
    premises, _ = seen(Toy(slots=2, twice=True, own_wait=True))
    assert premises.letters == ""


def in_one_stream(toy: Toy) -> Iterator[r.Record]:
    """The toy's run with copies and kernels on one stream, so that device memory needs no slots."""
    for record in toy.records():
        known = isinstance(record, (r.DeviceOp, r.EventRecord, r.StreamWait))
        yield replace(record, stream="one") if known else record


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_waiting_for_the_own_slot_needs_no_other_wait(slots: int) -> None:
    """No step is ever waited for as a whole, and any number of slots is safe."""
    premises, verdict = judged(in_one_stream(Toy(slots=slots, own_wait=True, skipped=range(8))))
    assert (premises.letters, verdict) == ("", "clean")


def test_one_write_without_its_own_wait_needs_the_others() -> None:
    """The same without the slot's own wait: premise a, and a race."""
    premises, verdict = judged(in_one_stream(Toy(slots=2, skipped=range(8))))
    assert (premises.letters, verdict) == ("a", "race")


@pytest.mark.parametrize("told", [1, None])
@pytest.mark.parametrize("numbers", [(100, 1), (5, 3), (0, 100)])
@pytest.mark.parametrize(
    ("toy", "letters"),
    [
        (Toy(), ""),
        (Toy(dropped=(3,)), ""),
        (Toy(skipped=(2,)), "a"),
        (Toy(event="copy"), "b"),
        (Toy(event="before"), "c"),
        (Toy(stays=True), "d"),
        (Toy(dropped=(3,), advances=True), "e"),
        (Toy(apart=True), "f"),
    ],
)
def test_how_steps_are_numbered_does_not_matter(
    toy: Toy, letters: str, numbers: tuple[int, int], told: int | None
) -> None:
    """They begin anywhere and leave numbers out: steps are as far apart as there are plans between them."""
    start, by = numbers

    def renumbered() -> Iterator[r.Record]:
        for record in replace(toy, _turns={}).records():
            step = record.mark.step
            yield record if step is None else replace(record, mark=r.Mark(step=start + by * step))

    premises, _ = judged(renumbered(), told)
    assert (premises.letters, premises.slots) == (letters, 2)
    if not letters:
        assert (premises.status, premises.run_ahead) == ("held", 1)


def test_slots_that_follow_numbers_of_which_some_are_left_out() -> None:
    """Odd steps have nothing to stage: even ones all lie in slot 0, and each waits for the one before."""

    def records() -> Iterator[r.Record]:
        yield from Toy(slots=2, steps=0).records()
        for record in Toy(slots=1, run_ahead=0).records():
            step = record.mark.step
            yield record if step is None else replace(record, mark=r.Mark(step=2 * step))

    premises, verdict = judged(records(), told=1)
    assert (premises.letters, verdict) == ("", "clean")


def test_run_ahead_is_counted() -> None:
    """Two waits skipped in a row: three steps in flight, where one was assumed."""
    premises, _ = seen(Toy(slots=8, skipped=(2, 3)))
    assert (premises.run_ahead, premises.assumed) == (3, 1)
    (broken,) = premises.broken
    assert broken.what == "step 4 is planned, and no wait for step 2 has come before"


def test_a_run_ahead_that_nobody_told() -> None:
    """Waits that come, and late for so few slots: that is too few slots, and no wait that was skipped."""
    premises, verdict = seen(Toy(slots=2, run_ahead=2), told=False)
    assert (premises.status, premises.run_ahead, premises.assumed, verdict) == ("too few slots", 2, 2, "race")
    assert certificate(premises) == [
        "certificate: none: 2 slots, and run-ahead 2 takes 3; "
        "premises a-f held (run-ahead 2 observed, no plan dropped)"
    ]
    premises, _ = seen(Toy(slots=2, skipped=(2, 3, 4)), told=False)
    assert premises.letters == "a"


def test_engines_of_one_trace_are_kept_apart() -> None:
    """Steps of equal numbers, in turn: two ranks of one process, one of them wrong."""
    detector = Detector(1)
    for pair in zip_longest(Toy(engine=0).records(), Toy(engine=1, apart=True).records()):
        for record in filter(None, pair):
            detector.feed(record)
    premises = detector.premises.result()
    assert premises.letters == "f"
    assert {name[-1] for each in premises.broken for name in each.buffers} == {"1"}


@pytest.mark.parametrize("ahead", [1, 3])
def test_engines_of_one_thread_with_steps_of_their_own_are_not_accused(ahead: int) -> None:
    """A draft model's `ahead` steps, then one of the target's: how far steps are apart is not known."""

    def steps(toy: Toy) -> list[list[r.Record]]:
        """The records by step, those before the first with it."""
        found: list[list[r.Record]] = [[]]
        for record in toy.records():
            if isinstance(record, r.HostAccess) and record.mark.step == len(found):
                found.append([])
            found[-1].append(replace(record, thread="host"))
        return found

    draft, target = steps(Toy(steps=4 * ahead)), steps(Toy(engine=1, steps=4))
    turns = [[*draft[ahead * turn : ahead * (turn + 1)], target[turn]] for turn in range(4)]
    premises, verdict = judged(record for turn in turns for step in turn for record in step)
    assert (premises.letters, verdict) == ("", "clean")
    assert premises.status == ("held" if ahead == 1 else "not checked")


def test_a_second_run_begins_anew() -> None:
    """Steps that count from 0 again are no steps of the first run."""
    detector = Detector(1)
    for _ in range(2):
        for record in Toy(steps=7).records():
            detector.feed(record)
    assert detector.premises.result().letters == ""


@pytest.mark.parametrize(
    ("toy", "why"),
    [
        (Toy(steps=0), "no host write to a slot of a racecheck.staging.PinnedBuffer was recorded"),
        (Toy(marked=False), "the writes to staging buffers carry no step"),
        (Toy(steps=2), "no slot was written by two steps"),
    ],
)
def test_what_cannot_be_checked_is_not_said_to_hold(toy: Toy, why: str) -> None:
    """Without steps, slots or a second round there is nothing to check, and that is what is said."""
    premises, _ = seen(toy)
    assert premises.status == "not checked"
    (line,) = certificate(premises)
    assert line.startswith(f"certificate: not checked: {why}")


def test_lines_are_those_of_the_program() -> None:
    """The sentence names the reader's line as well."""
    premises, _ = seen(Toy(event="before"))
    assert str(COPY) in premises.broken[0].what
