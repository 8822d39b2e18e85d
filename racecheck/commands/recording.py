"""Keep the records of a row while it runs: as a trace file, or for Perfetto."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from racecheck.commands.outputs import reserve, save
from racecheck.errors import UsageError
from racecheck.report import perfetto as timeline
from racecheck.scenario.plan import RowPlan
from racecheck.trace.file import TraceWriter
from racecheck.trace.records import Record
from racecheck.trace.stream import Listener


@contextmanager
def recording(
    plans: Sequence[RowPlan], trace: Path | None, perfetto: Path | None
) -> Iterator[Listener | None]:
    """A listener that writes to the files asked for; None without any.

    Raises:
        UsageError: there are several rows, or a file cannot be written.
    """
    for option, path in (("--trace", trace), ("--perfetto", perfetto)):
        if path is not None and len(plans) != 1:
            raise UsageError(f"{option}: a trace is that of one row; choose one with --runner and --slots")
    reserve("--perfetto", perfetto)
    records: list[Record] = []
    with _trace_file(trace) as file:
        listeners: list[Listener] = [] if file is None else [TraceWriter(file)]
        listeners += [] if perfetto is None else [records.append]
        yield _all(listeners) if listeners else None
    if perfetto is not None:
        save("--perfetto", perfetto, timeline.render(records))


def _all(listeners: Sequence[Listener]) -> Listener:
    def listen(record: Record) -> None:
        for listener in listeners:
            listener(record)

    return listen


@contextmanager
def _trace_file(path: Path | None) -> Iterator[IO[str] | None]:
    """Where the trace goes, if anywhere; what cannot be written may show only when the disk is full."""
    if path is None:
        yield None
        return
    try:
        with path.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise UsageError(f"--trace {path}: cannot be written ({error.strerror}); name another file") from None
