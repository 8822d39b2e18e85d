"""`racecheck.host_function`: a Python callable in stream order, on the virtual device or a real one.

PyTorch has no name for CUDA's cudaLaunchHostFunc, yet engines use it, to hand results over without a wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from racecheck.errors import UsageError


def host_function(
    function: Callable[[], object],
    *,
    stream: torch.cuda.Stream | None = None,
    reads: Iterable[torch.Tensor] = (),
    writes: Iterable[torch.Tensor] = (),
) -> None:
    """Queue `function` on `stream` (default: the current one); it is called when the stream gets there.

    `reads` and `writes` are the CPU tensors it touches: that is what an audit judges it by. It must not call
    CUDA, directly or through torch, nor wait for anything (CUDA's rule for cudaLaunchHostFunc). In a capture
    it becomes a node of the graph, called at every replay. On the virtual device an exception in it is a
    sticky device error; on a GPU it is printed.

    Raises:
        UsageError: `function` cannot be called, `stream` is no stream, or `reads` or `writes` hold anything
            but CPU tensors.
    """
    if not callable(function):
        raise UsageError(f"host_function needs a callable, not {function!r:.60}")
    if stream is not None and not hasattr(stream, "cuda_stream"):
        raise UsageError(f"host_function needs a torch.cuda.Stream, not {stream!r:.60}")
    reads, writes = tuple(reads), tuple(writes)
    for tensor in (*reads, *writes):
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu":
            raise UsageError("host_function: a host function reads and writes CPU tensors only")
    from racecheck.virtual.machine import open_machine

    launch: Any
    if open_machine() is not None:
        from racecheck.virtual.hostfn import launch
    else:
        from racecheck.cuda.hostfn import launch
    launch(function, stream, reads, writes)
