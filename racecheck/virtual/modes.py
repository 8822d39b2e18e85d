"""What makes unmodified code meet the virtual device: two modes, entered in every thread of the context.

The function mode rewrites "cuda" devices to the virtual backend and takes over the few calls that never
reach the dispatcher (`pin_memory`, `is_pinned`, `.tolist()`, `record_stream`). The dispatch mode sees
every operation, on device tensors and on plain CPU ones.
"""

from __future__ import annotations

from typing import Any

from torch.overrides import TorchFunctionMode

from racecheck.virtual.functions import FUNCTIONS, backend_device
from racecheck.virtual.pinning import pinned_factory


class FunctionMode(TorchFunctionMode):
    """Rewrites device arguments; see the module's text."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        handler = FUNCTIONS.get(func)
        if handler is not None:
            return handler(func, args, kwargs)
        if kwargs:
            if kwargs.get("device") is not None:
                kwargs = {**kwargs, "device": backend_device(kwargs["device"])}
            if kwargs.get("pin_memory"):
                return pinned_factory(func, args, {k: v for k, v in kwargs.items() if k != "pin_memory"})
        return func(*args, **kwargs)
