"""Labels and wants of a trace in an exported litmus program."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from racecheck.detect import Detector
from racecheck.errors import UsageError
from racecheck.litmus import judge, parse
from racecheck.litmus.export import export
from racecheck.trace import records as r

P, D, E = (0x1000, 0x1040), (0x2000, 0x2040), (0x3000, 0x3040)


def op(
    kind: str = "kernel", reads: r.Span | None = None, writes: r.Span | None = None, **more: bool
) -> r.Record:
    """Device work on one stream."""
    blocking = more.pop("blocking", False)
    node = r.Node(kind=kind, reads=(reads,) if reads else (), writes=(writes,) if writes else (), **more)
    return r.DeviceOp(thread="main", stream="s", node=node, blocking=blocking)


def label(span: r.Span, value: str) -> r.Record:
    """These bytes hold `value`."""
    return r.Label(thread="main", span=span, value=value)


def want(span: r.Span, value: str) -> r.Record:
    """The next operation needs `value` there."""
    return r.Want(thread="main", span=span, value=value)


def host_write(span: r.Span) -> r.Record:
    """The host writes."""
    return r.HostAccess(thread="main", writes=(span,))


def staged(value: str = "plan 1") -> list[r.Record]:
    """A labelled host slot is copied, and a kernel needs `plan 1` of the copy."""
    return [
        host_write(P),
        label(P, value),
        op("h2d", P, D),
        want(D, "plan 1"),
        op(reads=D, writes=E),
        label(E, "out 1"),
        want(E, "out 1"),
        op("d2h", E, P, blocking=True),
    ]


@pytest.mark.parametrize(("value", "verdict"), [("plan 1", "SAFE"), ("plan 0", "STALE")])
def test_what_is_said_comes_along_with_its_verdict(value: str, verdict: str) -> None:
    """`as` on writes, `want` on readers, short names for the values."""
    text = export(staged(value))
    lines = [line for line in text.splitlines() if " as " in line or " want " in line]
    needed, out = ("v1", "v2") if value == "plan 1" else ("v2", "v3")
    assert lines == [
        "host_write b1 as v1",
        f"kernel reads b2 writes b3 on s1 as {out} want b2={needed}",
        f"d2h b3 -> b1 on s1 order=stream want b3={out}",
    ]
    program = parse(text)
    assert (judge(program).verdict, program.expect) == (verdict, verdict)


def test_a_replay_can_want() -> None:
    """What one of its nodes reads."""
    node = r.Node(kind="kernel", reads=(D,), writes=(E,))
    capture = r.Capture(thread="main", graph="g", nodes=(node,))
    replay = r.Replay(thread="main", graph="g", stream="s")
    trace = [capture, op(writes=D), label(D, "x"), want(D, "y"), replay]
    text = export(trace)
    assert "replay g1 on s1 want b1=v2" in text
    assert judge(parse(text)).verdict == "STALE"


UNSAYABLE: dict[str, Callable[[], list[r.Record]]] = {
    "a label that does not follow the write of just its bytes": lambda: [
        host_write(P),
        label((P[0], P[0] + 8), "x"),
    ],
    "a want that the next operation does not read": lambda: [want(D, "x"), op(writes=D)],
    "a want that nothing follows": lambda: [op(writes=D), want(D, "x")],
    "a write that leaves some of its bytes as they are": lambda: [
        op(writes=D),
        label(D, "x"),
        op(writes=D, partial=True),
    ],
    "a recycled block in a trace with labels": lambda: [
        r.Alloc(thread="main", span=D, name="a", kind="device"),
        op(writes=D),
        label(D, "x"),
        r.Alloc(thread="main", span=D, name="b", kind="device", guarded=True, reuse=True),
    ],
}


@pytest.mark.parametrize("what", UNSAYABLE)
def test_what_the_language_cannot_say_is_refused(what: str) -> None:
    """One line that names the record."""
    with pytest.raises(UsageError, match=f"^record [0-9]: {what} has no litmus form; judge the trace"):
        export(UNSAYABLE[what]())


def test_a_label_after_a_blocking_kernel_is_refused() -> None:
    """The line before is the wait, which writes nothing."""
    with pytest.raises(UsageError, match="a label that does not follow"):
        export([op(writes=D, blocking=True), label(D, "x")])


def test_a_write_of_parts_without_labels_is_an_ordinary_write() -> None:
    """As before: only what is said of bytes makes a difference."""
    trace = [op(writes=D, partial=True)]
    assert "kernel writes b1 on s1" in export(trace)
    detector = Detector()
    for record in trace:
        detector.feed(record)
    assert detector.findings == []
