"""What an operation's results look like, found by trying it out on stand-ins of the same shapes.

Shapes come back every step, so answers are kept, a bounded number for each operator. Trying it out is also
where wrong arguments show: the error is raised at the call, as on a GPU.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from racecheck.errors import UnsupportedOperation
from racecheck.virtual.ops import OpInfo, Shape, aten, has_mask
from racecheck.virtual.raw import computing


@dataclass(slots=True)
class Outcome:
    """Flat results (a `Shape` for each tensor, other values as they are), their tree, and resized `out=`."""

    outs: list[Any]
    tree: Any
    resized: dict[int | str, list[Shape | None]]


class DataDependent(Exception):
    """The output's shape or value depends on the data: CUDA waits for it, and so must we."""


#: Kept answers for each operator: enough for an engine's batch sizes, and no leak in a long run.
MAX_KEPT = 512

#: Up to this many elements an operation is tried out on zeros; above, on meta tensors.
_SMALL = 1 << 20

_DYNAMIC = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
_MASKABLE = {
    aten.index.Tensor,
    aten._unsafe_index.Tensor,
    aten.index_put_.default,
    aten.index_put.default,
    aten._index_put_impl_.default,
}


def outcome(info: OpInfo, args: Any, kwargs: Any) -> Outcome:
    """What the operation will return for arguments of these shapes; they hold raw CPU tensors.

    Raises:
        DataDependent: shape inference needs the data.
        Exception: the operation's own complaint about its arguments.
    """
    key = _shape_key(info, args, kwargs)
    known = info.shapes.get(key) if key is not None else None
    if known is None:
        known = _infer(info, args, kwargs)
        if key is not None:
            info.shapes[key] = known
            if len(info.shapes) > MAX_KEPT:
                info.shapes.popitem(last=False)
    else:
        info.shapes.move_to_end(key)
    return known


def stand_in(leaf: Any) -> Any:
    """A zero tensor with the layout of `leaf`; generators are not drawn from."""
    if isinstance(leaf, torch.Tensor):
        extent = (
            0
            if leaf.numel() == 0
            else 1 + sum((n - 1) * st for n, st in zip(leaf.shape, leaf.stride(), strict=True))
        )
        return torch.zeros(extent, dtype=leaf.dtype).as_strided(leaf.shape, leaf.stride())
    return None if isinstance(leaf, torch._C.Generator) else leaf


def _infer(info: OpInfo, args: Any, kwargs: Any) -> Outcome:
    """Try it out: on zeros (PyTorch's shape functions import its compiler), then on meta tensors."""
    if _waits_for_data(info, args, kwargs):
        raise DataDependent(info.name)
    leaves, spec = tree_flatten((args, kwargs))
    small = sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor)) <= _SMALL
    problems: list[Exception] = []
    seed = torch.default_generator.get_state() if info.random else None
    for kind in (stand_in, _meta) if small else (_meta,):
        try:
            with computing(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                examples = tree_unflatten([kind(leaf) for leaf in leaves], spec)
                return _try(info, args, kwargs, *examples)
        except (NotImplementedError, RuntimeError, IndexError, ValueError, TypeError) as error:
            problems.append(error)
        finally:
            if seed is not None:
                torch.default_generator.set_state(seed)
    if isinstance(problems[-1], NotImplementedError) or "meta" in str(problems[-1]):
        raise DataDependent(info.name) from problems[0]  # meta tensors cannot tell; the data will
    raise problems[0]


def _try(info: OpInfo, args: Any, kwargs: Any, example_args: Any, example_kwargs: Any) -> Outcome:
    result = info.run(*example_args, **example_kwargs)
    if any(leaf.layout != torch.strided for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)):
        raise UnsupportedOperation(f"virtual CUDA has no sparse tensors ({info.name}); keep them on the CPU")
    outs, tree = tree_flatten(result)
    resized: dict[int | str, list[Shape | None]] = {}
    pairs: list[tuple[int | str, Any, Any]] = [
        (i, args[i], example_args[i]) for i in info.written if i < len(args)
    ]
    pairs += [(n, kwargs[n], example_kwargs[n]) for n in info.written_names if n in kwargs]
    for where, given, tried in pairs:
        givens = given if isinstance(given, (list, tuple)) else [given]
        trieds = tried if isinstance(tried, (list, tuple)) else [tried]
        changes = [
            None if before is None or before.shape == after.shape else shape_of(after)
            for before, after in zip(givens, trieds, strict=True)
        ]
        if any(change is not None for change in changes):
            resized[where] = changes
    return Outcome([shape_of(out) if isinstance(out, torch.Tensor) else out for out in outs], tree, resized)


def _waits_for_data(info: OpInfo, args: Any, kwargs: Any) -> bool:
    """Must the host know the data to know the output's shape?

    The tags say so of whole operators: an index is only counted if it is a mask, and `repeat_interleave`
    is told its size when the caller knows it.
    """
    if info.func in _MASKABLE:
        return has_mask(args[1])
    if info.func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is not None:
        return False
    return bool(_DYNAMIC & set(info.func.tags))


def _meta(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
    if isinstance(leaf, torch.device):
        return torch.device("meta")
    return None if isinstance(leaf, torch._C.Generator) else leaf


def shape_of(out: torch.Tensor) -> Shape:
    """What to allocate for a tensor like `out`."""
    size, stride = tuple(out.shape), tuple(out.stride())
    elements = 0 if 0 in size else 1 + sum((n - 1) * st for n, st in zip(size, stride, strict=True))
    return Shape(size, stride, out.dtype, elements * out.element_size())


def _shape_key(info: OpInfo, args: Any, kwargs: Any) -> Any:
    """A hashable description of arguments that fixes the output shapes, or None if there is none."""
    scalars = info.scalars
    try:
        key = (
            tuple(
                type(arg) if i in scalars and not isinstance(arg, torch.Tensor) else _key(arg)
                for i, arg in enumerate(args)
            ),
            tuple(
                (k, type(v) if k in scalars and not isinstance(v, torch.Tensor) else _key(v))
                for k, v in kwargs.items()
            )
            if kwargs
            else (),
        )
        hash(key)
    except TypeError:
        return None
    return key


def _key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (value.shape, value.stride(), value.dtype)
    if isinstance(value, (list, tuple)):
        return tuple(map(_key, value))
    if isinstance(value, (bool, float, int)):
        return (type(value), value)
    if isinstance(value, torch._C.Generator):
        return torch._C.Generator  # not torch.Generator: a context replaces that name
    return value
