"""What waits for a gate: which streams and events, and whom of the host's calls it would block.

A gate holds one stream. Behind it is all later work of that stream, every event recorded there since, and
every stream that waits for one of those. A host call that waits for any of these never returns.
"""

from __future__ import annotations

from racecheck.litmus import names
from racecheck.litmus import program as p
from racecheck.litmus.expressible import kinds, owners


class Behind:
    """The streams and events that are behind gates, statement by statement."""

    def __init__(self, program: p.Program) -> None:
        self._kinds = kinds(program)
        self._owners = owners(program)
        self._all_streams = names.streams(program)
        self.streams: set[str] = set()
        self.events: set[str] = set()

    def hold(self, stream: str) -> None:
        """A gate is shut at the end of `stream`."""
        self.streams.add(stream)

    def pass_by(self, statement: p.Statement) -> None:
        """The statement was issued."""
        match statement:
            case p.EventOp(op="record", event=event, stream=stream):
                (self.events.add if stream in self.streams else self.events.discard)(event)
            case p.EventOp(event=event, stream=stream) if event in self.events:
                self.streams.add(stream)
            case p.WaitStream(stream=stream, source=source) if source in self.streams:
                self.streams.add(stream)

    def blocks(self, statement: p.Statement) -> bool:
        """Would the host wait in `statement` for something behind a gate?

        A capture counts: PyTorch allocates there, and that may wait for the device. A query that the program
        lists as pending does not wait.
        """
        match statement:
            case p.Sync(outcome="pending"):
                return False
            case p.Sync(target="device") | p.Graph():
                return bool(self.streams)
            case p.Sync(target=target):
                return target in (self.streams if target in self._all_streams else self.events)
            case p.Alloc(aliases=str(old), after_uses=True) if statement.kind == "device":
                return self._owners.get(old, "legacy") in self.streams  # filled by a copy that waits
            case p.Work():
                return self.waits_in_call(statement) and on(statement) in self.streams
        return False

    def waits_in_call(self, statement: p.Statement) -> bool:
        """Does a copy return only when it is done?"""
        if not isinstance(statement, p.Work):
            return False
        if statement.kind == "memcpy_h2d":
            return self._kinds[statement.reads[0].name] != "pageable"
        return statement.kind == "d2h" and self._kinds[statement.writes[0].name] == "pageable"


def on(statement: p.Statement) -> str | None:
    """The stream that runs the statement's memory accesses; None for the host's, and for others."""
    match statement:
        case p.Work(stream=str(stream)) | p.Replay(stream=stream) | p.Release(stream=str(stream)):
            return stream
    return None
