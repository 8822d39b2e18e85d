"""What an operation does to memory, read off its schema, and what its outputs look like.

Nothing here is a list of operations: the schema says which arguments are written and which results are
views; PyTorch's own shape inference (meta tensors) says what comes out. Shapes come back every step, so
both answers are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

aten = torch.ops.aten

#: Their schemas promise a fresh result, but the result is the input's memory.
VIEWS_IN_DISGUISE = {aten._unsafe_view.default, aten._reshape_alias.default, aten.lift_fresh.default}


@dataclass(slots=True)
class OpInfo:
    """The memory behaviour of one overload."""

    func: Any
    name: str
    is_view: bool
    written: tuple[int, ...]  # positions of mutated arguments
    written_names: tuple[str, ...]  # mutated keyword arguments (out=)
    random: bool
    composite: bool  # made of other operations: PyTorch takes it apart, unless in inference mode
    generator: int | None  # position of the `generator` argument; -1: keyword only
    shapes: dict[Any, Any] = field(default_factory=dict)

    @property
    def mutates(self) -> bool:
        """Does it write any argument?"""
        return bool(self.written or self.written_names)


_infos: dict[Any, OpInfo] = {}


def op_info(func: Any) -> OpInfo:
    """The memory behaviour of overload `func`, from its schema."""
    info = _infos.get(func)
    if info is None:
        info = _infos[func] = _read_schema(func)
    return info


def _read_schema(func: Any) -> OpInfo:
    schema = func._schema
    written, names, generator = [], [], None
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            names.append(argument.name) if argument.kwarg_only else written.append(position)
        if argument.name == "generator":
            generator = -1 if argument.kwarg_only else position
    aliases = any(out.alias_info is not None and not out.alias_info.is_write for out in schema.returns)
    view = (aliases and not written and not names) or func in VIEWS_IN_DISGUISE
    name = str(func).removeprefix("aten.").removesuffix(".default")
    return OpInfo(
        func, name, view, tuple(written), tuple(names), _is_random(func), _is_composite(func), generator
    )


def _is_random(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


def _is_composite(func: Any) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


@dataclass(slots=True)
class Shape:
    """One output tensor: what to allocate for it."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    nbytes: int


class DataDependent(Exception):
    """The output's shape or value depends on the data: CUDA waits for it, and so must we."""


def output_shapes(info: OpInfo, args: Any, kwargs: Any, key: Any) -> tuple[list[Any], Any]:
    """Flat outputs (a `Shape` for each tensor, other values as they are) and their tree.

    `args` and `kwargs` hold raw CPU tensors. `key` identifies their shapes; None is never kept.

    Raises:
        DataDependent: shape inference needs the data.
    """
    known = info.shapes.get(key) if key is not None else None
    if known is None:
        known = _infer(info, args, kwargs)
        if key is not None:
            info.shapes[key] = known
    return known


#: Up to this many elements an operation is tried out on zeros; above, on meta tensors.
_SMALL = 1 << 20

_DYNAMIC = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


def _infer(info: OpInfo, args: Any, kwargs: Any) -> tuple[list[Any], Any]:
    """Run the operation on stand-ins of the same shapes.

    Zeros on the CPU are tried first: PyTorch's shape functions are Python code that imports its compiler.
    """
    leaves, spec = tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if _waits_for_data(info, args, kwargs):
        raise DataDependent(info.name)
    small = sum(tensor.numel() for tensor in tensors) <= _SMALL and not info.random
    for stand_in in (_zeros, _meta) if small else (_meta,):
        example_args, example_kwargs = tree_unflatten([stand_in(leaf) for leaf in leaves], spec)
        try:
            result = info.func(*example_args, **example_kwargs)
        except (NotImplementedError, RuntimeError, IndexError, ValueError) as error:
            problem = error
            continue
        outs, out_spec = tree_flatten(result)
        return [_shape(out) if isinstance(out, torch.Tensor) else out for out in outs], out_spec
    raise DataDependent(str(problem)) from problem


_INDEXING = {aten.index.Tensor, aten._unsafe_index.Tensor}


def _waits_for_data(info: OpInfo, args: Any, kwargs: Any) -> bool:
    """Must the host know the data to know the output's shape?

    The tags say so of whole operators: an index is only counted if it is a mask, and `repeat_interleave`
    is told its size when the caller knows it.
    """
    if info.func in _INDEXING:
        return has_mask(args[1])
    if info.func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is not None:
        return False
    return bool(_DYNAMIC & set(info.func.tags))


def has_mask(indices: Any) -> bool:
    """Is one of the index tensors a mask?"""
    return any(isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices)


def _zeros(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        extent = (
            0
            if leaf.numel() == 0
            else 1 + sum((n - 1) * st for n, st in zip(leaf.shape, leaf.stride(), strict=True))
        )
        return torch.zeros(extent, dtype=leaf.dtype).as_strided(leaf.shape, leaf.stride())
    return leaf


def _meta(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
    if isinstance(leaf, torch.device):
        return torch.device("meta")
    if isinstance(leaf, torch.Generator):
        return None
    return leaf


def _shape(out: torch.Tensor) -> Shape:
    size, stride = tuple(out.shape), tuple(out.stride())
    elements = 0 if 0 in size else 1 + sum((n - 1) * st for n, st in zip(size, stride, strict=True))
    return Shape(size, stride, out.dtype, elements * out.element_size())


def shape_key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A hashable description of arguments that fixes the output shapes, or None if there is none."""
    try:
        key = (tuple(map(_key, args)), tuple((k, _key(v)) for k, v in kwargs.items()) if kwargs else ())
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
    return value
