"""FlashInfer as the attention backend, against the torch one: on a GPU with the extra `gpu` only."""

from __future__ import annotations

import faulthandler
from dataclasses import replace

import pytest
import torch

from racecheck.engine import Batch, Engine, EngineConfig, Entry, Parts, Request, preset
from racecheck.engine.models.spec import StackSpec
from racecheck.engine.request import Shape
from racecheck.engine.resources import KV, Attention, Extent

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
STACK = StackSpec(layers=1, hidden=64, heads=8, kv_heads=4, head_dim=128, ffn=64)
EXTENT = Extent(requests=8, tokens=64, length=64, rows=9)


def request(index: int) -> Request:
    """A request that only holds pages."""
    return Request(f"r{index}", 0, 8, 8, 1.0, index, [0] * 8)


def attend(make, batches: list[Batch], shape: Shape, label: str) -> list[torch.Tensor]:
    """What attention over random states gives for each of `batches`, planned one after the other."""
    torch.manual_seed(0)
    kv = KV("kv", EXTENT, STACK, torch.bfloat16, 16)
    attention = make("attention", EXTENT, kv, torch.bfloat16)
    for resource in (kv, attention):
        resource.open(label, "main", 2, [shape])
        resource.build()
    out = []
    for number, batch in enumerate(batches):
        for entry in batch.entries:
            if entry.start == 0 or number == 0:
                kv.reserve(entry.id, (), EXTENT.length)
        slot = number % 2
        for resource in (kv, attention):
            resource.declare_step(batch)
            resource.plan(batch.step, label, slot)
        run_shape = shape if label != "eager" else Shape(batch.size, batch.num_tokens)
        q, k, v = (
            torch.randn(run_shape.tokens, heads, 128, device="cuda", dtype=torch.bfloat16)
            for heads in (8, 4, 4)
        )
        run = attention.begin(slot, attention.schedule(label, slot, run_shape))
        out.append(run(0, q * 128**-0.5, k, v)[: batch.num_tokens].float().cpu())
    return out


@needs_gpu
@pytest.mark.parametrize("label", ["eager", "decode"])
def test_both_backends_attend_alike(label):
    """Packed prefills, then decodes of the same requests: bfloat16 rounding apart."""
    flashinfer = pytest.importorskip("flashinfer")
    from racecheck.engine.resources.flashinfer import FlashInferAttention

    assert flashinfer.__version__
    faulthandler.dump_traceback_later(300, exit=True)
    asks = [request(index) for index in range(3)]
    prefill = Batch(0, "prefill", tuple(Entry(r, i + 1, 0, 5 + i) for i, r in enumerate(asks)))
    decodes = [
        Batch(1 + n, "decode", tuple(Entry(r, i + 1, 5 + i + n, 1) for i, r in enumerate(asks)))
        for n in range(3)
    ]
    plain, fast = (
        [
            *attend(make, [prefill], Shape(4, 32), label),
            *attend(make, [replace(b, entries=b.entries) for b in decodes], Shape(4, 4), label),
        ]
        for make in (Attention, FlashInferAttention)
    )
    faulthandler.cancel_dump_traceback_later()
    for a, b in zip(plain, fast, strict=True):
        torch.testing.assert_close(a, b, atol=2e-2, rtol=2e-2)


@needs_gpu
def test_an_engine_serves_through_flashinfer():
    """Every request gets its frames, with two slots and run-ahead one."""
    pytest.importorskip("flashinfer")
    from racecheck.engine.resources.flashinfer import FlashInferAttention

    faulthandler.dump_traceback_later(400, exit=True)
    spec = preset("qwen3-tts", "full")
    asks = [Request(f"r{n}", n, 8, 6, 0.9, n + 1, [7 + n] * 20) for n in range(6)]
    with_flashinfer = replace(Parts(), attention=FlashInferAttention)
    tokens = [
        Engine(EngineConfig(spec=spec, run_ahead=run_ahead), with_flashinfer).run(asks)
        for run_ahead in (0, 1)
    ]
    faulthandler.cancel_dump_traceback_later()
    assert tokens[0] == tokens[1]
    assert all(len(tokens[0][ask.id]) == 7 for ask in asks)


def test_without_the_package_the_extra_is_named(monkeypatch):
    """One line that says what to install."""
    import sys

    from racecheck.engine.resources.flashinfer import FlashInferAttention
    from racecheck.errors import UsageError
    from racecheck.virtual import virtual_cuda

    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with virtual_cuda():
        kv = KV("kv", EXTENT, STACK, torch.bfloat16, 16)
        with pytest.raises(UsageError, match=r"racecheck\[gpu\]"):
            FlashInferAttention("attention", EXTENT, kv, torch.bfloat16)
