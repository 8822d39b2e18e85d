"""From records to happens-before: which chain acts, and what it has seen when it does.

The rules, each from the CUDA programming model: a host thread is ordered by program and a stream by
issue; device work follows the call that issued it; a wait or a sync follows what its event covered when
it was last recorded before that call (the generation, never "the event"); a query that said done is a
sync; an event never recorded orders nothing; the legacy default stream and blocking streams take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from racecheck.detect.clocks import Chain, Moment, causes
from racecheck.detect.graphs import Graphs
from racecheck.detect.shadow import Access
from racecheck.trace import records as r

#: The key of the legacy default stream in every trace.
LEGACY = "legacy"

Visit = Callable[[Chain, Access, tuple[r.Span, ...]], None]


class Ordering:
    """Chains, event generations and graphs.

    Calls `visit(chain, access, spans)` for every access, `blocked(record)` for work that the host waited for.
    """

    def __init__(self, visit: Visit, blocked: Callable[[r.DeviceOp], None]) -> None:
        self._visit = visit
        self._blocked = blocked
        self._chains: list[Chain] = []
        self._threads: dict[str, Chain] = {}
        self.streams: dict[Hashable, Chain] = {}
        self._unordered: dict[int, Chain] = {}  # stream index -> its reads that follow only the call
        self._blocking: list[Chain] = []
        self._events: dict[Hashable, tuple[Moment, r.EventRecord]] = {}
        self._signals: dict[Hashable, Moment] = {}
        self._branches: dict[tuple[int, int], Chain] = {}  # stream index and number -> a branch of its graphs
        self.graphs = Graphs(self)
        self.handlers: dict[type, Callable[[Any], None]] = {
            r.HostAccess: self._host_access_record,
            r.DeviceOp: self._device_op,
            r.Replay: self.graphs.replay,
            r.Capture: self.graphs.capture,
            r.StreamDeclare: self._stream_declare,
            r.EventRecord: self._event_record,
            r.EventFree: self._event_free,
            r.StreamWait: self._stream_wait,
            r.Acquire: self._acquire,
            r.Signal: self._signal,
            r.Await: self._await,
        }

    def chain(self, index: int) -> Chain:
        """The chain with this index (as found in a `Moment`)."""
        return self._chains[index]

    def is_settled(self, moment: Moment) -> bool:
        """Do all host threads know of `moment`, so that nothing still to come can race with it?

        Threads that are to come are taken to follow a start signal; one without any edge is no thread of
        a real program.
        """
        return all(chain.has_seen(moment.chain, moment.clock) for chain in self._threads.values())

    def causes(self, chain: Chain, moment: Moment) -> tuple[r.Record, ...]:
        """See `clocks.causes`."""
        return causes(self._chains, chain, moment)

    def acquire(self, thread: str, moments: Iterable[Moment], cause: r.Record) -> None:
        """`thread` continues after all of `moments`."""
        chain = self.thread(thread)
        for moment in moments:
            chain.join_moment(moment, cause)

    def host_access(
        self,
        record: r.Record,
        reads: tuple[r.Span, ...],
        writes: tuple[r.Span, ...],
        node: r.Node | None = None,
    ) -> None:
        """The record's own thread touches memory now."""
        chain = self.thread(record.thread)
        chain.act()
        self._touch(chain, chain.moment(), record, node, reads, writes)

    def work(
        self,
        record: r.Record,
        stream: Hashable,
        node: r.Node | None,
        reads: tuple[r.Span, ...],
        writes: tuple[r.Span, ...],
    ) -> Chain:
        """The record issues work that touches memory when `stream` gets there."""
        chain = self.command(record, stream)
        self.run(record, chain, node, reads, writes)
        return chain

    def run(
        self,
        record: r.Record,
        chain: Chain,
        node: r.Node | None,
        reads: tuple[r.Span, ...],
        writes: tuple[r.Span, ...],
    ) -> None:
        """The record's work touches memory when `chain` gets there."""
        if node is not None:
            chain.last = record
            if node.any_reads:
                self._read_at_any_time(record, chain, node)
        chain.act()
        self._touch(chain, chain.moment(), record, node, reads, writes)

    def branch(self, stream: Chain, number: int) -> Chain:
        """Branch `number` (from 1) of the graphs that run on `stream`: a chain of its own."""
        chain = self._branches.get((stream.index, number))
        if chain is None:
            chain = self._new(f"{stream.name} (branch {number} of a graph)", is_stream=True)
            self._branches[stream.index, number] = chain
        return chain

    # -- records -------------------------------------------------------------------------------

    def _host_access_record(self, record: r.HostAccess) -> None:
        self.host_access(record, record.reads, record.writes)

    def _device_op(self, record: r.DeviceOp) -> None:
        node = record.node
        if node.call_reads:
            self.host_access(record, node.call_reads, (), node)
        stream = self.work(record, record.stream, node, node.reads, node.writes)
        if record.blocking:
            self._blocked(record)
            self.thread(record.thread).join(stream, record)

    def _stream_declare(self, record: r.StreamDeclare) -> None:
        chain = self.stream(record.stream)
        if record.blocking and not chain.blocking and record.stream != LEGACY:
            chain.blocking = True
            self._blocking.append(chain)

    def _event_record(self, record: r.EventRecord) -> None:
        self._events[record.event] = (self.command(record, record.stream).moment(), record)

    def _event_free(self, record: r.EventFree) -> None:
        self._events.pop(record.event, None)
        self._signals.pop(record.event, None)

    def _stream_wait(self, record: r.StreamWait) -> None:
        generation = self._events.get(record.event)
        if generation is not None:  # a wait for nothing is no action of the stream either
            self.command(record, record.stream).join_moment(generation[0], record)

    def _acquire(self, record: r.Acquire) -> None:
        if not record.done:
            return
        thread = self.thread(record.thread)
        if record.scope == "event":
            generation = self._events.get(record.target)
            if generation is not None:
                thread.join_moment(generation[0], record)
        elif record.scope == "device":
            for chain in self.streams.values():
                thread.join(chain, record)
        else:
            thread.join(self.stream(record.target), record)
            if record.target == LEGACY:
                for chain in self._blocking:
                    thread.join(chain, record)

    def _signal(self, record: r.Signal) -> None:
        self._signals[record.name] = self.thread(record.thread).moment()

    def _await(self, record: r.Await) -> None:
        moment = self._signals.get(record.name)
        if moment is not None:
            self.thread(record.thread).join_moment(moment, record)

    # -- chains --------------------------------------------------------------------------------

    def _new(self, name: str, *, is_stream: bool) -> Chain:
        chain = Chain(name, len(self._chains), is_stream=is_stream)
        self._chains.append(chain)
        return chain

    def thread(self, name: str) -> Chain:
        """The chain of the host thread `name`."""
        chain = self._threads.get(name)
        if chain is None:
            chain = self._threads[name] = self._new(name, is_stream=False)
        return chain

    def stream(self, key: Hashable) -> Chain:
        """The chain of the stream `key`."""
        chain = self.streams.get(key)
        if chain is None:
            chain = self.streams[key] = self._new(str(key), is_stream=True)
        return chain

    def command(self, record: r.Record, stream: Hashable) -> Chain:
        """Issue a command: it follows the call, and the legacy stream's rules hold for it."""
        chain = self.stream(stream)
        chain.join(self.thread(record.thread))
        if stream == LEGACY:
            for other in self._blocking:
                chain.join(other, record)
        elif chain.blocking:
            chain.join(self.stream(LEGACY), record)
        return chain

    def _read_at_any_time(self, record: r.Record, stream: Chain, node: r.Node) -> None:
        """Reads that follow only the issuing call; the copy completes after them."""
        reader = self._unordered.get(stream.index)
        if reader is None:
            reader = self._unordered[stream.index] = self._new(stream.name, is_stream=True)
        call = self.thread(record.thread).moment()
        seen = call.seen + [0] * (call.chain + 1 - len(call.seen))
        seen[call.chain] = call.clock
        reader.seen = seen
        reader.act()
        self._touch(reader, reader.moment(), record, node, node.any_reads, ())
        stream.join(reader)

    def _touch(
        self,
        chain: Chain,
        moment: Moment,
        record: r.Record,
        node: r.Node | None,
        reads: tuple[r.Span, ...],
        writes: tuple[r.Span, ...],
    ) -> None:
        if reads:
            self._visit(chain, Access(moment, record, node, False), reads)
        if writes:
            self._visit(chain, Access(moment, record, node, True), writes)
