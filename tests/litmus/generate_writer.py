"""Writes one litmus program, statement by statement; generate.py decides which statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
HOST_KINDS = ("pinned", "pageable", "mapped", "pinned", "pageable")
STREAMS = ("s0", "s1", "legacy", "b0", "b1")  # b0 and b1 are declared blocking
EVENTS = ("e0", "e1")
SPANS = (("",), ("",), ("", "", "", "[0:4]", "[4:8]", "[2:6]"), ("[0:4]", "[4:8]", "[2:6]"))
VALUES = ("v0", "v1")
CARE = (0, 3, 5, 8, 10)  # times in ten


class Writer:
    """The program so far, what it has named, and the pieces that statements are made of."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.kinds: dict[str, str] = {}  # buffer -> kind
        self.gone: set[str] = set()  # buffers freed or released
        self.values: dict[str, str] = {}  # buffer -> a value that it may hold
        self.graphs: dict[str, tuple[list[str], list[tuple[str, str]]]] = {}  # what it reads; effects
        self.effects: list[tuple[str, str]] = []  # (written, value or source) of the operation being written
        self.signalled: list[str] = []
        self.streams = self.pick((("s0",), ("s0", "s1"), ("s1", "b0", "b1"), ("legacy", "b0", "b1"), STREAMS))
        self.threads = self.pick((("",), ("",), ("", "[t1] "), ("", "[t1] ", "[t2] ")))
        self.spans = self.pick(SPANS)
        self.thread = ""
        self.care = self.pick(CARE)

    def pick(self, choices: Sequence[T]) -> T:
        """One of `choices`."""
        return self.draw(st.sampled_from(choices))

    def chance(self, of_ten: int) -> bool:
        """True `of_ten` times in ten."""
        return self.draw(st.integers(0, 9)) >= 10 - of_ten

    def stream(self) -> str:
        """One of the program's streams."""
        return self.pick(self.streams)

    def emit(self, line: str) -> None:
        """Add a statement on the current host thread; the effects noted for it have happened."""
        self.lines.append(self.thread + line)
        self.apply(self.effects)
        self.effects = []

    def apply(self, effects: Sequence[tuple[str, str]]) -> None:
        """Note the values that `effects` leave."""
        for ref, value in effects:
            self.values[_name(ref)] = (
                self.values.get(_name(value), VALUES[0]) if _name(value) in self.kinds else value
            )

    def signal(self) -> str:
        """`signal x`; the name."""
        name = self.pick(("x0", "x1"))
        self.emit(f"signal {name}")
        self.signalled.append(name)
        return name

    def switch_thread(self) -> None:
        """Go on on another host thread; with care it awaits a signal of the old one."""
        if len(self.threads) == 1:
            return
        other = self.pick(self.threads)
        handed = self.signal() if other != self.thread and self.chance(self.care) else None
        self.thread = other
        if handed:
            self.emit(f"await {handed}")

    def order(self, stream: str) -> None:
        """With care, order what comes next after the work that `stream` has."""
        if not self.chance(self.care):
            return
        way = self.pick(("sync", "event", "wait", "wait_stream", "query", "device"))
        event, other = self.pick(EVENTS), self.stream()
        if way in ("event", "wait"):
            self.emit(f"record {event} on {stream}")
        lines = {
            "sync": f"sync {stream}",
            "event": f"sync {event}",
            "wait": f"wait {event} on {other}",
            "wait_stream": f"wait_stream {other} <- {stream}",
            "query": f"query {stream} -> done",
            "device": "sync device",
        }
        self.emit(lines[way])

    def alloc(self, name: str, kind: str, aliases: str = "") -> None:
        """`alloc KIND X [aliases Y [after uses]]`."""
        self.emit(f"alloc {kind} {name}{aliases}")
        self.gone.discard(name)
        self.kinds[name] = kind
        if aliases and (value := self.values.get(aliases.split()[1])):
            self.values[name] = value

    def buffer(self, *, host: bool) -> str:
        """A buffer of host or device memory, now and then a freed one; a new one if there is none."""
        names = [name for name, kind in self.kinds.items() if (kind != "device") == host]
        if not self.gone or not self.chance(1):
            names = [name for name in names if name not in self.gone]
        if names:
            return self.pick(names)
        return self.fresh(host=host)

    def fresh_name(self, *, host: bool) -> str:
        """A name that no buffer had so far."""
        return f"{'H' if host else 'D'}{len(self.kinds)}"

    def fresh(self, *, host: bool) -> str:
        """A new buffer of host or device memory."""
        name = self.fresh_name(host=host)
        self.alloc(name, self.pick(HOST_KINDS) if host else "device")
        return name

    def ref(self, *, host: bool) -> str:
        """All of a buffer, or a range of it."""
        return self.buffer(host=host) + self.pick(self.spans)

    def want(self, refs: Sequence[str], of_ten: int = 3) -> str:
        """Nothing, or ` want X=v` for one of `refs`, mostly with a value that it may hold."""
        if not refs or not self.chance(of_ten):
            return ""
        ref = self.pick(refs)
        value = dict(self.values, **{_name(target): value for target, value in self.effects}).get(_name(ref))
        if value is None and not self.chance(1):
            return ""
        return f" want {ref}={self.pick(VALUES) if value not in VALUES or self.chance(1) else value}"

    def named(self, refs: Sequence[str]) -> str:
        """Nothing, or ` as v` for what is written to `refs`."""
        value = self.pick(("", *VALUES)) if refs else ""
        self.effects += [(ref, value or "v0") for ref in refs]
        return value and f" as {value}"

    def copy(self, kind: str) -> tuple[str, list[str]]:
        """A copy without its stream, and what it reads."""
        source = self.ref(host=kind.endswith("h2d"))
        target = self.ref(host=kind == "d2h")
        self.effects.append((target, source))
        return f"{kind} {source} -> {target}", [source]

    def option(self, copy: str) -> str:
        """Nothing or ` order=...`, mostly for copies with a pageable side."""
        pageable = any(self.kinds[_name(ref)] == "pageable" for ref in copy.split()[1::2])
        return f" order={self.pick(('stream', 'call', 'any'))}" if self.chance(4 if pageable else 1) else ""

    def launch(self, kind: str) -> tuple[str, list[str], list[str]]:
        """A kernel or host function without its stream, what it reads, and what it writes."""
        shape = self.pick(("r", "w", "rw", "wr", "rrw", "rww", ""))
        refs = [(way, self.ref(host=kind == "hostfn" or self.chance(3))) for way in shape]
        reads, writes = ([ref for way, ref in refs if way == wanted] for wanted in "rw")
        parts = [
            f" reads {', '.join(reads)}" if reads else "",
            f" writes {', '.join(writes)}" if writes else "",
        ]
        return kind + "".join(reversed(parts) if shape == "wr" else parts), reads, writes


def _name(ref: str) -> str:
    return ref.split("[")[0]
