"""Every operator of PyTorch's own operator database on the virtual device against a plain CPU run.

    python benchmarks/virtual_ops.py [--only NAME] [--output benchmarks/results/virtual_ops.json]

For each operator and dtype the first samples are computed on the CPU, then on device copies of the same
inputs under lag "latest" (the database needs `pip install expecttest`). What the CPU refuses, what is not
repeatable on the CPU and operators that return uninitialised memory are left out. Counted are operators:
equal, refused with a message that says so (`UnsupportedOperation`), different, and failed otherwise.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

from racecheck.errors import UnsupportedOperation
from racecheck.virtual import virtual_cuda

DTYPES = (torch.float32, torch.int64, torch.complex64)
SAMPLES = 2
#: It wants its indices on the CPU, whatever the device of its input.
HOST_INDICES = {"tensor_split"}
UNINITIALISED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}


def run(op: Any, sample: Any, device: str | None) -> Any:
    """The operator's result, as CPU values; every call starts from the same seed and fresh inputs."""
    torch.manual_seed(5)

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            copied = leaf.detach().clone()
            stays = op.name in HOST_INDICES and leaf is not sample.input
            return copied if device is None or stays else copied.to(device)
        if isinstance(leaf, str) and leaf == "cpu" and device is not None:
            return device
        return torch.device(device) if isinstance(leaf, torch.device) and device is not None else leaf

    args, kwargs = tree_map(move, ((sample.input, *sample.args), sample.kwargs))
    with torch.no_grad():
        result = op(*args, **kwargs)
    return [leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf for leaf in tree_leaves(result)]


def same(a: Any, b: Any) -> bool:
    """Equal values, shapes and dtypes."""
    if len(a) != len(b):
        return False
    for one, two in zip(a, b, strict=True):
        if isinstance(one, torch.Tensor):
            if not isinstance(two, torch.Tensor) or one.shape != two.shape or one.dtype != two.dtype:
                return False
            if not torch.allclose(one.resolve_conj(), two.resolve_conj(), equal_nan=True):
                return False
        elif not isinstance(one, (torch.device, torch.Generator)) and one != two and one == one:
            return False
    return True


def judge(op: Any, dtype: torch.dtype) -> tuple[str, str]:
    """What became of one operator at one dtype, and why."""
    try:
        samples = list(islice(op.sample_inputs("cpu", dtype), SAMPLES))
        expected = [run(op, sample, None) for sample in samples]
        if not all(same(e, run(op, s, None)) for e, s in zip(expected, samples, strict=True)):
            return "skipped", "not repeatable on the CPU"
    except Exception as error:
        return "skipped", f"the CPU refuses: {error}"
    for sample, value in zip(samples, expected, strict=True):
        try:
            with virtual_cuda(lag="latest"):
                got = run(op, sample, "cuda")
        except UnsupportedOperation as error:
            return "refused", str(error)
        except Exception as error:
            return "failed", f"{type(error).__name__}: {error}"
        if not same(value, got):
            return "different", ""
    return "equal", ""


def main() -> None:
    """Run all of it and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    start = time.perf_counter()
    counts: dict[str, Counter[str]] = {}
    notable: dict[str, str] = {}
    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if (options.only and not name.startswith(options.only)) or op.name in UNINITIALISED:
            continue
        for dtype in DTYPES:
            if dtype not in op.dtypes:
                continue
            verdict, why = judge(op, dtype)
            kind = str(dtype).removeprefix("torch.")
            counts.setdefault(kind, Counter())[verdict] += 1
            if verdict not in ("equal", "skipped"):
                notable[f"{name} {kind}"] = f"{verdict}: {why.splitlines()[0][:200] if why else ''}"
                print(f"{name} {kind} {notable[f'{name} {kind}']}", flush=True)
    record = {
        "what": __doc__.splitlines()[0] if __doc__ else "",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "samples": SAMPLES,
        "seconds": round(time.perf_counter() - start, 1),
        "operators": {kind: dict(sorted(count.items())) for kind, count in counts.items()},
        "not equal": notable,
    }
    print(json.dumps(record["operators"]))
    if options.output:
        options.output.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
