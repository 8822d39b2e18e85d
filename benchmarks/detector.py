"""How fast the detector judges, and how much it remembers: `python benchmarks/detector.py`.

An engine-like mix over 3 host threads, 4 streams and 64 live buffers of 4 KiB: a step writes staged rows,
copies them, launches kernels on slices, records, makes another stream wait, replays a graph of 8 nodes, and
waits two steps back. Records are made before the clock starts. Writes benchmarks/results/detector.json.
"""

from __future__ import annotations

import gc
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from itertools import pairwise
from pathlib import Path

from racecheck.detect import Detector
from racecheck.trace import records as r

SIZES = (10_000, 100_000, 1_000_000)
LABELLED = 100_000  # records of a run with labels and wants
REPEATS = 3
THREADS, STREAMS, BUFFERS, SIZE = 3, 4, 64, 4096
LOC = r.Loc("engine.py", 1, "step")


def span(buffer: int, lo: int = 0, hi: int = SIZE) -> r.Span:
    """Bytes `lo` to `hi` of a buffer; even ones are staging, odd ones live on the device."""
    return buffer * 0x10000 + lo, buffer * 0x10000 + hi


def records(*, labels: bool = False) -> Iterator[r.Record]:
    """The endless run. It is free of races. With `labels` every staged row is named and its twin wanted."""
    for buffer in range(BUFFERS):
        kind = "device" if buffer % 2 else "pinned"
        yield r.Alloc(
            thread="main", loc=LOC, span=span(buffer), name=f"b{buffer}", kind=kind, buffer=f"b{buffer}"
        )
    nodes = tuple(
        r.Node(
            kind="kernel", name="k", reads=(span(61), span(63)), writes=(span(59, 512 * n, 512 * n + 512),)
        )
        for n in range(8)
    )
    yield r.Capture(thread="main", loc=LOC, graph="g", nodes=nodes)
    step = 0
    while True:
        yield from _labelled(step) if labels else _step(step)
        step += 1


def _labelled(step: int) -> Iterator[r.Record]:
    """The step with a label after each host write and a want after each copy of a staged row."""
    for record in _step(step):
        yield record
        said = {"thread": record.thread, "loc": LOC, "mark": record.mark, "value": f"plan {step}"}
        if isinstance(record, r.HostAccess):
            yield r.Label(span=record.writes[0], **said)
        if isinstance(record, r.DeviceOp) and record.node.kind == "h2d":
            yield r.Want(span=record.node.writes[0], **said)


def _step(step: int) -> Iterator[r.Record]:
    """One step on one of the threads; consecutive steps hand over."""
    thread = ("main", "plan", "gpu")[step % THREADS]
    if step:
        yield r.Await(thread=thread, loc=LOC, name=("step", (step - 1) % 2))
    if step >= 2:
        yield r.Acquire(thread=thread, loc=LOC, scope="event", target=("done", step % 2))
    mark = r.Mark(step=step)
    for row in range(6):
        host = 2 * (6 * (step % 2) + row)
        yield r.HostAccess(thread=thread, loc=LOC, mark=mark, writes=(span(host, 0, 256),))
        node = r.Node(kind="h2d", reads=(span(host, 0, 256),), writes=(span(host + 1, 0, 256),))
        yield r.DeviceOp(thread=thread, loc=LOC, mark=mark, stream="plan", node=node)
    yield r.EventRecord(thread=thread, loc=LOC, event=("planned", step % 2), stream="plan")
    yield r.StreamWait(thread=thread, loc=LOC, stream="compute", event=("planned", step % 2))
    for kernel in range(16):
        twin = 2 * (6 * (step % 2) + kernel % 6) + 1
        lo = 256 * kernel
        node = r.Node(
            kind="kernel", name="k", reads=(span(twin, 0, 256), span(57)), writes=(span(55, lo, lo + 256),)
        )
        yield r.DeviceOp(thread=thread, loc=LOC, mark=mark, stream="compute", node=node)
    yield r.Replay(thread=thread, loc=LOC, mark=mark, graph="g", stream="compute")
    yield r.EventRecord(thread=thread, loc=LOC, event=("computed", step % 2), stream="compute")
    yield r.StreamWait(thread=thread, loc=LOC, stream="d2h", event=("computed", step % 2))
    node = r.Node(kind="d2h", reads=(span(59),), writes=(span(48 + 2 * (step % 2)),))
    yield r.DeviceOp(thread=thread, loc=LOC, mark=mark, stream="d2h", node=node)
    yield r.EventRecord(thread=thread, loc=LOC, event=("done", step % 2), stream="d2h")
    yield r.StreamWait(thread=thread, loc=LOC, stream="compute", event=("done", step % 2))
    yield r.Signal(thread=thread, loc=LOC, name=("step", step % 2))


def measure(size: int, *, labels: bool = False) -> dict[str, float]:
    """Seconds and peak memory of one run over `size` records, fed in batches made outside the clock."""
    source, detector = records(labels=labels), Detector()
    seconds, fed = 0.0, 0  # of this core: others may be at work on the machine
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while fed < size:
        batch = [next(source) for _ in range(min(5_000, size - fed))]
        start = time.process_time()
        for record in batch:
            detector.feed(record)
        seconds += time.process_time() - start
        fed += len(batch)
    assert detector.verdict == "clean", detector.findings
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "peak_kib": peak, "grown_kib": peak - before}


def main() -> None:
    """Each size in processes of its own, so that peaks do not mix; medians of three."""
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]), labels="labels" in sys.argv)))
        return
    rows = []
    for size, *labels in (*((size,) for size in SIZES), (LABELLED, "labels")):
        command = [sys.executable, __file__, str(size), *labels]
        runs = [
            json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
            for _ in range(REPEATS)
        ]
        seconds = statistics.median(run["seconds"] for run in runs)
        rows.append({
            "records": size,
            "labels": bool(labels),
            "seconds": round(seconds, 3),
            "records_per_second": round(size / seconds),
            "peak_mib": round(statistics.median(run["peak_kib"] for run in runs) / 1024, 1),
        })  # fmt: skip
        print(rows[-1])
    ratios = [round(later["seconds"] / earlier["seconds"], 2) for earlier, later in pairwise(rows[:-1])]
    print(f"10 times the records take {ratios} times as long")
    record = {
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "rows": rows,
        "ratios": ratios,
    }
    out = Path(__file__).parent / "results" / "detector.json"
    out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
