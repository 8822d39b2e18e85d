"""What tests of scheduled threads share: programs to run under a lag, and traces to compare."""

from __future__ import annotations

import gc
import io
import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

import racecheck
from racecheck.trace import Trace, subscribe
from racecheck.trace.file import TraceWriter
from racecheck.trace.records import Alloc, Record

#: Where addresses stand in a record.
ADDRESSES = {"span", "reads", "writes", "any_reads", "call_reads"}


def run_threads(*targets: Callable[[], Any]) -> None:
    """Start one thread for each target, in order, and join them in order."""
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def traced(program: Callable[[], Any], lag: Any) -> str:
    """The trace file of `program()` under `lag`; an address is a block and an offset."""
    trace = Trace()
    gc.disable()  # when it finds a cycle with a lock in it depends on all that ran before
    try:
        with racecheck.virtual_cuda(lag), subscribe(trace):
            program()
    finally:
        gc.enable()
    return trace_text(trace)


def trace_text(trace: Iterable[Record]) -> str:
    """`trace` as a file, without addresses."""
    blocks: list[tuple[int, int]] = []

    def plain(thing: Any, address: bool = False) -> Any:
        if isinstance(thing, dict):
            return {key: plain(value, key in ADDRESSES) for key, value in thing.items()}
        if isinstance(thing, list):
            return [plain(value, address) for value in thing]
        if address:
            index = max(i for i, (lo, hi) in enumerate(blocks) if lo <= thing <= hi)
            return f"{index}+{thing - blocks[index][0]}"
        return thing

    lines = []
    for record in trace:
        if isinstance(record, Alloc):
            blocks.append(record.span)
        out = io.StringIO()
        TraceWriter(out)(record)
        lines.append(json.dumps(plain(json.loads(out.getvalue().splitlines()[1]))))
    return "\n".join(lines)
