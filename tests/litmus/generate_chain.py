"""Programs that hang by a thread: accesses to one buffer, joined by links of which one may be broken.

A place is a host thread or a stream that comes after all accesses so far. Each link moves the place (an
event and a wait, a signal and an await, the legacy stream's barrier ...), and the next access is made
there. A broken link lacks a line, or has another stream, event or outcome than it should. Other buffers
are new for every access, so that nothing else decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from generate_writer import EVENTS, VALUES, Writer


@dataclass(frozen=True)
class Place:
    """A host thread's prefix, or a stream's name."""

    name: str
    stream: bool = True


def chain(w: Writer) -> None:
    """Write two to four accesses, with links between them."""
    breaks = w.pick((0, 1, 2, 4))  # of ten
    name = w.fresh(host=w.chance(7))
    w.thread = w.pick(w.threads)
    if w.chance(6):
        w.effects.append((name, "v0"))
        host = w.kinds[name] != "device"
        w.emit(f"host_write {name} as v0" if host else f"kernel writes {name} on legacy as v0")
        w.order("legacy")
    place = _access(w, name, Place(w.thread, stream=False))
    for _ in range(w.pick((1, 2, 2, 3))):
        for _ in range(w.pick((0, 1, 1, 2))):
            place = _link(w, place, broken=w.chance(breaks))
        if w.chance(2):
            name, place = _alias(w, name, place)
        place = _access(w, name, place)


def _access(w: Writer, name: str, place: Place) -> Place:
    """One access of buffer `name` at `place`; where what follows it may be."""
    host = w.kinds[name] != "device"
    w.thread = w.pick(w.threads) if place.stream else place.name
    stream = place.name if place.stream else w.stream()
    forms = ["h2d", "d2h", "kernel r", "kernel w", "kernel rw", "free on", "replay", "replay"]
    forms += ["h2d", "d2h", "hostfn r", "hostfn w"] if host else ["d2d r", "d2d w"]
    if not place.stream:
        forms += ["host_read", "host_write", "host_write", "free"] if host else ["free"]
    if not place.stream or stream == "legacy":
        forms.append("memcpy_h2d")
    form, _, way = w.pick(forms).partition(" ")
    text, over = _text(w, form, way, name + w.pick(w.spans), stream)
    w.emit(text)
    if form == "free" and w.chance(5):
        w.gone.add(name)
        w.alloc(name, w.kinds[name], w.pick(("", f" aliases {name}")))
    if over or w.chance(1):
        return Place(w.thread, stream=False)
    return Place("legacy" if form == "memcpy_h2d" else stream)


def _text(w: Writer, form: str, way: str, ref: str, stream: str) -> tuple[str, bool]:
    """The statement, and whether what follows may go by the call instead of by the stream."""
    name = ref.split("[")[0]
    host = w.kinds[name] != "device"
    if form == "free":
        return f"free {name}" + (f" on {stream}" if way else ""), not way
    if form == "replay":
        name = _graph(w, ref, host=host)
        read, effects = w.graphs[name]
        w.effects += effects
        return f"replay {name} on {stream}{w.want([*read, ref], 6)}", False
    if form in ("h2d", "d2h", "d2d", "memcpy_h2d"):
        reads = way == "r" or (form != "d2d" and (form == "d2h") != host)
        other = w.fresh(host=form != "d2d" and not host) + (w.pick(w.spans) if w.chance(2) else "")
        source, target = (ref, other) if reads else (other, ref)
        w.effects.append((target, source))
        on = "" if form == "memcpy_h2d" else f" on {stream}"
        option = w.option(f"{form} {source} -> {target}") if on else ""
        kinds = w.kinds[name], w.kinds[other.split("[")[0]]
        over = not on or option == " order=call" or "pageable" in kinds
        return f"{form} {source} -> {target}{on}{option}{w.want([ref, other], 4)}", over and w.chance(5)
    if form == "host_read":
        return f"host_read {ref}{w.want([ref], 5)}", True
    if form == "host_write":
        return f"host_write {ref}{w.named([ref])}{w.want([ref], 1)}", True
    wants = w.want([ref], 5) if "r" in way else ""
    value = w.named([ref]) if "w" in way and form == "kernel" else ""
    parts = (f" reads {ref}" if "r" in way else "") + (f" writes {ref}" if "w" in way else "")
    return f"{form}{parts} on {stream}{value}{wants}", False


def _graph(w: Writer, ref: str, *, host: bool) -> str:
    """Capture a graph that uses `ref`, unless there is one and it will do; its name."""
    if w.graphs and w.chance(6):
        return w.pick(sorted(w.graphs))
    other = w.fresh(host=not host)
    there, back = ("h2d", "d2h") if host else ("d2h", "h2d")
    nodes = [f"{there} {ref} -> {other}{w.option(f'{there} {ref} -> {other}')}", f"{back} {other} -> {ref}"]
    nodes += [f"kernel reads {ref}{w.want([ref], 2)}"]
    nodes += [f"kernel reads {ref} writes {ref} as v1{w.want([ref], 4)}"]
    nodes += [f"hostfn reads {ref}", f"kernel writes {ref}"] if host else [f"kernel writes {ref} as v0"]
    name, chosen = w.pick(("g0", "g1")), [w.pick(nodes) for _ in range(w.pick((1, 2, 2)))]
    w.graphs[name] = ([ref], [(ref, value) for node in chosen for value in VALUES if f" as {value}" in node])
    w.emit(f"graph {name} {{ {'; '.join(chosen)} }}")
    return name


def _alias(w: Writer, name: str, place: Place) -> tuple[str, Place]:
    """The block under another name, perhaps only after its uses; the place after that."""
    w.thread = w.pick(w.threads) if place.stream else place.name
    uses = w.chance(5)
    if uses and w.chance(5):
        w.emit(f"release {name}")
        w.gone.add(name)
    new = w.fresh_name(host=w.kinds[name] != "device")
    w.alloc(new, w.kinds[name], f" aliases {name}{' after uses' if uses else ''}")
    return w.pick((new, new, name)), Place(w.thread, stream=False) if uses else place


def _link(w: Writer, place: Place, *, broken: bool) -> Place:
    """Order another place after `place`; the new place."""
    event, here = w.pick(EVENTS), place.name
    thread, stream = Place(w.pick(w.threads), stream=False), Place(w.stream())
    if not place.stream:
        links = [(["signal x0", "await x0"], thread)] * 2
        links += [([f"record {event} on {stream.name}"], stream)]
        links += [([f"wait_stream {stream.name} <- s0"], stream)]
    else:
        links = [
            ([f"record {event} on {here}", f"wait {event} on {stream.name}"], stream),
            ([f"record {event} on {here}", f"sync {event}"], thread),
            ([f"record {event} on {here}", f"query {event} -> done"], thread),
            ([f"wait_stream {stream.name} <- {here}"], stream),
            ([f"sync {here}"], thread),
            ([f"query {here} -> done"], thread),
            (["sync device"], thread),
        ]
    if here in ("b0", "b1"):
        links += [(["sync legacy"], thread), ([f"wait_stream {stream.name} <- legacy"], stream)]
        links += [([f"record {event} on legacy", f"sync {event}"], thread), ([], Place("legacy"))]
        links += [(["query legacy -> done"], thread), (["kernel on legacy"], Place(w.pick(("b0", "b1"))))]
    if here == "legacy":
        links += [([f"record {event} on b0", f"sync {event}"], thread), ([], Place("b1"))]
        links += [([f"wait_stream {stream.name} <- b1"], stream), (["kernel on b0"], Place("b0"))]
    lines, target = w.pick(links)
    if broken:
        lines = _broken(w, lines)
    for line in lines:
        w.thread = here if not place.stream else w.pick(w.threads)
        if line == lines[-1] and not target.stream:
            w.thread = target.name
        w.emit(line)
    return target


def _broken(w: Writer, lines: list[str]) -> list[str]:
    """The link without one of its lines, or with a wrong word."""
    swaps = {"s0": "s1", "s1": "s0", "b0": "b1", "b1": "b0", "e0": "e1", "e1": "e0", "legacy": "s0"}
    swaps |= {"done": "pending", "device": "s1"}
    if not lines or "await x0" in lines or w.chance(4):
        return lines[:-1]
    line = w.pick(range(len(lines)))
    words = lines[line].split()
    word = w.pick([number for number, word in enumerate(words) if word in swaps])
    words[word] = swaps[words[word]]
    return [*lines[:line], " ".join(words), *lines[line + 1 :]]
