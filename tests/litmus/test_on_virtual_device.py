"""The litmus programs as PyTorch code on the virtual device: what every legal schedule of them shows."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from generate import programs
from hypothesis import HealthCheck, given, settings
from oracle_values import _Run

import racecheck
from racecheck.detect import Detector
from racecheck.errors import UnsupportedOperation
from racecheck.litmus import judge, load, parse
from racecheck.litmus import program as p
from racecheck.litmus.device_ops import digits, spread, value_of
from racecheck.litmus.expressible import UNTRACED, obstacle, untraced
from racecheck.litmus.schedules import Shown, differences, in_program_order, listings, show
from racecheck.litmus.torch_program import run
from racecheck.trace import subscribe
from racecheck.virtual.events import Event
from racecheck.virtual.machine import Machine

COLLECTION = Path(__file__).parents[2] / "scenarios" / "litmus"
FILES = {path.stem: path for path in sorted(COLLECTION.glob("*.litmus"))}

RANKS = "collectives: one process has no other ranks"
BATCH = "order=stream: PyTorch has no copy that reads pageable memory so"
LATE_D2H = "order=stream: PyTorch's copy to pageable memory returns when it is done"
#: What PyTorch cannot say, with the reason; every other program of the collection is run.
SKIPPED = {
    **{f"ranks-diverge-0{n}-{twin}": RANKS for n in (1, 3, 5) for twin in ("broken", "fixed")},
    "host-block-recycled-05-broken": BATCH,
    "host-block-recycled-05-fixed": BATCH,
    "pageable-01-broken": LATE_D2H,
    "pageable-05-broken": "device work on pageable memory: it reaches device and pinned memory only",
    "pageable-07-broken": LATE_D2H,
}
RUN = sorted(set(FILES) - set(SKIPPED))
#: Their races show wrong bytes, but are on pageable memory only, which no trace of a device has.
UNSEEN = {"deferred-consumer-01-broken", "deferred-consumer-05-broken"}


def program(short: str, expect: str = "SAFE") -> p.Program:
    """The program whose lines are separated by " / " in `short`."""
    return parse(f"# expect: {expect}\n" + short.replace(" / ", "\n") + "\n")


@cache
def shown(name: str) -> Shown:
    """All schedules of a program of the collection."""
    return show(load(FILES[name]))


def audited(loaded: p.Program, lag: str) -> str:
    """The detector's verdict on the trace of a run."""
    detector = Detector()
    with racecheck.virtual_cuda(lag), subscribe(detector.feed):
        run(loaded)
    return detector.verdict


def test_what_pytorch_cannot_say_is_listed():
    """With its reason; nothing is left out silently."""
    reasons = {name: obstacle(load(path)) for name, path in FILES.items()}
    assert {name: reason for name, reason in reasons.items() if reason} == SKIPPED
    with pytest.raises(
        UnsupportedOperation, match=r"ranks-diverge.*cannot be written in PyTorch: collectives"
    ):
        show(load(FILES["ranks-diverge-01-broken"]))


@pytest.mark.parametrize("name", RUN)
def test_schedules_show_wrong_bytes_exactly_if_the_program_races(name):
    """Of all schedules, enumerated: each race of the collection has a value to see, and shows it."""
    loaded, found = load(FILES[name]), shown(name)
    assert found.complete
    assert found.right is not None
    assert bool(found.wrong) == (loaded.expect == "RACE")


@pytest.mark.parametrize("name", RUN)
def test_the_trace_of_a_run_has_the_verdict_of_the_program(name):
    """Whatever the lag; a program with a query is run as listed."""
    loaded = load(FILES[name])
    asks = any(isinstance(s, p.Sync) and s.outcome for s in loaded.statements)
    for lag in (shown(name).right.lag,) if asks else ("latest", "eager"):
        race = audited(loaded, lag) == "race"
        assert race == (loaded.expect == "RACE" and name not in UNSEEN)


def test_races_that_no_trace_has_are_listed():
    """They are those of host threads on pageable memory."""
    for name in UNSEEN:
        loaded = load(FILES[name])
        assert untraced(loaded) == UNTRACED
        assert {s.kind for s in loaded.statements if isinstance(s, p.Alloc)} == {"pageable"}


@pytest.mark.parametrize("name", ["h2d-source-rewritten-01-broken", "d2h-read-early-01-broken"])
def test_a_lag_reproduces_what_it_showed(name):
    """The same consumers, and with the right one none."""
    loaded, found = load(FILES[name]), shown(name)
    expected = in_program_order(loaded)
    for schedule in (found.right, *found.wrong):
        with racecheck.virtual_cuda(schedule.lag):
            assert differences(expected, run(loaded)) == schedule.differences


@pytest.mark.parametrize("name", RUN)
def test_program_order_leaves_the_values_that_the_language_says(name):
    """Buffers that hold one named value in the end, by an interpreter that knows nothing of devices."""
    loaded = load(FILES[name])
    model = _Run(loaded)
    list(model.stale())
    left = dict(in_program_order(loaded))
    size = 16 * (max((ref.hi or 0 for s in loaded.statements for ref in _refs(s)), default=0) // 16 + 1)
    for buffer, block in model.names.items():
        values = set(model.memory[block])
        if len(values) == 1 and None not in values and f"{buffer} in the end" in left:
            expected = digits(spread(value_of("value", *values), size))
            assert left[f"{buffer} in the end"] == expected


def _refs(statement: p.Statement) -> list[p.Ref]:
    return [
        getattr(statement, "ref", p.Ref("")),
        *getattr(statement, "reads", ()),
        *getattr(statement, "writes", ()),
    ]


# -- the rules of a run --------------------------------------------------------------------------


def test_host_threads_run_in_every_order_that_hand_overs_allow():
    """Accesses of the CPU move, calls stay as listed, and a hand-over holds."""
    racing = program("alloc pageable P / [a] host_write P / [b] host_read P")
    assert len(list(listings(racing))) == 2
    assert {schedule.lines for schedule in show(racing).wrong} == {(2, 4, 3)}
    handed = program("alloc pageable P / [a] host_write P / [a] signal x / [b] await x / [b] host_read P")
    assert len(list(listings(handed))) == 1
    issued = program("alloc device D / [a] kernel writes D on s0 / [b] kernel reads D on s0")
    assert len(list(listings(issued))) == 1


def test_a_query_that_is_answered_otherwise_is_another_execution():
    """Pending and then done is one of the schedules; pending without any work is none of them."""
    body = "alloc pinned P / alloc device D / h2d P -> D on s0 / record e on s0 / query e -> "
    assert show(program(f"{body}pending / query e -> done / host_write P")).wrong == ()
    assert show(program(f"{body}pending / host_write P")).wrong
    impossible = show(program("query e -> pending"))
    assert impossible.right is None
    assert str(impossible) == "1 schedule; none answers the queries as listed"


def test_a_limit_is_said():
    """It cuts the enumeration short, also between two orders of the host's threads."""
    loaded = load(FILES["safe-07"])
    assert not show(loaded, limit=3).complete
    assert str(show(loaded, limit=3)) == "the first 3 schedules, one outcome"
    racing = program("alloc pageable P / [a] host_write P / [b] host_read P")
    assert not show(racing, limit=1).complete


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("stream s blocking", "non-blocking"),
        ("alloc device D / host_read D", "host access to device memory"),
        ("alloc device D / alloc device E / h2d D -> E on s", "memory of another kind"),
        ("alloc pinned P / alloc device D / h2d P -> D on s order=call", "order=call"),
        ("alloc pageable P / alloc device D / graph g { h2d P -> D }", "pageable side"),
        ("alloc device D / d2d D[0:8] -> D[4:12] on s", "overlapping"),
        ("alloc device D / free D / alloc device D", "allocated twice"),
        ("alloc device D / alloc pinned E aliases D", "another kind"),
        ("alloc device D / free D on s / alloc device E aliases D", "at once"),
        ("alloc device D / alloc device E aliases D after uses", "nobody gave that back"),
        ("alloc device D / release D / kernel reads D on s", "used after"),
        ("alloc pinned P / free P on s", "freed in stream order"),
        ("alloc mapped P / kernel reads P on s / release P", "pinned pool"),
        ("alloc device D / alloc device E aliases D / free D on s / free E on t", "used after"),
    ],
)
def test_each_obstacle_is_named(body, reason):
    """In one line."""
    assert reason in (obstacle(program(body)) or "")


# -- the comparison must be able to fail ---------------------------------------------------------


def nothing(self, *_):
    """A call that does not wait."""


@pytest.mark.parametrize(
    ("call", "name"), [("synchronize", "d2h-read-early-01-fixed"), ("wait", "cross-stream-05-fixed")]
)
def test_a_device_that_does_not_wait_shows_wrong_bytes(monkeypatch, call, name):
    """Event by event: safe programs are told from racing ones by the device's own rules."""
    monkeypatch.setattr(Event, call, nothing)
    assert show(load(FILES[name])).wrong


def test_a_trace_that_says_nothing_of_waits_has_a_race(monkeypatch):
    """The verdict on a safe program rests on the records of its own run."""
    loaded, honest = load(FILES["d2h-read-early-01-fixed"]), Machine.tell
    assert audited(loaded, "latest") != "race"

    def silent(self, record, /, **fields):
        if fields.get("scope") != "event":
            honest(self, record, **fields)

    monkeypatch.setattr(Machine, "tell", silent)
    assert audited(loaded, "latest") == "race"


# -- generated programs --------------------------------------------------------------------------

REPEATABLE = settings(derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))


@settings(REPEATABLE, max_examples=40)
@given(programs())
def test_generated_programs_show_no_more_than_their_verdict(text):
    """No wrong bytes without a race, and the same races in the trace of the run."""
    lines = [
        line for line in text.split("\n") if not line.endswith(" blocking") and not line.startswith("rank")
    ]
    generated = parse("\n".join(lines))
    if obstacle(generated) is not None:
        return
    found, races = show(generated, limit=100), judge(generated).verdict == "RACE"
    assert races or not found.wrong
    if found.right is not None and untraced(generated) is None:
        assert (audited(generated, found.right.lag) == "race") == races
