"""A Hypothesis strategy for valid litmus programs, which uses every operation of docs/litmus.md.

Two thirds are chains (generate_chain.py), one third statements that know little of each other. Names are
few (main and two more host threads, five streams, two events), so that conflicts are frequent; how often
a program orders what it has done is drawn first, and about half of the programs are SAFE. Every choice is
Hypothesis's own, so programs shrink, and a derandomized run is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable

from generate_chain import chain
from generate_writer import EVENTS, Writer
from hypothesis import strategies as st

HEADER = "# title: generated\n# source: own\n# expect: SAFE\n"
MAX_CHOSEN = 8  # statements chosen below; allocations, orderings and hand-overs come on top


def _host_write(w: Writer) -> None:
    ref = w.ref(host=True)
    w.emit(f"host_write {ref}{w.named([ref])}{w.want([ref], 1)}")


def _host_read(w: Writer) -> None:
    ref = w.ref(host=True)
    w.emit(f"host_read {ref}{w.want([ref])}")


def _copy(kind: str) -> Callable[[Writer], None]:
    def write(w: Writer) -> None:
        stream = w.stream()
        text, reads = w.copy(kind)
        w.emit(f"{text} on {stream}{w.option(text)}{w.want([*reads, text.split()[-1]])}")
        w.order(stream)

    return write


def _memcpy_h2d(w: Writer) -> None:
    text, reads = w.copy("memcpy_h2d")
    w.emit(text + w.want(reads))
    w.order("legacy")


def _kernel(w: Writer) -> None:
    stream = w.stream()
    text, reads, writes = w.launch("kernel")
    wants, value = w.want(reads), w.named(writes)
    wants += w.want(writes, 1)
    w.emit(f"{text} on {stream}{value}{wants}" if w.chance(5) else f"{text}{value} on {stream}{wants}")
    w.order(stream)


def _hostfn(w: Writer) -> None:
    stream = w.stream()
    text, reads, _ = w.launch("hostfn")
    w.emit(f"{text} on {stream}{w.want(reads)}")
    w.order(stream)


def _record(w: Writer) -> None:
    w.emit(f"record {w.pick(EVENTS)} on {w.stream()}")


def _wait(w: Writer) -> None:
    recorded = [event for event in EVENTS if any(f"record {event} on" in line for line in w.lines)]
    event = w.pick(recorded) if recorded and w.chance(9) else w.pick(EVENTS)
    if recorded or w.chance(2):
        w.emit(f"wait {event} on {w.stream()}")


def _wait_stream(w: Writer) -> None:
    w.emit(f"wait_stream {w.stream()} <- {w.stream()}")


def _sync(w: Writer) -> None:
    w.emit(f"sync {w.pick((*EVENTS, *w.streams, 'device', 'legacy'))}")


def _query(w: Writer) -> None:
    outcome = "done" if w.chance(6) else "pending"
    w.emit(f"query {w.pick((*EVENTS, *w.streams))} -> {outcome}")


def _signal(w: Writer) -> None:
    w.signal()


def _await(w: Writer) -> None:
    if w.signalled:
        w.emit(f"await {w.pick(w.signalled)}")


def _give_back(line: str) -> Callable[[Writer], None]:
    def write(w: Writer) -> None:
        name = w.buffer(host=w.chance(7))
        w.emit(line.format(name=name, stream=w.stream()))
        w.gone.add(name)
        if w.chance(3):
            w.alloc(name, w.kinds[name])

    return write


def _alloc(w: Writer) -> None:
    """The block of a live or a dead buffer again, or a new block under a dead buffer's name."""
    old = w.pick(sorted(w.kinds))
    name = old if old in w.gone and w.chance(7) else w.fresh_name(host=old[0] == "H")
    aliases = "" if name == old and w.chance(5) else f" aliases {old}{' after uses' if w.chance(6) else ''}"
    w.alloc(name, w.kinds[old], aliases)


def _graph(w: Writer) -> None:
    nodes, read = [], []
    for _ in range(w.pick((1, 2, 3))):
        kind = w.pick(("h2d", "kernel", "d2h", "d2d", "hostfn", "kernel", "h2d"))
        if kind in ("kernel", "hostfn"):
            text, reads, writes = w.launch(kind)
            text += w.named(writes) if kind == "kernel" else ""
        else:
            text, reads = w.copy(kind)
            text += w.option(text)
        nodes.append(text + w.want(reads, 1))
        read += reads
    name = w.pick(("g0", "g1"))
    w.graphs[name], w.effects = (read, w.effects), []
    w.emit(f"graph {name} {{ {'; '.join(nodes)} }}")


def _replay(w: Writer) -> None:
    if not w.graphs:
        _graph(w)
    name, stream = w.pick(sorted(w.graphs)), w.stream()
    read, effects = w.graphs[name]
    w.emit(f"replay {name} on {stream}{w.want(read)}")
    w.apply(effects)
    w.order(stream)


def _coll(w: Writer) -> None:
    first = w.pick(("C0", "C1"))
    second = first if w.chance(6) else w.pick(("C0", "C1", None))
    w.lines += [f"rank{rank}: coll {name}" for rank, name in enumerate((first, second)) if name]


STATEMENTS: dict[Callable[[Writer], None], int] = {
    _host_write: 4,
    _host_read: 3,
    _copy("h2d"): 6,
    _copy("d2h"): 4,
    _copy("d2d"): 1,
    _memcpy_h2d: 2,
    _kernel: 5,
    _hostfn: 2,
    _record: 2,
    _wait: 2,
    _wait_stream: 2,
    _sync: 2,
    _query: 3,
    _signal: 1,
    _await: 1,
    _give_back("free {name}"): 1,
    _give_back("free {name} on {stream}"): 1,
    _give_back("release {name}"): 2,
    _alloc: 3,
    _graph: 1,
    _replay: 3,
    _coll: 2,
}
_WEIGHTED = [write for write, weight in STATEMENTS.items() for _ in range(weight)]


def _random(w: Writer) -> None:
    """Statements that know little of each other."""
    for name in w.pick((("H0", "D1"), ("H0", "D1"), ("H0", "H1", "D2"), ("H0", "D1", "D2"))):
        w.fresh(host=name[0] == "H")
    for _ in range(w.pick(range(2, MAX_CHOSEN + 1))):
        w.switch_thread()
        w.pick(_WEIGHTED)(w)


@st.composite
def programs(draw: st.DrawFn) -> str:
    """The text of a valid program."""
    w = Writer(draw)
    for stream in w.streams:
        if stream.startswith("b"):
            w.emit(f"stream {stream} blocking")
    w.pick((chain, chain, _random))(w)
    if w.chance(2):
        _coll(w)
    return HEADER + "\n".join(w.lines) + "\n"
