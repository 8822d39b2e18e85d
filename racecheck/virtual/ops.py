"""What an operation does to memory, read off its schema.

The schema says which arguments are written, which results are views and which results are an argument
again. The two tables below name the operators whose schemas do not tell the truth.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from racecheck.errors import UnsupportedOperation, UsageError
from racecheck.virtual.blas import PRODUCTS
from racecheck.virtual.substitutes import SUBSTITUTES

aten = torch.ops.aten

#: Their schemas promise a fresh result, but the result is the input's memory.
VIEWS_IN_DISGUISE = {aten._unsafe_view.default, aten._reshape_alias.default, aten.lift_fresh.default}

#: Their schemas show no write, yet in training they update the running statistics they are given.
_RUNNING_STATS = ("running_mean", "running_var")
HIDDEN_WRITES: dict[Any, tuple[str, ...]] = {
    aten.native_batch_norm.default: _RUNNING_STATS,
    aten._batch_norm_impl_index.default: _RUNNING_STATS,
    aten.cudnn_batch_norm.default: _RUNNING_STATS,
    aten.miopen_batch_norm.default: _RUNNING_STATS,
    aten.batch_norm_update_stats.default: _RUNNING_STATS,
    aten.batch_norm_gather_stats.default: _RUNNING_STATS,
    aten.batch_norm_gather_stats_with_counts.default: _RUNNING_STATS,
}

#: Index tensors may live on the CPU: PyTorch copies them over first, and waits.
INDEXING = {
    aten.index.Tensor,
    aten.index_put_.default,
    aten.index_put.default,
    aten._index_put_impl_.default,
}

#: They write the elements that an index or a mask picks and leave the others of their target as they are.
PARTIAL = {
    "_index_put_impl_", "embedding_renorm_", "fill_diagonal_", "index_add_", "index_copy_", "index_fill_",
    "index_put_", "index_reduce_", "masked_fill_", "masked_scatter_", "put_", "scatter_", "scatter_add_",
    "scatter_reduce_",
}  # fmt: skip

#: `arange` takes its size from its scalars; every other operator only their type.
_SIZED_BY_SCALARS = ("aten::arange", "aten::range")


@dataclass(slots=True)
class OpInfo:
    """The memory behaviour of one overload."""

    func: Any
    run: Callable[..., Any]  # what computes it on CPU tensors
    name: str
    is_view: bool
    written: tuple[int, ...]  # positions of mutated arguments
    written_names: tuple[str, ...]  # mutated keyword arguments (out=)
    hidden: tuple[tuple[int, str], ...]  # arguments written although the schema does not say so
    returns: tuple[int | str | None, ...]  # for each result: the argument it is; None: a fresh tensor
    scalars: frozenset[int | str]  # arguments of which only the type matters for shapes
    random: bool
    renames: bool  # changes the shape of its argument and no byte: `transpose_`
    composite: bool  # made of other operations: PyTorch takes it apart, unless in inference mode
    generator: int | None  # position of the `generator` argument; -1: keyword only
    registered: bool  # `run` was given with `register`
    product: bool  # cuBLAS computes it
    has_kernel: bool = False  # something can compute it: asked once
    shapes: OrderedDict[Any, Any] = field(default_factory=OrderedDict)

    @property
    def substituted(self) -> bool:
        """Is it computed by something else than its own CPU kernel?"""
        return self.run is not self.func

    @property
    def partial(self) -> bool:
        """May it leave parts of its target as they are? Of an operator not PyTorch's own nobody knows."""
        return self.func.namespace != "aten" or self.name.partition(".")[0] in PARTIAL

    @property
    def mutates(self) -> bool:
        """Does it write any argument?"""
        return bool(self.written or self.written_names)


_infos: dict[Any, OpInfo] = {}
_registered: dict[str, Callable[..., Any]] = {}


def op_info(func: Any) -> OpInfo:
    """The memory behaviour of overload `func`, from its schema."""
    info = _infos.get(func)
    if info is None:
        info = _infos[func] = _read_schema(func)
    return info


def register(operator: Any, cpu_function: Callable[..., Any]) -> None:
    """Compute `operator` with `cpu_function` on the virtual device, when it has no CPU kernel of its own.

    `operator` is an overload (`torch.ops.mylib.gather.default`) or its name ("mylib::gather", or
    "mylib::gather.out" for an overload other than the default). `cpu_function` gets the operator's
    arguments with CPU tensors in place of device tensors. It writes into those the schema marks as mutated,
    returns fresh tensors for the rest, and must not keep any of them.

    Besides device tensors (at least one) the operator may be given pinned CPU tensors: it uses them in place
    when it retires, as a kernel uses mapped host memory (zero copy). The pinned pool does not wait for it.

    Raises:
        UsageError: `operator` names none, or `cpu_function` cannot be called.
    """
    if not isinstance(operator, (str, torch._ops.OpOverload)) or not callable(cpu_function):
        raise UsageError(
            "register() needs an overload or its name, and a function, "
            f"not {operator!r:.40} and {cpu_function!r:.40}"
        )
    name = operator if isinstance(operator, str) else operator.name()
    if "::" not in name:
        raise UsageError(f'register() needs a name with its namespace, as "mylib::gather", not {name!r:.40}')
    _registered[name.removesuffix(".default")] = cpu_function
    for func in [func for func in _infos if func.name().removesuffix(".default") == name]:
        del _infos[func]


def require_kernel(info: OpInfo) -> None:
    """Raise the error for an operator that nothing can compute here.

    Raises:
        UnsupportedOperation: it has neither a CPU kernel nor a registered function.
    """
    if info.has_kernel:
        return
    name = info.func.name()
    if not info.substituted and not torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CPU"):
        raise UnsupportedOperation(
            f"virtual CUDA cannot run {name}: it has no CPU kernel; "
            f'give it one with racecheck.virtual.register("{name}", cpu_function)'
        )
    info.has_kernel = True


def _read_schema(func: Any) -> OpInfo:
    schema = func._schema
    written, names, generator = [], [], None
    scalars: set[int | str] = set()
    aliased: dict[str, int | str] = {}
    hidden = []
    sized = func.name().split(".")[0] in _SIZED_BY_SCALARS
    for position, argument in enumerate(schema.arguments):
        where = argument.name if argument.kwarg_only else position
        if argument.alias_info is not None:
            aliased.update(dict.fromkeys(argument.alias_info.before_set, where))
            if argument.alias_info.is_write:
                names.append(argument.name) if argument.kwarg_only else written.append(position)
        # a number given for a tensor (`x + 1`) arrives as a number too
        if str(argument.type).removeprefix("Optional[").rstrip("]") in ("number", "Tensor") and not sized:
            scalars |= {position, argument.name}
        if argument.name == "generator":
            generator = -1 if argument.kwarg_only else position
        if argument.name in HIDDEN_WRITES.get(func, ()):
            hidden.append((position, argument.name))
    aliases = any(out.alias_info is not None and not out.alias_info.is_write for out in schema.returns)
    view = (aliases and not written and not names) or func in VIEWS_IN_DISGUISE
    full = func.name().removesuffix(".default")
    return OpInfo(
        func,
        _registered.get(full) or SUBSTITUTES.get(func, func),
        str(func).removeprefix("aten.").removesuffix(".default"),
        view,
        tuple(written),
        tuple(names),
        tuple(hidden),
        tuple(_argument_of(out, aliased) for out in schema.returns),
        frozenset(scalars),
        torch.Tag.nondeterministic_seeded in func.tags,
        torch.Tag.inplace_view in func.tags,
        _is_composite(func),
        generator,
        full in _registered,
        func.namespace == "aten" and func.overloadpacket.__name__ in PRODUCTS,
    )


def _argument_of(out: Any, aliased: dict[str, int | str]) -> int | str | None:
    if out.alias_info is None:
        return None
    return next((aliased[name] for name in out.alias_info.before_set if name in aliased), None)


def _is_composite(func: Any) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


def has_mask(indices: Any) -> bool:
    """Is one of the index tensors a mask?"""
    return any(isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices)


@dataclass(slots=True)
class Shape:
    """One output tensor: what to allocate for it."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    nbytes: int
