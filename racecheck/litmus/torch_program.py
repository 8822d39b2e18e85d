"""A litmus program as calls of torch.cuda, and what its consumers find.

| litmus | PyTorch |
|---|---|
| `alloc pinned`, `mapped` | `torch.empty(pin_memory=True)`; aliases are the same tensor |
| `h2d`, `d2h`, `d2d` | `copy_(non_blocking=True)` |
| `memcpy_h2d` | `copy_` on the default stream; non-blocking from pageable memory, which is staged at once |
| `kernel`, `hostfn` | an operator that reads and writes in place (`device_ops`); no host functions exist |
| `free X` | the next owner writes at once: on the device by a stream of its own that the host waits for |
| `free X on S` | the tensor dies, and the next owner of the block, on S, writes it |
| `release X` | the tensor dies, after `record_stream` for every stream |
| `[T]` | one Python thread plays all of them in the order listed, as that order is part of the program |
| `signal`, `await` | a lock is released, a lock is acquired |
| `as v`, `want X=v` | `racecheck.holds`, `racecheck.wants` |

Allocations are made first, with bytes of their own in them, and the host waits once before the program
begins. A copy to the device is followed by a look at what it brought.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from racecheck.litmus import names
from racecheck.litmus import program as p
from racecheck.litmus.device_ops import WIDTH, device_work, digits, spread, value_of
from racecheck.litmus.places import CAPTURE, Buffers, Streams
from racecheck.litmus.saying import Saying
from racecheck.litmus.turns import Locks, hand_over
from racecheck.trace import acting_as

Outcome = tuple[tuple[str, str], ...]  # each consumer and the bytes it found, in hexadecimal digits


class NotListed(Exception):
    """A query answered otherwise than the program lists: this schedule is another execution."""


def run(program: p.Program, order: Sequence[p.Statement] | None = None, *, ask: bool = True) -> Outcome:
    """Run the program now, on the device that is there; what each consumer found.

    `order` is another order of the statements. Without `ask`, queries are left out.

    Raises:
        NotListed: a query did not answer as listed.
    """
    return Run(program, ask).outcome(program.statements if order is None else order)


class Run:
    """One execution; `streams` are those that exist already, by name."""

    def __init__(
        self, program: p.Program, ask: bool = True, streams: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self.program = program
        self.ask = ask
        self.streams = Streams(streams)
        self.buffers = Buffers(program, self.streams)
        self.saying = Saying(self.buffers)
        self.locks = Locks(program)
        self.events: dict[str, Any] = {}
        self.graphs: dict[str, Any] = {}
        self.found: list[tuple[str, str]] = []
        self.lookers: list[str] = []
        most = sum(2 * len(s.nodes) if isinstance(s, p.Graph) else 2 for s in program.statements)
        self.seen = torch.zeros(most, WIDTH, dtype=torch.uint8).cuda()

    def outcome(self, order: Sequence[p.Statement]) -> Outcome:
        """Run the statements in this order."""
        threads = sorted({statement.thread for statement in order} - {"main"})
        with acting_as("main"):
            self.begin()
        for thread in threads:
            hand_over("main", thread)
        for statement in order:
            with acting_as(statement.thread):
                self.saying.before(statement)
                self.step(statement)
                self.saying.after(statement)
        for thread in threads:
            hand_over(thread, "main")
        with acting_as("main"):
            return self.result()

    def begin(self) -> None:
        """Make what the program begins with, and let the device finish with it."""
        self.buffers.allocate_all()
        torch.cuda.synchronize()

    def result(self) -> Outcome:
        """What everybody found, and what lies in memory in the end."""
        torch.cuda.synchronize()
        seen = zip(self.lookers, self.seen.tolist(), strict=False)
        left = [(f"{name} in the end", digits(tensor)) for name, tensor in self.buffers.living()]
        return (*self.found, *((who, bytes(value).hex()) for who, value in seen), *left)

    # -- statements ----------------------------------------------------------------------------

    def step(self, statement: p.Statement) -> None:
        """Carry out one statement."""
        match statement:
            case p.Alloc(aliases=str(old), after_uses=after):
                self.buffers.recycle(statement.name, old) if after else self.buffers.share(
                    statement.name, old
                )
            case p.HostAccess():
                self.host(statement)
            case p.Work(stream=str(stream)):
                with torch.cuda.stream(self.streams.get(stream)):
                    self.work(statement, f"line {statement.line}")
            case p.EventOp(op="record", event=event, stream=stream):
                self.event(event).record(self.streams.get(stream))
            case p.EventOp(event=event, stream=stream):
                self.streams.get(stream).wait_event(self.event(event))
            case p.WaitStream(stream=stream, source=source):
                self.streams.get(stream).wait_stream(self.streams.get(source))
            case p.Sync():
                self.sync(statement)
            case p.HandOver():
                self.locks.hand_over(statement)
            case p.Release():
                self.buffers.give_back(statement)
            case p.Graph():
                self.capture(statement)
            case p.Replay(graph=graph, stream=stream):
                with torch.cuda.stream(self.streams.get(stream)):
                    self.graphs[graph].replay()

    def host(self, access: p.HostAccess) -> None:
        """The CPU reads or writes now."""
        where, target = f"line {access.line}", self.buffers.bytes(access.ref)
        if access.is_write:
            value = value_of("value", access.value) if access.value else value_of("host", where)
            target.copy_(spread(value, target.numel()))
        else:
            self.found.append((f"{where}: host_read {access.ref}", digits(target)))

    def work(self, work: p.Work, where: str) -> None:
        """A copy, kernel or host function on the current stream, or into its capture."""
        if work.kind in ("kernel", "hostfn"):
            reads, writes = (
                list(map(self.buffers.bytes, work.reads)),
                list(map(self.buffers.bytes, work.writes)),
            )
            self.issue(reads, writes, f"{where}: {work.kind}", work.value or "")
            return
        source, target = self.buffers.bytes(work.reads[0]), self.buffers.bytes(work.writes[0])
        length = min(source.numel(), target.numel())
        late = work.kind != "memcpy_h2d" or self.buffers.kinds[work.reads[0].name] == "pageable"
        target[:length].copy_(source[:length], non_blocking=late)
        if late and self.buffers.kinds[work.writes[0].name] == "device":
            self.issue([target], [], f"{where}: {work.kind} to {work.writes[0]}", "")

    def issue(self, reads: list[torch.Tensor], writes: list[torch.Tensor], who: str, value: str) -> None:
        """Device work that leaves what it read in a place of its own."""
        device_work()(reads, writes, self.seen[len(self.lookers)], who, value)
        self.lookers.append(who)

    def sync(self, sync: p.Sync) -> None:
        """Wait for, or ask about, an event, a stream or everything."""
        if sync.target == "device":
            torch.cuda.synchronize()
            return
        is_stream = sync.target in names.streams(self.program)
        target = self.streams.get(sync.target) if is_stream else self.event(sync.target)
        if sync.outcome is None:
            target.synchronize()
        elif self.ask and target.query() != (sync.outcome == "done"):
            raise NotListed(f"line {sync.line}: {sync.target} is not {sync.outcome}")

    def capture(self, graph: p.Graph) -> None:
        """Capture the nodes, without the wait that `torch.cuda.graph` begins with."""
        captured = self.graphs[graph.name] = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.streams.get(CAPTURE)):
            captured.capture_begin()
            for index, node in enumerate(graph.nodes):
                self.work(node, f"line {graph.line} node {index + 1}")
            captured.capture_end()

    # -- names ---------------------------------------------------------------------------------

    def event(self, name: str) -> Any:
        """The event of that name, made when it is first named."""
        if name not in self.events:
            self.events[name] = torch.cuda.Event()
        return self.events[name]
