"""Where gates stand, and that no host wait of a program is behind the one that is shut."""

from __future__ import annotations

from pathlib import Path

import pytest

from racecheck.litmus import load, parse
from racecheck.litmus import program as p
from racecheck.litmus.behind import Behind
from racecheck.litmus.expressible import obstacle
from racecheck.litmus.gates import hold_plans, race_plans

COLLECTION = Path(__file__).parents[2] / "scenarios" / "litmus"
FILES = {path.stem: path for path in sorted(COLLECTION.glob("*.litmus"))}
HEAD = "alloc pinned P / alloc device D / "


def program(short: str, expect: str = "RACE") -> p.Program:
    """The program whose lines are separated by " / " in `short`; its first line is line 2."""
    return parse(f"# expect: {expect}\n" + short.replace(" / ", "\n") + "\n")


@pytest.mark.parametrize(
    ("body", "plan"),
    [
        (f"{HEAD}h2d P -> D on s / host_write P", "line 4 held until line 5 was done"),
        (f"{HEAD}kernel writes D on s / d2h D -> P on s / host_read P", "line 5 held until line 6 was done"),
        ("alloc device D / kernel reads D on s / kernel writes D on t", "line 3 held until line 4 was done"),
        (
            f"{HEAD}h2d P -> D on s / record e on t / sync e / host_write P",
            "line 4 held until line 7 was done",
        ),
        ("alloc device D / kernel reads D on s / free D on t", "line 3 held until line 4 was done"),
        ("alloc pageable P / [a] host_write P / [b] host_read P", "line 4 before its turn"),
    ],
)
def test_of_two_racing_accesses_the_first_is_held_until_the_second_is_done(body, plan):
    """By its line; accesses of two host threads change places instead."""
    assert str(race_plans(program(body))[0][0]) == plan


def test_a_race_that_no_gate_forces_says_why():
    """The host waits for the first access in another thread, between the two."""
    racing = program(f"{HEAD}[a] h2d P -> D on s / [a] sync s / [b] d2h D -> P on t")
    plans, reasons = race_plans(racing)
    assert plans == []
    assert reasons == ["line 4 and line 6: the host waits for the first in line 5"]


@pytest.mark.parametrize(
    ("body", "opened"),
    [
        (f"{HEAD}h2d P -> D on s / sync s", "line 5"),
        (f"{HEAD}h2d P -> D on s / sync t", "the end"),
        (f"{HEAD}h2d P -> D on s / sync device", "line 5"),
        (f"{HEAD}h2d P -> D on s / record e on s / wait e on t / sync t", "line 7"),
        (f"{HEAD}h2d P -> D on s / wait_stream t <- s / record e on t / sync e", "line 7"),
        (f"{HEAD}record e on s / h2d P -> D on s / sync e", "the end"),
        (f"{HEAD}h2d P -> D on s / record e on s / query e -> pending / query e -> done", "line 7"),
        (f"{HEAD}h2d P -> D on s / graph g {{ kernel reads D }}", "line 5"),
        ("alloc pageable P / alloc device D / kernel writes D on s / d2h D -> P on s", "line 5"),
    ],
)
def test_a_gate_is_open_before_the_first_wait_behind_it(body, opened):
    """Through events and streams; what was recorded before the gate is not behind it."""
    assert str(hold_plans(program(body, "SAFE"))[0]).endswith(f"held until {opened}")


def test_a_copy_that_waits_in_its_call_is_not_held():
    """A gate in front of it would never open."""
    waiting = program("alloc pageable P / alloc device D / d2h D -> P on s", "SAFE")
    assert [plan.held for plan in hold_plans(waiting)] == [None]
    assert str(hold_plans(waiting)[0]) == "nothing held"


@pytest.mark.parametrize("name", [name for name, path in FILES.items() if not obstacle(load(path))])
def test_every_program_of_the_collection_has_a_plan(name):
    """Every race can be forced, and everything else be held."""
    loaded = load(FILES[name])
    plans, _ = race_plans(loaded) if loaded.expect == "RACE" else (hold_plans(loaded), [])
    assert plans


def test_an_event_recorded_elsewhere_is_not_behind_the_gate_any_more():
    """The latest record counts."""
    behind = Behind(program("alloc device D / record e on s / record e on t / sync e"))
    behind.hold("s")
    behind.pass_by(p.EventOp(line=1, op="record", event="e", stream="s"))
    assert behind.blocks(p.Sync(line=2, target="e"))
    behind.pass_by(p.EventOp(line=3, op="record", event="e", stream="t"))
    assert not behind.blocks(p.Sync(line=4, target="e"))
