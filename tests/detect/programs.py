"""Short traces for tests: one letter names of buffers, one line an operation."""

from __future__ import annotations

from racecheck.detect import Detector
from racecheck.trace import records as r

SIZE = 64
_BASES = {name: 0x1000 * (index + 1) for index, name in enumerate("ABCDEFGHPQRSTUVWXYZ")}


def span(name: str, lo: int = 0, hi: int = SIZE) -> r.Span:
    """Bytes `lo` to `hi` of buffer `name`."""
    return _BASES[name] + lo, _BASES[name] + hi


class Program:
    """Builds and judges a trace."""

    def __init__(self) -> None:
        self.records: list[r.Record] = []
        self.step: int | None = None
        self._line = 0

    def _add(self, record: type[r.Record], thread: str, /, **fields: object) -> Program:
        self._line += 1
        loc = r.Loc("program.py", self._line, "program")
        self.records.append(record(thread=thread, loc=loc, mark=r.Mark(step=self.step), **fields))
        return self

    def at(self, step: int) -> Program:
        """Following records belong to `step`."""
        self.step = step
        return self

    def line(self, number: int) -> Program:
        """The next record comes from this line: a loop comes to the same lines again."""
        self._line = number - 1
        return self

    def alloc(
        self, name: str, kind: str = "pinned", *, slot: int | None = 0, thread: str = "main", **extra: object
    ) -> Program:
        """Declare buffer `name`."""
        fields = {"buffer": name, **extra}
        return self._add(r.Alloc, thread, span=span(name), name=name, kind=kind, slot=slot, **fields)

    def write(self, name: str, *where: int, thread: str = "main") -> Program:
        """The host writes."""
        return self._add(r.HostAccess, thread, writes=(span(name, *where),))

    def read(self, name: str, *where: int, thread: str = "main") -> Program:
        """The host reads."""
        return self._add(r.HostAccess, thread, reads=(span(name, *where),))

    def op(
        self,
        stream: str,
        kind: str = "kernel",
        reads: str = "",
        writes: str = "",
        *,
        thread: str = "main",
        blocking: bool = False,
        call_reads: str = "",
        any_reads: str = "",
    ) -> Program:
        """Device work that reads and writes whole buffers."""
        node = r.Node(
            kind=kind,
            name="k",
            reads=tuple(map(span, reads)),
            writes=tuple(map(span, writes)),
            call_reads=tuple(map(span, call_reads)),
            any_reads=tuple(map(span, any_reads)),
        )
        return self._add(r.DeviceOp, thread, stream=stream, node=node, blocking=blocking)

    def h2d(self, source: str, target: str, stream: str = "s", **extra: object) -> Program:
        """A pinned copy to the device."""
        return self.op(stream, "h2d", source, target, **extra)

    def record(self, event: str, stream: str = "s", thread: str = "main") -> Program:
        """Record an event."""
        return self._add(r.EventRecord, thread, event=event, stream=stream)

    def wait(self, stream: str, event: str, thread: str = "main") -> Program:
        """A stream waits for an event."""
        return self._add(r.StreamWait, thread, stream=stream, event=event)

    def sync(self, event: str, thread: str = "main", *, how: str = "sync", done: bool = True) -> Program:
        """The host waits for an event, or asks it."""
        return self._add(r.Acquire, thread, scope="event", target=event, how=how, done=done)

    def sync_stream(self, stream: str, thread: str = "main") -> Program:
        """The host waits for a stream."""
        return self._add(r.Acquire, thread, scope="stream", target=stream)

    def sync_device(self, thread: str = "main") -> Program:
        """The host waits for everything."""
        return self._add(r.Acquire, thread, scope="device")

    def signal(self, name: str, thread: str) -> Program:
        """Publish what the thread did."""
        return self._add(r.Signal, thread, name=name)

    def await_(self, name: str, thread: str) -> Program:
        """Continue after a signal."""
        return self._add(r.Await, thread, name=name)

    def free(self, name: str, stream: str | None = None, thread: str = "main") -> Program:
        """The block may be handed out again."""
        return self._add(r.Free, thread, span=span(name), stream=stream)

    def blocking(self, stream: str) -> Program:
        """Declare a stream that takes turns with the legacy one."""
        return self._add(r.StreamDeclare, "main", stream=stream, blocking=True)

    def capture(self, graph: str, *nodes: r.Node) -> Program:
        """A captured graph."""
        return self._add(r.Capture, "main", graph=graph, nodes=nodes)

    def replay(self, graph: str, stream: str = "s") -> Program:
        """Run it."""
        return self._add(r.Replay, "main", graph=graph, stream=stream)

    def label(self, name: str, value: str, *where: int, thread: str = "main") -> Program:
        """These bytes hold `value` now."""
        return self._add(r.Label, thread, span=span(name, *where), value=value)

    def want(self, name: str, value: str, *where: int, thread: str = "main") -> Program:
        """What is issued next needs `value` in these bytes."""
        return self._add(r.Want, thread, span=span(name, *where), value=value)

    def collective(self, rank: int, name: str) -> Program:
        """A rank issues a collective, on a thread of its own."""
        return self._add(r.Collective, f"rank {rank}", rank=rank, name=name)

    def judge(self) -> Detector:
        """Feed everything to a fresh detector."""
        detector = Detector()
        for record in self.records:
            detector.feed(record)
        return detector
