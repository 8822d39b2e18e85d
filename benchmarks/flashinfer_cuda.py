"""FlashInfer's wrappers under audit on a GPU: `python benchmarks/flashinfer_cuda.py [--print] [WRAPPER...]`.

Each of four wrappers is planned step after step while a gate holds the stream, as an engine that runs ahead
plans it. One wrapper for all steps: the audit must find the race on its pinned workspace, and the device
workspace of step 0 must come to hold a later plan's bytes (no kernel is run on those: it may hang).
A wrapper for each of two slots, waited for: clean, and each device workspace holds its own plan. `blocking`:
the plan copies its host indices with a wait, which protects the workspace by accident. Writes
benchmarks/results/flashinfer_cuda.json.
"""

from __future__ import annotations

import faulthandler
import json
import platform
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch

import racecheck
from racecheck.cuda.gate import Gate
from racecheck.detect.syncs import audit_syncs
from racecheck.staging.named import named

RESULTS = Path(__file__).resolve().parent / "results" / "flashinfer_cuda.json"
STEPS = 4
HEADS, KV_HEADS, DIM, PAGE = 8, 4, 128, 16
TYPES = {"q_data_type": torch.bfloat16, "kv_data_type": torch.bfloat16}

Plan = Callable[[Any, int, bool], None]


def ints(*values: int) -> torch.Tensor:
    """int32 on the host."""
    return torch.tensor(values, dtype=torch.int32)


def offsets(lengths: list[int]) -> torch.Tensor:
    """Where each begins, and the end."""
    return torch.cumsum(ints(0, *lengths), 0, dtype=torch.int32)


def layout(step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Page offsets, pages and last-page lengths of four requests whose contexts differ from step to step."""
    pages = offsets([3 + 40 * ((step + k) % 4) for k in range(4)])
    return (
        pages,
        torch.arange(int(pages[-1]), dtype=torch.int32),
        ints(*(1 + (step + k) % PAGE for k in range(4))),
    )


def plan_decode(wrapper: Any, step: int, non_blocking: bool) -> None:
    """One token a request."""
    wrapper.plan(*layout(step), HEADS, KV_HEADS, DIM, PAGE, non_blocking=non_blocking, **TYPES)


def plan_prefill(wrapper: Any, step: int, non_blocking: bool) -> None:
    """Several tokens a request."""
    tokens = offsets([2 + (step + k) % 5 for k in range(4)])
    wrapper.plan(
        tokens, *layout(step), HEADS, KV_HEADS, DIM, PAGE, causal=True, non_blocking=non_blocking, **TYPES
    )


def plan_ragged(wrapper: Any, step: int, non_blocking: bool) -> None:
    """Packed queries and keys without pages."""
    tokens = offsets([2 + (step + k) % 5 for k in range(4)])
    wrapper.plan(tokens, tokens, HEADS, KV_HEADS, DIM, causal=True, non_blocking=non_blocking, **TYPES)


def plan_mla(wrapper: Any, step: int, non_blocking: bool) -> None:
    """Latent attention; its plan has no switch for waiting."""
    pages, indices, last = layout(step)
    lengths = (pages[1:] - pages[:-1] - 1) * PAGE + last
    wrapper.plan(
        ints(0, 1, 2, 3, 4),
        pages,
        indices,
        lengths,
        16,
        512,
        64,
        PAGE,
        False,
        1.0,
        torch.bfloat16,
        torch.bfloat16,
    )


def makers() -> dict[str, tuple[Callable[[], Any], Plan]]:
    """How each wrapper is made and planned."""
    import flashinfer

    scratch = torch.zeros(128 << 20, dtype=torch.uint8, device="cuda")
    return {
        "decode": (lambda: flashinfer.BatchDecodeWithPagedKVCacheWrapper(scratch, "HND"), plan_decode),
        "prefill": (lambda: flashinfer.BatchPrefillWithPagedKVCacheWrapper(scratch, "HND"), plan_prefill),
        "ragged": (lambda: flashinfer.BatchPrefillWithRaggedKVCacheWrapper(scratch, "HND"), plan_ragged),
        "mla": (lambda: flashinfer.mla.BatchMLAPagedAttentionWrapper(scratch), plan_mla),
    }


def workspace(wrapper: Any) -> torch.Tensor:
    """The device's copy of the schedule."""
    return wrapper._int_workspace_buffer  # type: ignore[no-any-return]


def make(name: str) -> tuple[Any, Plan]:
    """A wrapper whose pinned workspace has a name, and its plan."""
    build, plan = makers()[name]
    wrapper = build()
    named(wrapper._pin_memory_int_workspace_buffer, f"{name}.schedule")
    return wrapper, plan


def alone(name: str, step: int) -> bytes:
    """What the device workspace holds when `step` is planned and nothing else is."""
    wrapper, plan = make(name)
    workspace(wrapper).zero_()
    wrapper._pin_memory_int_workspace_buffer.zero_()
    torch.cuda.synchronize()
    plan(wrapper, step, True)
    torch.cuda.synchronize()
    return bytes(workspace(wrapper).cpu().numpy())


def held(name: str, wrappers: list[tuple[Any, Plan]], steps: int) -> list[bytes]:
    """Plan `steps` steps while the stream is held; what each wrapper's workspace holds at the end."""
    for wrapper, _ in wrappers:
        workspace(wrapper).zero_()
        wrapper._pin_memory_int_workspace_buffer.zero_()
    torch.cuda.synchronize()
    after = torch.cuda.Event()
    with Gate(torch.cuda.current_stream()) as gate:
        for step in range(steps):
            wrapper, plan = wrappers[step % len(wrappers)]
            plan(wrapper, step, True)
        after.record()
        assert not after.query(), "the window was not open"
        gate.open()
    torch.cuda.synchronize()
    return [bytes(workspace(wrapper).cpu().numpy()) for wrapper, _ in wrappers]


def audited(name: str, slots: int, *, waits: bool, exact: bool = False, non_blocking: bool = True) -> Any:
    """An audit over `STEPS` plans, each slot waited for or not."""
    wrappers = [make(name) for _ in range(slots)]
    done = [torch.cuda.Event() for _ in range(slots)]
    with racecheck.audit(exact=exact) as audit:
        for step in range(STEPS):
            slot = step % slots
            if waits:
                done[slot].synchronize()
            wrapper, plan = wrappers[slot]
            plan(wrapper, step, non_blocking)
            done[slot].record()
    torch.cuda.synchronize()
    return audit


def examine(name: str) -> dict[str, Any]:
    """Everything about one wrapper."""
    first, second = alone(name, 0), alone(name, 1)
    one = held(name, [make(name)], 1)[0]
    mixed = held(name, [make(name)], 2)[0]
    apart = held(name, [make(name), make(name)], 2)
    racing, exact = audited(name, 1, waits=False), audited(name, 1, waits=False, exact=True)
    safe = audited(name, 2, waits=True)
    out: dict[str, Any] = {
        "one wrapper": racing.verdict,
        "one wrapper, exact": exact.verdict,
        "written at": str(exact.findings[0].second.loc) if exact.findings else None,
        "two wrappers": safe.verdict,
        "alone is repeatable": one == first,
        "step 0 holds its own plan": mixed[: len(first)] == first,
        "step 0 holds the later plan": mixed == second,
        "two wrappers hold their own": apart == [first, second],
    }
    if name != "mla":
        blocking = audited(name, 1, waits=False, non_blocking=False)
        out["blocking copies of indices"] = blocking.verdict
        out["their waits are"] = sorted(
            {f"{sync.what} at {sync.loc}: {sync.last or sync.role}" for sync in audit_syncs(blocking.trace)}
        )
    return out


def main() -> None:
    """Examine the wrappers named, or all; write and print it."""
    import flashinfer

    faulthandler.dump_traceback_later(400, exit=True)
    only_print = "--print" in sys.argv
    names = [name for name in sys.argv[1:] if name != "--print"] or ["decode", "prefill", "ragged", "mla"]
    result: dict[str, Any] = {
        "date": date.today().isoformat(),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "flashinfer": flashinfer.__version__,
        "python": platform.python_version(),
    }
    for name in names:
        result[name] = examine(name)
        for key, value in result[name].items():
            print(f"{name:8} {key:30} {value}", flush=True)
    if only_print:
        print(json.dumps(result))
    else:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
