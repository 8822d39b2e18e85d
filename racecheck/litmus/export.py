"""From a trace back to a litmus program, where the language can say it: a race to paste into a review.

Names become short (b1, s1, e1, g1, x1), addresses become buffers and ranges. What the language has no words
for is refused with the record's place.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path

from racecheck.detect import Detector
from racecheck.errors import UsageError
from racecheck.litmus.said import Said, Unsayable
from racecheck.trace import records as r

_EXPECT = {"race": "RACE", "stale": "STALE", "hang": "HANG"}


def export(trace: Sequence[r.Record], title: str = "exported from a trace", path: Path | None = None) -> str:
    """`trace` as the text of a litmus program with the verdict racecheck gives it.

    `path` is the trace file it was read from, for complaints.

    Raises:
        UsageError: a record that the language cannot say.
    """
    detector = Detector()
    for record in trace:
        detector.feed(record)
    lines = [f"# title: {title}", "# source: own", f"# expect: {_EXPECT.get(detector.verdict, 'SAFE')}"]
    writer = _Writer(trace)
    for number, record in enumerate(trace, 1):
        try:
            body = list(writer.lines(record, lines))
            if number == len(trace):
                writer.said.end()
        except Unsayable as error:
            raise UsageError(_complaint(error, record, number, path)) from None
        plain = record.thread == "main" or isinstance(record, r.Collective)
        prefix = "" if plain else f"[{writer.thread(record.thread)}] "
        lines += [prefix + line for line in body]
    return "\n".join(lines) + "\n"


def _complaint(error: Unsayable, record: r.Record, number: int, path: Path | None) -> str:
    """What has no form, made where, and what can be done instead."""
    where = f"record {number}" if path is None else f"{path}:{number + 1}"  # after the format line
    known = record.loc != r.NOWHERE
    made, without = (f", made at {record.loc},", record.loc) if known else ("", "it")
    return (
        f"{where}: {error}{made} has no litmus form; judge the trace itself (racecheck check), "
        f"or record one without {without}"
    )


class _Writer:
    def __init__(self, trace: Sequence[r.Record]) -> None:
        self._names: dict[tuple[str, Hashable], str] = {}
        self._counts: dict[str, int] = {}
        self._buffers: list[tuple[int, int, str, str]] = []  # span, name and kind, newest last
        self._undeclared = _components(trace)
        self._recorded: set[Hashable] = set()
        self._signals: dict[Hashable, str] = {}
        self._pending: list[str] = []
        self.said = Said(trace, self._ref, self._name)

    def lines(self, record: r.Record, before: list[str]) -> Iterator[str]:
        """The operations that say `record`; allocations they need come first.

        A label adds a word to the last line of those `before`.
        """
        if isinstance(record, r.Label):
            self.said.label(record, before)
        if isinstance(record, r.Want):
            self.said.want(record)
        body = list(self._record(record))
        self.said.add(record, body)
        yield from self._pending
        self._pending = []
        yield from body

    def thread(self, name: str) -> str:
        """A host thread's name in the program."""
        return re.sub(r"\W", "_", name) if name.isascii() else self._name("t", name)

    def _record(self, record: r.Record) -> Iterator[str]:
        match record:
            case r.HostAccess(reads=reads, writes=writes):
                yield from (f"host_read {self._ref(span)}" for span in reads)
                yield from (f"host_write {self._ref(span)}" for span in writes)
            case r.DeviceOp():
                yield from self._work(record)
            case r.StreamDeclare(stream=stream, blocking=True):
                yield f"stream {self._stream(stream)} blocking"
            case r.EventRecord(event=event, stream=stream):
                self._recorded.add(event)
                yield f"record {self._name('e', event)} on {self._stream(stream)}"
            case r.StreamWait(event=event, stream=stream):
                yield f"wait {self._name('e', event)} on {self._stream(stream)}"
            case r.Acquire():
                yield from self._acquire(record)
            case r.Signal(name=name):
                self._signals[name] = self._name("x", ("signal", len(self._names), name))
                yield f"signal {self._signals[name]}"
            case r.Await(name=name) if name in self._signals:
                yield f"await {self._signals[name]}"
            case r.Alloc():
                yield from self._alloc(record)
            case r.Free(span=span, stream=stream):
                yield f"free {self._ref(span)}" + ("" if stream is None else f" on {self._stream(stream)}")
            case r.Capture(after=after) if after:
                raise Unsayable("a graph with branches")
            case r.Capture(graph=graph, nodes=nodes):
                yield f"graph {self._name('g', graph)} {{ {' ; '.join(map(self._captured, nodes))} }}"
            case r.Replay(graph=graph, stream=stream):
                yield f"replay {self._name('g', graph)} on {self._stream(stream)}"
            case r.Collective(rank=rank, name=name):
                yield f"rank{rank}: coll {self._name('c', name)}"
            case r.Stale():
                raise Unsayable("a stale operand")

    def _work(self, record: r.DeviceOp) -> Iterator[str]:
        node, stream = record.node, self._stream(record.stream)
        order = ""
        reads = node.reads
        if node.any_reads:
            if len(node.any_reads) != 1 or node.reads or node.kind not in ("h2d", "d2h", "d2d"):
                raise Unsayable("work that reads several places at any time")
            reads, order = node.any_reads, " order=any"
        if node.call_reads:
            yield from (f"host_read {self._ref(span)}" for span in node.call_reads)
        if node.kind in ("h2d", "d2h", "d2d") and len(reads) == 1 == len(node.writes):
            yield f"{node.kind} {self._copy(reads[0], node.writes[0])} on {stream}{order or ' order=stream'}"
        elif order:
            raise Unsayable("work that reads at any time and is no copy")
        else:
            yield f"{self._kernel(node, reads)} on {stream}"
        if record.blocking:
            yield f"sync {stream}"

    def _captured(self, node: r.Node) -> str:
        for reads, order in ((node.reads, "stream"), (node.call_reads, "call"), (node.any_reads, "any")):
            alone = reads and sum(map(len, (node.reads, node.call_reads, node.any_reads))) == 1
            if node.kind in ("h2d", "d2h", "d2d") and alone and len(node.writes) == 1:
                shown = "" if node.waited else f" order={order}"
                return f"{node.kind} {self._copy(reads[0], node.writes[0])}{shown}"
        if node.call_reads or node.any_reads or node.waited:
            raise Unsayable("captured work that reads out of order and is no copy")
        return self._kernel(node, node.reads)

    def _copy(self, source: r.Span, target: r.Span) -> str:
        return f"{self._ref(source)} -> {self._ref(target)}"

    def _kernel(self, node: r.Node, reads: Iterable[r.Span]) -> str:
        words = ["hostfn" if node.kind == "hostfn" else "kernel"]
        for verb, spans in (("reads", reads), ("writes", node.writes)):
            refs = ", ".join(self._ref(span) for span in spans)
            words += [f"{verb} {refs}"] if refs else []
        return " ".join(words)

    def _acquire(self, record: r.Acquire) -> Iterator[str]:
        if record.scope == "device":
            if record.done:
                yield "sync device"
            return
        known = record.scope == "stream" or record.target in self._recorded
        if not known:
            return  # an event that was never recorded orders nothing
        name = self._stream(record.target) if record.scope == "stream" else self._name("e", record.target)
        if record.how == "query":
            yield f"query {name} -> {'done' if record.done else 'pending'}"
        else:
            yield f"sync {name}"

    # -- memory --------------------------------------------------------------------------------

    def _alloc(self, record: r.Alloc) -> Iterator[str]:
        lo, hi = record.span
        old = next((entry for entry in reversed(self._buffers) if entry[0] < hi and lo < entry[1]), None)
        if record.reuse and not record.guarded and old is not None:
            return  # another name for bytes that are known already
        name = self._name("b", ("alloc", len(self._names)))
        line = f"alloc {record.kind} {name}"
        if record.guarded or record.reuse:
            if old is not None and (old[0], old[1]) != (lo, hi):
                raise Unsayable("a block recycled in another size")
            if old is not None:
                line += f" aliases {old[2]}" + (" after uses" if record.guarded else "")
        self._buffers.append((lo, hi, name, record.kind))
        yield line

    def _ref(self, span: r.Span) -> str:
        for lo, hi, name, _ in reversed(self._buffers):
            if lo < span[1] and span[0] < hi:
                if not (lo <= span[0] and span[1] <= hi):
                    raise Unsayable("an access across two allocations")
                return name if span == (lo, hi) else f"{name}[{span[0] - lo}:{span[1] - lo}]"
        lo, hi, kind = next(part for part in self._undeclared if part[0] <= span[0] and span[1] <= part[1])
        name = self._name("b", ("undeclared", lo))
        self._buffers.insert(0, (lo, hi, name, kind))
        self._pending.append(f"alloc {kind} {name}")
        return self._ref(span)

    # -- names ---------------------------------------------------------------------------------

    def _stream(self, key: Hashable) -> str:
        return "legacy" if key == "legacy" else self._name("s", key)

    def _name(self, letter: str, key: Hashable) -> str:
        known = self._names.get((letter, key))
        if known is None:
            self._counts[letter] = self._counts.get(letter, 0) + 1
            known = self._names[(letter, key)] = f"{letter}{self._counts[letter]}"
        return known


def _components(trace: Iterable[r.Record]) -> list[tuple[int, int, str]]:
    """Bytes that are accessed, joined where accesses overlap: buffers for what no allocation names."""
    spans: list[tuple[int, int, bool]] = []
    for record in trace:
        host = isinstance(record, (r.HostAccess, r.Free))
        nodes = [record.node] if isinstance(record, r.DeviceOp) else getattr(record, "nodes", ())
        if isinstance(record, r.HostAccess):
            spans += [(lo, hi, host) for lo, hi in (*record.reads, *record.writes)]
        elif isinstance(record, r.Free):
            spans.append((*record.span, record.stream is None))
        for node in nodes:
            spans += [
                (lo, hi, bool(node.call_reads))
                for lo, hi in (*node.reads, *node.writes, *node.any_reads, *node.call_reads)
            ]
    joined: list[list[int]] = []
    for lo, hi, host in sorted(spans):
        if joined and lo < joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], hi)
            joined[-1][2] |= host
        else:
            joined.append([lo, hi, host])
    return [(lo, hi, "pinned" if host else "device") for lo, hi, host in joined]
