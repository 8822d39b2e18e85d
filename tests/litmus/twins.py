"""For each rule of docs/litmus.md a program that breaks it and, as near as can be, one that keeps it."""

from __future__ import annotations

from typing import NamedTuple

# " / " stands between lines; the names are for beginnings that many programs share.
BEGINNINGS = {
    "UP": "HD / h2d P -> D on s0",  # an upload in flight
    "DV": "HD / kernel writes D on s0 as v",
    "BB": "stream b0 blocking / stream b1 blocking / HD",
    "HD": "alloc pinned P / alloc device D",
    "VD": "alloc pageable V / alloc device D",
}
# The rule and the verdict of the program that breaks it; that program; the one that keeps it, which is SAFE.
RULES = """\
threads have no order between them: RACE
    HD / [a] host_write P / [b] host_read P
    HD / [a] host_write P / [a] host_read P
await comes after the signal: RACE
    HD / [a] signal x / [a] host_write P / [b] await x / [b] host_read P
    HD / [a] host_write P / [a] signal x / [b] await x / [b] host_read P
await binds to the latest signal: RACE
    HD / [a] host_write P / [a] signal x / [b] signal x / [c] await x / [c] host_read P
    HD / [b] signal x / [a] host_write P / [a] signal x / [c] await x / [c] host_read P
an operation on a stream comes after its call: RACE
    HD / [a] host_write P / h2d P -> D on s0
    HD / [a] host_write P / [a] h2d P -> D on s0
a stream is in issue order: RACE
    HD / kernel writes D on s0 / kernel reads D on s1
    HD / kernel writes D on s0 / kernel reads D on s0
a pinned source is read in stream order: RACE
    UP / host_write P
    UP / host_read P
a mapped source is read in place: RACE
    alloc mapped M / kernel reads M on s0 / host_write M
    alloc mapped M / kernel reads M on s0 / sync s0 / host_write M
a pageable source is read during the call: RACE
    VD / hostfn writes V on s0 / h2d V -> D on s0
    VD / hostfn writes V on s0 / sync s0 / h2d V -> D on s0
a D2H to pageable memory is complete on return: RACE
    HD / d2h D -> P on s0 / host_read P
    VD / d2h D -> V on s0 / host_read V
a D2H to pageable memory runs in stream order: RACE
    VD / kernel writes D on s1 / d2h D -> V on s0
    VD / kernel writes D on s0 / d2h D -> V on s0
order=stream: RACE
    VD / h2d V -> D on s0 order=stream / host_write V
    VD / h2d V -> D on s0 / host_write V
order=stream of a D2H: RACE
    VD / d2h D -> V on s0 order=stream / host_read V
    VD / d2h D -> V on s0 order=call / host_read V
order=call: RACE
    UP / host_write P
    HD / h2d P -> D on s0 order=call / host_write P
order=any is not in stream order: RACE
    HD / hostfn writes P on s0 / h2d P -> D on s0 order=any
    HD / hostfn writes P on s0 / h2d P -> D on s0
order=any ends with the copy: RACE
    VD / h2d V -> D on s0 order=any / host_write V
    VD / h2d V -> D on s0 order=any / sync s0 / host_write V
memcpy_h2d from pageable memory may still write: RACE
    VD / memcpy_h2d V -> D / kernel reads D on s0
    HD / memcpy_h2d P -> D / kernel reads D on s0
memcpy_h2d is on the legacy stream: RACE
    VD / memcpy_h2d V -> D / kernel reads D on s0
    VD / memcpy_h2d V -> D / kernel reads D on legacy
a host function is on no host thread: RACE
    HD / hostfn writes P on s0 / host_read P
    HD / hostfn writes P on s0 / sync s0 / host_read P
a wait binds to the latest record before it: RACE
    UP / wait e on s1 / record e on s0 / kernel writes P on s1
    UP / record e on s0 / wait e on s1 / kernel writes P on s1
a later record does not count: RACE
    HD / record e on s0 / h2d P -> D on s0 / sync e / host_write P
    UP / record e on s0 / sync e / host_write P
a re-recorded event is its latest record: RACE
    UP / record e on s0 / record e on s1 / sync e / host_write P
    UP / record e on s0 / sync e / host_write P
wait_stream has a direction: RACE
    UP / wait_stream s0 <- s1 / kernel writes P on s1
    UP / wait_stream s1 <- s0 / kernel writes P on s1
sync of a stream covers that stream: RACE
    UP / sync s1 / host_write P
    UP / sync s0 / host_write P
sync device covers all: RACE
    UP / sync legacy / host_write P
    UP / sync device / host_write P
pending orders nothing: RACE
    UP / record e on s0 / query e -> pending / host_write P
    UP / record e on s0 / query e -> done / host_write P
a query of a stream: RACE
    UP / query s0 -> pending / host_write P
    UP / query s0 -> done / host_write P
the legacy stream waits for blocking streams only: RACE
    BB / kernel writes D on s0 / kernel reads D on legacy
    BB / kernel writes D on b0 / kernel reads D on legacy
blocking streams wait for the legacy stream: RACE
    BB / kernel writes D on legacy / kernel reads D on s0
    BB / kernel writes D on legacy / kernel reads D on b0
blocking streams wait through the legacy stream: RACE
    BB / kernel writes D on b0 / kernel reads D on b1
    BB / kernel writes D on b0 / record e on legacy / kernel reads D on b1
sync legacy covers blocking streams: RACE
    UP / sync legacy / host_write P
    BB / h2d P -> D on b0 / sync legacy / host_write P
sync of a blocking stream covers its own work: RACE
    BB / h2d P -> D on legacy / sync b0 / host_write P
    BB / h2d P -> D on legacy / record e on b0 / sync e / host_write P
wait_stream on legacy covers blocking streams: RACE
    UP / wait_stream s1 <- legacy / kernel writes P on s1
    BB / h2d P -> D on b0 / wait_stream s1 <- legacy / kernel writes P on s1
an aliased block is the same bytes: RACE
    UP / alloc pinned Q aliases P / host_write Q
    UP / alloc pinned Q / host_write Q
after uses: RACE
    UP / release P / alloc pinned Q aliases P / host_write Q
    UP / release P / alloc pinned Q aliases P after uses / host_write Q
after uses covers that block only: RACE
    UP / alloc pinned X / alloc pinned Q aliases X after uses / host_write P
    UP / alloc pinned Q aliases P after uses / host_write P
one operation does not race with itself: RACE
    HD / d2d D -> D on s0 / d2d D -> D on s1
    HD / d2d D -> D on s0 order=any
free counts as a write: RACE
    UP / free P
    UP / release P
free on a stream counts as a write there: RACE
    UP / free P on s1
    UP / free P on s0
ranges are half open: RACE
    HD / h2d P[0:5] -> D on s0 / host_write P[4:8]
    HD / h2d P[0:4] -> D on s0 / host_write P[4:8]
capturing executes nothing: RACE
    HD / graph g { h2d P -> D } / replay g on s0 / host_write P
    HD / graph g { h2d P -> D } / host_write P / replay g on s0
a captured copy reads at each replay: RACE
    HD / graph g { h2d P -> D } / replay g on s0 / sync s0 / replay g on s0 / host_write P
    HD / graph g { h2d P -> D } / replay g on s0 / replay g on s0 / sync s0 / host_write P
a replay keeps the captured buffers: RACE
    HD / graph g { h2d P -> D } / release P / replay g on s0 / alloc pinned P aliases P / host_write P
    HD / graph g { h2d P -> D } / release P / replay g on s0 / alloc pinned P / host_write P
a want finds the latest value: STALE
    HD / host_write P as v / host_write P as w / host_read P want P=v
    HD / host_write P as v / host_write P as w / host_read P want P=w
a copy carries its source's value: STALE
    HD / host_write P as v / h2d P -> D on s0 want D=w
    HD / host_write P as v / h2d P -> D on s0 want D=v
a copy goes byte by byte: STALE
    HD / host_write P[0:4] as v / host_write P[4:8] as w / h2d P -> D on s0 want D[4:8]=v
    HD / host_write P[0:4] as v / host_write P[4:8] as w / h2d P -> D on s0 want D[4:8]=w
a replay's want is that of every node that reads: STALE
    DV / graph g { kernel reads D writes D as w; kernel reads D } / replay g on s0 want D=v
    DV / graph g { kernel reads D; kernel writes D as w } / replay g on s0 want D=v
a want is looked at before what it reads is written: STALE
    DV / kernel reads D writes D on s0 as w want D=w
    DV / kernel reads D writes D on s0 as w want D=v
a want is about its bytes: STALE
    HD / host_write P[0:4] as v / host_read P want P=v
    HD / host_write P[0:4] as v / host_read P want P[0:4]=v
ranks issue one sequence: HANG
    rank0: coll A / rank0: coll B / rank1: coll B / rank1: coll A
    rank0: coll A / rank1: coll A / rank0: coll B / rank1: coll B
a race comes before a stale value: RACE
    UP / host_write P as v want P=w
    UP / sync s0 / host_write P as v want P=v
a stale value comes before a hang: STALE
    HD / host_write P as v want P=w / rank0: coll A / rank1: coll B
    HD / host_write P as v want P=v
"""


class Twins(NamedTuple):
    """Two programs for one rule; " / " stands between lines."""

    rule: str
    verdict: str
    broken: str
    fixed: str


def _twins(rule: str, broken: str, fixed: str) -> Twins:
    name, _, verdict = rule.rpartition(": ")
    return Twins(name, verdict, _program(broken), _program(fixed))


def _program(short: str) -> str:
    for name, beginning in BEGINNINGS.items():
        short = short.strip().replace(f"{name} / ", f"{beginning} / ")
    return short


_lines = RULES.splitlines()
TWINS = [_twins(*lines) for lines in zip(_lines[::3], _lines[1::3], _lines[2::3], strict=True)]
