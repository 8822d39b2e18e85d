"""Labels are followed through every write, and a want is held against them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import Program, span

from racecheck.detect import Detector
from racecheck.detect.intervals import Intervals
from racecheck.detect.operands import Mismatch, Operands
from racecheck.trace import records as r

REPEATABLE = settings(derandomize=True, database=None, deadline=None, max_examples=400)


def stale(program: Program) -> str:
    """What the one stale operand of the program is told as; "" if there is none."""
    findings = [finding for finding in program.judge().findings if finding.kind == "stale"]
    assert len(findings) <= 1
    return findings[0].missing if findings else ""


def staged() -> Program:
    """P is filled, called `plan 1` and copied to D."""
    return Program().alloc("P").alloc("D", "device").at(1).write("P").label("P", "plan 1").h2d("P", "D")


def test_a_copy_carries_the_label():
    """The consumer of the device twin finds what the host said of the host slot."""
    assert stale(staged().want("D", "plan 1")) == ""


def test_another_label_is_found():
    """A plan made for another step: both names, who wrote it and who needs it."""
    detector = staged().at(2).want("D", "plan 2").op("s", reads="D").judge()
    assert detector.verdict == "stale"
    (finding,) = detector.findings
    assert (finding.kind, finding.buffer, finding.slot, finding.offset) == ("stale", "D", 0, (0, 64))
    assert finding.missing == "the consumer needs plan 2 and finds plan 1"
    assert str(finding.first) == "h2d copy writes at program.py:5 (stream s, step 1)"
    assert str(finding.second) == "consumer at program.py:6 (thread main, step 2)"
    assert finding.reasons == ["plan 1 was said of these bytes at program.py:4 in step 1"]
    assert finding.rule == "stale/consumer-vs-h2d-write"


@pytest.mark.parametrize("kind", ["h2d", "d2h", "d2d"])
def test_copies_of_every_direction_carry(kind):
    """Also through a chain of two."""
    program = Program().label("P", "x").op("s", kind, "P", "Q").op("s", kind, "Q", "R").want("R", "x")
    assert stale(program) == ""


@pytest.mark.parametrize("how", ["reads", "any_reads", "call_reads"])
def test_it_does_not_matter_when_a_copy_reads(how):
    """In the stream's order, at any time, or during the call: labels follow the program."""
    program = Program().label("P", "x").op("s", "h2d", writes="D", **{how: "P"}).want("D", "x")
    assert stale(program) == ""


OVERWRITES = {
    "host": lambda program: program.write("D"),
    "kernel": lambda program: program.op("s", writes="D"),
    "host function": lambda program: program.op("s", "hostfn", writes="D"),
    "copy of unlabelled bytes": lambda program: program.h2d("Q", "D"),
    "free": lambda program: program.free("D"),
    "free in a stream's order": lambda program: program.free("D", "s"),
    "fresh object": lambda program: program.alloc("D", "device", buffer=None),
    "recycled object": lambda program: program.alloc("D", "device", buffer=None, reuse=True),
    "replay": lambda program: program.capture("g", r.Node(kind="kernel", writes=(span("D"),))).replay("g"),
}


@pytest.mark.parametrize("how", OVERWRITES)
def test_any_other_write_takes_the_label_away(how):
    """What lies there then is told by what it was written over; the writer's line is in the story."""
    program = OVERWRITES[how](Program().alloc("D", "device").at(1).label("D", "x").at(2))
    (finding,) = [f for f in program.want("D", "x").judge().findings if f.kind == "stale"]
    assert finding.missing == "the consumer needs x and finds what was written over x"
    (reason,) = finding.reasons
    assert reason.startswith("x was said of these bytes at program.py:2 in step 1; they were written over at")
    assert str(finding.first.loc) == reason.split()[-4]


def test_a_name_for_known_bytes_takes_nothing_away():
    """A staging buffer names its slots again for a late listener."""
    assert stale(Program().label("D", "x").alloc("D", "device", reuse=True).want("D", "x")) == ""


def test_nothing_was_ever_said():
    """The consumer needs something in particular, and nobody said it was there."""
    program = Program().alloc("D", "device").op("s", writes="D").want("D", "x")
    assert stale(program) == "the consumer needs x and finds nothing that anybody labelled"
    (finding,) = program.judge().findings
    assert finding.first.role == "kernel-write"


def test_nobody_wrote_at_all():
    """Then the allocation is what there is to name."""
    (finding,) = Program().alloc("D", "device").want("D", "x").judge().findings
    assert (finding.first.role, finding.first.loc.line) == ("alloc", 1)


def test_a_write_that_may_leave_bytes_alone_takes_nothing_away():
    """Which rows it touched the program must say; of the last one to touch them the label tells."""
    node = r.Node(kind="kernel", name="index_copy_", writes=(span("D"),), partial=True)
    program = Program().alloc("D", "device").label("D", "x").capture("g", node).replay("g")
    assert stale(program.want("D", "x")) == ""
    (finding,) = program.want("D", "y").judge().findings
    assert finding.first.role == "label"


def test_labels_of_rows():
    """Bytes wanted must all hold the value; the wrong ones are named."""
    program = Program().alloc("D", "device").label("D", "a", 0, 16).label("D", "b", 16, 32)
    assert stale(program.want("D", "a", 0, 16).want("D", "b", 20, 30)) == ""
    (finding,) = program.want("D", "a", 8, 40).judge().findings
    assert finding.missing == "the consumer needs a and finds b and nothing that anybody labelled"
    assert finding.offset == (16, 40)


def test_a_copy_of_another_size_carries_one_label_or_none():
    """It changes the type or repeats: bytes no longer correspond."""

    def copied(program: Program) -> Program:
        node = r.Node(kind="h2d", reads=(span("P", 0, 32),), writes=(span("D"),))
        return program.capture("g", node).replay("g").want("D", "x")

    assert stale(copied(Program().label("P", "x"))) == ""
    assert stale(copied(Program().label("P", "x", 0, 16))) != ""
    assert stale(copied(Program().label("P", "x").label("P", "y", 0, 1))) != ""


def test_a_kernel_that_copies_carries_one_label_or_none():
    """PyTorch's strided copies and conversions are kernels."""

    def copied(program: Program, name: str) -> Program:
        node = r.Node(kind="kernel", name=name, reads=(span("P"),), writes=(span("D"),))
        return program.capture("g", node).replay("g").want("D", "x")

    assert stale(copied(Program().label("P", "x"), "clone")) == ""
    assert stale(copied(Program().label("P", "x"), "add")) != ""
    assert stale(copied(Program().label("P", "x").label("P", "y", 0, 1), "clone")) != ""


def test_rows_of_several_ranges_arrive_at_several_ranges():
    """The n-th byte goes to the n-th byte, however both sides are cut."""
    source = (span("P", 0, 8), span("P", 16, 24))
    target = (span("D", 0, 4), span("D", 8, 20))
    program = Program().label("P", "a", 0, 8).label("P", "b", 16, 24)
    program.capture("g", r.Node(kind="d2d", reads=source, writes=target)).replay("g")
    program.want("D", "a", 0, 4).want("D", "a", 8, 12).want("D", "b", 12, 20)
    assert stale(program) == ""


def test_a_graph_captured_before_the_first_label_counts():
    """Its nodes run at the replay."""
    node = r.Node(kind="d2d", reads=(span("P"),), writes=(span("D"),))
    assert stale(Program().capture("g", node).label("P", "x").replay("g").want("D", "x")) == ""


def test_a_replay_follows_what_it_labels_itself():
    """Bytes that its own copy gives a label, also one that came after an earlier replay, are written over."""
    copy = r.Node(kind="d2d", reads=(span("P"),), writes=(span("D"),))
    over = r.Node(kind="kernel", writes=(span("D"),))
    program = Program().label("E", "other").capture("g", copy, over).replay("g").label("P", "x").replay("g")
    assert "what was written over x" in stale(program.want("D", "x"))
    program = Program().label("E", "other").capture("g", over, copy).replay("g").label("P", "x").replay("g")
    assert stale(program.want("D", "x")) == ""


def test_one_finding_for_a_line_that_errs_again_and_again():
    """Every step wants another plan; the story is one."""
    program = Program().alloc("D", "device").line(10).label("D", "plan 0")
    for step in range(1, 5):
        program.line(11).at(step).want("D", f"plan {step}")
    (finding,) = program.judge().findings
    assert finding.count == 4


def test_a_race_comes_first_and_makes_its_consequence_uncertain():
    """Both are kept; the stale operand may come from the race."""
    program = staged().at(2).write("P").want("P", "plan 1")
    detector = program.judge()
    assert detector.verdict == "race"
    assert [(finding.kind, finding.certain) for finding in detector.findings] == [
        ("race", True),
        ("stale", False),
    ]


def test_a_race_met_later_still_comes_first():
    """Findings are in the order of verdicts."""
    program = Program().alloc("P").alloc("D", "device").want("D", "x").write("P").h2d("P", "D").write("P")
    assert [finding.kind for finding in program.judge().findings] == ["stale", "race"][::-1]


def test_labels_change_no_race_and_no_repair():
    """What is said of bytes orders nothing."""
    from racecheck.detect.repair import check_repairs

    def program(*, said: bool) -> Program:
        out = Program().alloc("P").alloc("D", "device")
        for step in range(3):
            out.line(3).at(step).write("P")
            out.line(4).label("P", f"plan {step}") if said else out
            out.line(5).h2d("P", "D")
            out.line(6).want("D", f"plan {step}") if said else out
        return out

    plain, said = program(said=False), program(said=True)
    races = [next(iter(p.judge().findings)) for p in (plain, said)]
    assert races[0].fingerprint == races[1].fingerprint
    assert check_repairs(plain.records, races[0]) == check_repairs(said.records, races[1])
    assert {repair.kind for repair in check_repairs(said.records, races[1])} >= {"wait", "temporary"}


def test_without_labels_nothing_is_followed():
    """The handlers of a detector that met no label are those it began with."""
    detector = Detector()
    before = dict(detector._handlers)
    for record in staged().records:
        if not isinstance(record, r.Label):
            detector.feed(record)
    assert detector._handlers == before


# -- against a model that goes byte by byte ------------------------------------------------------

SIZE = 24
VALUES = st.sampled_from("abc")
RANGES = (
    st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(sorted).map(tuple).filter(lambda s: s[0] < s[1])
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("label"), RANGES, VALUES),
        st.tuples(st.just("want"), RANGES, VALUES),
        st.tuples(st.just("write"), RANGES, st.booleans()),
        st.tuples(
            st.just("copy"),
            st.lists(RANGES, min_size=1, max_size=2),
            st.lists(RANGES, min_size=1, max_size=2),
        ),
    ),
    max_size=20,
)


def disjoint(spans):
    """The spans that overlap none before them."""
    kept = []
    for lo, hi in spans:
        if all(hi <= a or b <= lo for a, b in kept):
            kept.append((lo, hi))
    return tuple(kept)


class Model:
    """A byte holds a value, a remark that it was written over, or nothing."""

    def __init__(self) -> None:
        self.bytes: list[tuple[str, bool] | None] = [None] * SIZE  # value, and is it still there?

    def write(self, spans) -> None:
        """Labels of these bytes are gone."""
        for lo, hi in spans:
            for at in range(lo, hi):
                old = self.bytes[at]
                self.bytes[at] = None if old is None else (old[0], False)

    def copy(self, sources, targets) -> None:
        """Byte for byte, or the one label of all of the source."""
        values = [self.bytes[at] for lo, hi in sources for at in range(lo, hi)]
        places = [at for lo, hi in targets for at in range(lo, hi)]
        self.write(targets)
        if len(values) != len(places):
            one = set(values)
            values = list(one) * len(places) if len(one) == 1 and values[0] and values[0][1] else []
        for at, value in zip(places, values, strict=False):
            if value is not None:
                self.bytes[at] = value

    def wrong(self, lo: int, hi: int, value: str) -> list[int]:
        """The bytes that do not hold `value`."""
        return [at for at in range(lo, hi) if self.bytes[at] != (value, True)]


@REPEATABLE
@given(STEPS)
def test_operands_agree_with_a_model_of_single_bytes(steps):
    """The same wants are not met, at the same bytes."""
    found: list[Mismatch] = []
    operands, model = Operands(found.append, {}.__getitem__), Model()
    for step in steps:
        record: r.Record
        match step:
            case ("label", where, value):
                record = r.Label(thread="main", span=where, value=value)
                model.bytes[where[0] : where[1]] = [(value, True)] * (where[1] - where[0])
            case ("want", where, value):
                record = r.Want(thread="main", span=where, value=value)
            case ("write", where, partial):
                node = r.Node(kind="kernel", writes=(where,), partial=partial)
                record = r.DeviceOp(thread="main", stream="s", node=node)
                model.write(() if partial else (where,))
            case ("copy", sources, targets):
                sources, targets = disjoint(sources), disjoint(targets)
                node = r.Node(kind="d2d", reads=sources, writes=targets)
                record = r.DeviceOp(thread="main", stream="s", node=node)
                model.copy(sources, targets)
        found.clear()
        operands.handlers[type(record)](record)
        wrong = model.wrong(*where, value) if isinstance(record, r.Want) else []
        assert [mismatch.span for mismatch in found] == ([(wrong[0], wrong[-1] + 1)] if wrong else [])


@REPEATABLE
@given(st.lists(st.tuples(RANGES, st.sampled_from("ab")), max_size=20), RANGES)
def test_intervals_agree_with_an_array(puts, where):
    """Disjoint, sorted, joined where neighbours are the same, and true for every byte."""
    intervals: Intervals[str] = Intervals()
    array: list[str | None] = [None] * SIZE
    for (lo, hi), value in puts:
        intervals.put((lo, hi), value)
        array[lo:hi] = [value] * (hi - lo)
    everything = intervals.read((0, SIZE))
    assert len(everything) == len(intervals)
    assert all(a[1] <= b[0] and not (a[1] == b[0] and a[2] == b[2]) for a, b in pairwise(everything))
    for read in (everything, intervals.read(where)):
        assert all(array[at] == value for lo, hi, value in read for at in range(lo, hi))
    assert sum(hi - lo for lo, hi, _ in everything) == sum(value is not None for value in array)
