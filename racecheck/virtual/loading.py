"""`torch.load` while a context is open: where loaded tensors go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from racecheck.virtual.refusals import refuse


def virtual_load(real: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.load`: tensors are rebuilt where they were saved or on the CPU, then moved as asked."""

    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(map_location, (str, torch.device)) and str(map_location).startswith("cuda"):
            return tree_map(_to(map_location), real(f, "cpu", *args, **kwargs))
        if isinstance(map_location, dict):
            return tree_map(_mapped(map_location.get), real(f, None, *args, **kwargs))
        if callable(map_location):
            return tree_map(_mapped(_asked(map_location)), real(f, None, *args, **kwargs))
        return real(f, map_location, *args, **kwargs)

    return load


def _to(device: Any) -> Callable[[Any], Any]:
    return lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf


def _mapped(where: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Move a device tensor to `where(its device)`; None leaves it."""

    def move(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_cuda:
            return leaf
        target = where(str(leaf.device))
        return leaf if target is None else leaf.to(target)

    return move


def _asked(map_location: Callable[[Any, str], Any]) -> Callable[[str], Any]:
    """What a function `(storage, location) -> storage` decides, seen on an empty storage."""

    def where(location: str) -> Any:
        try:
            answer = map_location(torch.UntypedStorage(0), location)
        except Exception as error:
            what = "a map_location function that moves storages"
            raise refuse(what, "give torch.load a device or a dictionary") from error
        return None if answer is None else answer.device

    return where
