"""Plain computation: past every mode, below autograd, with nothing excluded that the numbers need.

Work retires wherever something waits for it, so also inside another operation's dispatch, where PyTorch
has switched keys off. Conjugate and negative bits are resolved by such keys: a product of `x.conj()` would
silently be one of `x`. Hence every computation starts from the same set of keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_Keys, _Key = torch._C.DispatchKeySet, torch._C.DispatchKey
_INCLUDED = _Keys(_Key.BackendSelect)
_EXCLUDED = torch._C._dispatch_tls_local_exclude_set()
for _key in (_Key.AutogradFunctionality, _Key.ADInplaceOrView, _Key.Python, _Key.PythonTLSSnapshot):
    _EXCLUDED = _EXCLUDED | _Keys(_key)


@contextmanager
def computing() -> Iterator[None]:
    """Inside, torch computes on plain tensors and nobody intervenes."""
    with torch._C._ForceDispatchKeyGuard(_INCLUDED, _EXCLUDED), torch._C.DisableTorchFunction():
        yield


_RESOLVING = (_Key.Conjugate, _Key.Negative, _Key.ZeroTensor)


_resolved: dict[int, Any] = {}


def resolving() -> Any:
    """A guard inside which conjugate and negative bits count again, as they do outside a dispatch mode."""
    excluded = torch._C._dispatch_tls_local_exclude_set()
    number = excluded.raw_repr()
    kept = _resolved.get(number)
    if kept is None:
        for key in _RESOLVING:
            excluded = excluded.remove(key)
        kept = _resolved[number] = excluded
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), kept)


def run_raw(func: Any, args: Any, kwargs: Any) -> Any:
    """Run `func` on CPU tensors, past every mode."""
    with torch._C._ForceDispatchKeyGuard(_INCLUDED, _EXCLUDED), torch._C.DisableTorchFunction():
        return func(*args, **kwargs)
