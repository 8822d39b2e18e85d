"""Rules that the oracle and racecheck once read differently: both must give the verdict that stands here."""

from __future__ import annotations

HD = "alloc pinned P / alloc device D / "
VD = "alloc pageable V / alloc device D / "
RENAMED = "host_write P as a / graph g { h2d P -> D } / release P / alloc pinned P / host_write P as b / "

#: A wait on a never-recorded event is no action: a no-op in CUDA, and on an H200 it ordered nothing.
NEVER_RECORDED = (
    ("RACE", "stream b0 blocking / stream b1 blocking / alloc device D / kernel writes D on b0 / "
             "wait e on legacy / kernel writes D on b1"),
    ("RACE", HD + "[t] host_write P / [t] wait e on s0 / h2d P -> D on s0"),
)  # fmt: skip

#: A captured pageable copy follows the pageable rule with the replay as its call: seen on an H200.
CAPTURED_PAGEABLE = (
    ("SAFE", VD + "graph g { h2d V -> D } / replay g on s0 / host_write V"),
    ("RACE", VD + "graph g { h2d V -> D } / hostfn writes V on s0 / replay g on s0"),
    ("SAFE", VD + "graph g { d2h D -> V } / replay g on s0 / host_read V"),
    ("RACE", VD + "graph g { d2h D -> V order=stream } / replay g on s0 / host_read V"),
    ("RACE", HD + "graph g { h2d P -> D order=call } / hostfn writes P on s0 / replay g on s0"),
    ("RACE", HD + "graph g { h2d P -> D order=any } / hostfn writes P on s0 / replay g on s0"),
)

#: The launch waits for its pageable D2H only, and reads pageable sources before anything of it runs.
WAITED = (
    ("RACE", VD + "graph g { d2h D -> V ; h2d V -> D } / replay g on s0 / replay g on s1"),
    ("SAFE", VD + "graph g { d2h D -> V } / replay g on s0 / replay g on s1"),
    ("RACE", VD + "graph g { d2h D -> V ; hostfn reads V writes V } / replay g on s0 / host_write V"),
    (
        "SAFE",
        VD + "graph g { d2h D -> V ; hostfn reads V writes V } / replay g on s0 / sync s0 / host_write V",
    ),
    ("SAFE", VD + "graph g { d2h D -> V order=any ; h2d V -> D } / replay g on s0 / sync s0"),
)

#: A replay runs with the buffers it was captured with, and so do the wants on it.
RENAMED_SINCE_CAPTURE = (
    ("SAFE", HD + RENAMED + "replay g on s0 want D=a"),
    ("STALE", HD + RENAMED + "replay g on s0 want P=b"),
)

#: A free counts as a write: what was there is nobody's to want.
FREED = (
    ("STALE", HD + "host_write P as a / free P / host_read P want P=a"),
    ("SAFE", HD + "host_write P as a / release P / host_read P want P=a"),
)

#: A stream is blocking in the whole program, wherever it is declared.
DECLARED_LATE = (
    ("SAFE", "alloc device D / kernel writes D on b0 / kernel writes D on legacy / stream b0 blocking"),
    ("RACE", "alloc device D / kernel writes D on b0 / kernel writes D on legacy / stream b1 blocking"),
)

DISPUTED = (
    *NEVER_RECORDED,
    *CAPTURED_PAGEABLE,
    *WAITED,
    *RENAMED_SINCE_CAPTURE,
    *FREED,
    *DECLARED_LATE,
)
