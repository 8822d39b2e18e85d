"""Operations that write what they are given: in place, into `out=`, or into a buffer on the side."""

from __future__ import annotations

from typing import Any

from racecheck.errors import UnsupportedOperation
from racecheck.trace import records as r
from racecheck.virtual.arguments import Arguments, mixed, spans_of_all
from racecheck.virtual.calls import Call, run_raw
from racecheck.virtual.dispatch import empty, wait
from racecheck.virtual.machine import Machine
from racecheck.virtual.ops import INDEXING, OpInfo, Shape, aten, has_mask
from racecheck.virtual.shapes import Outcome, shape_of
from racecheck.virtual.tensor import DeviceTensor

_OVERWRITES = {aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default}


def metadata_only(info: OpInfo, args: Any, kwargs: Any) -> DeviceTensor:
    """`transpose_`, `squeeze_` and their kin: the tensor changes its shape, no byte moves."""
    tensor: DeviceTensor = args[0]
    alias = run_raw(aten.alias.default, (tensor.plain(),), {})
    run_raw(info.func, (alias, *args[1:]), kwargs)
    tensor.rebind(DeviceTensor(alias, tensor.block, tensor.block.device))
    return tensor


def in_place(
    state: Machine,
    info: OpInfo,
    args: Any,
    kwargs: Any,
    call: Call,
    given: Arguments,
    expected: Outcome | None,
) -> Any:
    """Run an operation that mutates arguments; what it returns besides them gets memory of its own."""
    targets: dict[int | str, Any] = {i: args[i] for i in info.written if i < len(args)}
    targets |= {name: kwargs[name] for name in info.written_names if name in kwargs}
    flat = [
        t for target in targets.values() for t in (target if isinstance(target, (list, tuple)) else [target])
    ]
    flat = [t for t in flat if t is not None]
    usable = given.all()
    if any(all(t is not known for known in usable) for t in flat):
        raise mixed("cpu", f"cuda:{given.device}")
    if expected is None and info.name.endswith("out"):
        expected = _resize_by_data(state, info, call, given, targets)
    elif expected is not None and expected.resized:
        _resize(state, info, targets, expected.resized)
    if expected is not None and expected.resized:
        given = Arguments(state, args, kwargs)
        call.args, call.kwargs = given.args, given.kwargs
    fresh = _fresh(state, info, call, given, expected)
    only_written = info.name.endswith("out") or info.func in _OVERWRITES
    reads = spans_of_all([t for t in given.all() if not (only_written and any(t is w for w in flat))])
    writes = spans_of_all([*flat, *fresh])
    node = r.Node(kind="kernel", name=info.name, reads=reads, writes=writes, partial=info.partial)
    # PyTorch turns a mask into indices first, and waits for their number, unless it fills with one value
    masked = info.func in INDEXING and has_mask(call.args[1]) and call.args[2].numel() != 1
    state.issue(node, call, stream=state.stream(given.device), blocking=masked, loc=call.loc)
    rest = iter(fresh)
    results = tuple(targets.get(where) if where is not None else next(rest, None) for where in info.returns)
    return None if not results else results[0] if len(results) == 1 else results


def _fresh(
    state: Machine, info: OpInfo, call: Call, given: Arguments, expected: Outcome | None
) -> list[DeviceTensor]:
    """The outputs of a mutating operation that are none of its arguments."""
    if None not in info.returns:
        return []
    if expected is None or len(expected.outs) != len(info.returns):
        raise UnsupportedOperation(
            f"virtual CUDA cannot tell the shapes of what {info.name} returns; "
            "use a variant without side effects"
        )
    made = [
        empty(state, out, given.device) if where is None and isinstance(out, Shape) else None
        for where, out in zip(info.returns, expected.outs, strict=True)
    ]
    call.outs = [
        out.raw if out is not None else None
        for out, shape in zip(made, expected.outs, strict=True)
        if isinstance(shape, Shape)
    ]
    return [out for out in made if out is not None]


def _resize(state: Machine, info: OpInfo, targets: dict[int | str, Any], resized: dict[Any, Any]) -> None:
    """`out=` tensors of another shape: PyTorch resizes them. Empty ones get memory here."""
    for where, shapes in resized.items():
        target = targets[where]
        for tensor, shape in zip(
            target if isinstance(target, (list, tuple)) else [target], shapes, strict=True
        ):
            if shape is None:
                continue
            if tensor.numel():
                raise UnsupportedOperation(
                    f"virtual CUDA resizes only an empty out=: {info.name} needs shape "
                    f"{list(shape.size)}, but out has {list(tensor.shape)}; "
                    "pass torch.empty(0, device='cuda') or the right shape"
                )
            tensor.rebind(empty(state, shape, tensor.block.device))


def _resize_by_data(
    state: Machine, info: OpInfo, call: Call, given: Arguments, targets: dict[int | str, Any]
) -> Outcome:
    """`out=` of an operation whose shape depends on the data: the host waits for it, then allocates."""
    box: list[Any] = []

    def measure() -> None:
        targets_raw = [call.kwargs[name] for name in info.written_names if name in call.kwargs]
        spare = {n: t.clone() for n, t in call.kwargs.items() if any(t is raw for raw in targets_raw)}
        info.run(*call.args, **{**call.kwargs, **spare})
        box.append({name: [shape_of(t)] for name, t in spare.items()})

    node = r.Node(kind="kernel", name=info.name, reads=spans_of_all(given.tensors))
    wait(state, node, lambda: run_raw(measure, (), {}), given.device)
    changed = {n: s for n, s in box[0].items() if s[0].size != tuple(targets[n].shape)}
    _resize(state, info, targets, changed)
    return Outcome([], None, changed)
