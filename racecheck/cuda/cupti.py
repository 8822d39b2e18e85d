"""Seeing the driver's own calls, whoever makes them: callbacks of CUPTI (extra `gpu`).

Only calls that move staged bytes or order anything are subscribed to; kernel launches cost nothing.
Parameters are read where CUPTI leaves them: each call's C structure (generated_cuda_meta.h) holds its
arguments in order, and all of those read here take one word of eight bytes.

A wait is told as it begins: the audit works while the host waits. A query counts as an acquire when it is
made through `torch.cuda`: the same driver call made in C++ is PyTorch's memory pools looking for free blocks,
and what they find is luck.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from racecheck.cuda.driver_copies import DriverCopies
from racecheck.cuda.observer import Observer
from racecheck.errors import UsageError

_DRIVER, _ENTER, _EXIT = 1, 0, 1
#: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
_TAKEN = 39

#: Calls that matter later, too: they are heard while nobody listens.
_END = "cuStreamEndCapture"
_LASTING = (
    *("cuStreamBeginCapture", _END, "cuStreamDestroy", "cuEventDestroy", "cuGraphInstantiate"),
    *("cuGraphExec", "cuGraphDestroy", "cuMemFree", "cuMemHost", "cuMemAllocHost"),
)

Handler = Callable[[tuple[int, ...]], None]


def load() -> Any:
    """The module `cupti`.

    Raises:
        UsageError: it is not installed, or does not load.
    """
    try:
        from cupti import cupti
    except ImportError as error:
        missing = getattr(error, "name", None) in ("cupti", None)
        reason = "cupti-python is not installed" if missing else " ".join(str(error).split())
        raise UsageError(
            f"capture by CUPTI: {reason}; install it with: pip install 'racecheck[gpu]'"
        ) from None
    except Exception as error:  # its native parts look for libraries in ways of their own
        raise UsageError(
            f"capture by CUPTI: cupti-python does not load ({' '.join(str(error).split())}); "
            "write capture='hooks', or install a matching nvidia-cuda-cupti"
        ) from None
    return cupti


@contextmanager
def calls_seen(observer: Observer) -> Iterator[None]:
    """Tell `observer` of the driver calls of this process.

    Raises:
        UsageError: CUPTI cannot be had, or another tool (a profiler) is subscribed already.
    """
    cupti = load()
    calls = _Calls(observer)
    numbers = {
        int(getattr(cupti.DriverApiTraceCbid, name)): name
        for name in calls.table
        if name in dir(cupti.DriverApiTraceCbid)
    }
    handlers = {number: calls.table[name] for number, name in numbers.items()}
    lasting = {number for number, name in numbers.items() if name.startswith(_LASTING)}
    ending = {number for number, name in numbers.items() if name.startswith(_END)}

    def callback(userdata: Any, domain: int, number: int, data: Any) -> None:
        known = handlers.get(number)
        if known is None:
            return
        site, words, handler = known
        if data.callback_site != site or not (number in lasting or observer.heeds()):
            return
        if site == _ENTER or not _status(data):
            handler(_words(data.function_params, words))
        elif number in ending:  # a capture that failed is over: what comes next on its stream is issued
            observer.capture_end(_words(data.function_params, 1)[0], None)

    subscriber = _subscribe(cupti, callback)
    try:
        for number in handlers:
            cupti.enable_callback(1, subscriber, _DRIVER, number)
        yield
    finally:
        cupti.unsubscribe(subscriber)


def _subscribe(cupti: Any, callback: Any) -> int:
    try:
        return cupti.subscribe(callback, None)  # type: ignore[no-any-return]
    except Exception as error:
        if getattr(error, "status", None) == _TAKEN or "MULTIPLE_SUBSCRIBERS" in str(error):
            reason = "another tool of this process is subscribed to CUPTI (a profiler?); end it first"
        else:
            reason = f"{' '.join(str(error).split())}"
        raise UsageError(f"capture by CUPTI: {reason}, or write capture='hooks'") from None


def _status(data: Any) -> int:
    """The CUresult that the call returns."""
    where = data.function_return_value
    return ctypes.c_int.from_address(where).value if where else 0


_ARRAYS = [ctypes.c_uint64 * count for count in range(9)]


def _words(address: int, count: int) -> tuple[int, ...]:
    return tuple(_ARRAYS[count].from_address(address))


def _at(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


class _Calls:
    """What each subscribed call means: at which site, how many words, and who takes them."""

    def __init__(self, observer: Observer) -> None:
        self._o = observer
        copies = DriverCopies(observer)
        table: dict[str, tuple[int, int, Handler]] = {
            "cuMemcpyHtoDAsync_v2": (_ENTER, 4, lambda w: copies.to_device(w[0], w[1], w[2], w[3])),
            "cuMemcpyDtoHAsync_v2": (_ENTER, 4, lambda w: copies.to_host(w[0], w[1], w[2], w[3])),
            "cuMemcpyAsync": (_ENTER, 4, lambda w: copies.either(w[0], w[1], w[2], w[3])),
            "cuMemcpyHtoD_v2": (_EXIT, 3, lambda w: copies.to_device(w[0], w[1], w[2], 0, waits=True)),
            "cuMemcpyDtoH_v2": (_EXIT, 3, lambda w: copies.to_host(w[0], w[1], w[2], 0, waits=True)),
            "cuMemcpy2DAsync_v2": (_ENTER, 2, lambda w: copies.rectangle(w[0], w[1])),
            "cuMemcpyBatchAsync_v2": (_ENTER, 8, lambda w: copies.batch(w[0], w[1], w[2], w[3], w[7])),
            "cuEventRecord": (_EXIT, 2, lambda w: observer.event_record(w[0], w[1])),
            "cuEventRecordWithFlags": (_EXIT, 2, lambda w: observer.event_record(w[0], w[1])),
            "cuStreamWaitEvent": (_EXIT, 2, lambda w: observer.event_wait(w[1], w[0])),
            "cuEventSynchronize": (_ENTER, 1, lambda w: observer.acquire("event", w[0])),
            "cuStreamSynchronize": (_ENTER, 1, lambda w: observer.acquire("stream", w[0])),
            "cuStreamDestroy_v2": (_ENTER, 1, lambda w: observer.stream_free(w[0])),
            "cuEventDestroy_v2": (_ENTER, 1, lambda w: observer.event_free(w[0])),
            "cuStreamBeginCapture": (_EXIT, 1, lambda w: observer.capture_begin(w[0])),
            "cuStreamBeginCapture_v2": (_EXIT, 1, lambda w: observer.capture_begin(w[0])),
            _END: (_EXIT, 2, lambda w: observer.capture_end(w[0], _at(w[1]))),
            "cuGraphInstantiateWithFlags": (_EXIT, 2, self._instantiated),
            "cuGraphInstantiateWithParams": (_EXIT, 2, self._instantiated),
            "cuGraphLaunch": (_ENTER, 2, lambda w: observer.launch(w[0], w[1])),
            "cuGraphExecUpdate": (_EXIT, 2, lambda w: observer.instantiated(w[1], w[0])),
            "cuGraphExecUpdate_v2": (_EXIT, 2, lambda w: observer.instantiated(w[1], w[0])),
            "cuGraphExecDestroy": (_ENTER, 1, lambda w: observer.graph_free(w[0])),
            "cuGraphDestroy": (_ENTER, 1, lambda w: observer.graph_free(w[0])),
            "cuMemFreeHost": (_ENTER, 1, lambda w: copies.freed(w[0])),
            "cuMemHostUnregister": (_ENTER, 1, lambda w: copies.freed(w[0])),
            "cuMemHostAlloc": (_EXIT, 1, lambda w: copies.forget()),
            "cuMemAllocHost_v2": (_EXIT, 1, lambda w: copies.forget()),
            "cuMemHostRegister_v2": (_EXIT, 1, lambda w: copies.forget()),
        }
        for name in ("cuCtxSynchronize", "cuCtxSynchronize_v2"):
            table[name] = (_ENTER, 0, lambda w: observer.acquire("device", None))
        # per-thread default streams have entry points of their own, with the same arguments
        twins = {f"{name}_{end}": entry for name, entry in table.items() for end in ("ptsz", "ptds")}
        self.table = {**table, **twins}

    def _instantiated(self, words: tuple[int, ...]) -> None:
        self._o.instantiated(words[1], _at(words[0]))
