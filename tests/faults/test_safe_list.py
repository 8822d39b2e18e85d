"""What is safe and looks dangerous: no finding, however late or early the device is."""

from __future__ import annotations

import pytest
import torch

import racecheck
from racecheck.detect.syncs import ACCIDENTAL, audit_syncs
from racecheck.staging import PinnedBuffer, wants

STEPS = 12
ROWS = 32


@pytest.fixture(params=["latest", "eager", "seed:1", "seed:2"])
def audited(request):
    """An audit of the code under one lag, on the virtual device."""
    with racecheck.virtual_cuda(lag=request.param), racecheck.audit() as audit:
        yield audit


def settled(audit):
    """The audit once everything queued is done."""
    torch.cuda.synchronize()
    assert audit.findings == []
    return audit


def busy():
    """Work that keeps the current stream from the copies queued behind it."""
    torch.ones(64, 64, device="cuda").matmul(torch.ones(64, 64, device="cuda"))


def test_fresh_pinned_temporaries(audited):
    """The pool hands a block out again only when the copy that reads it is done."""
    rows = torch.zeros(ROWS, device="cuda")
    for step in range(STEPS):
        busy()
        rows.copy_(torch.full((ROWS,), float(step)).pin_memory(), non_blocking=True)
    assert settled(audited).verdict in ("clean", "inconclusive")
    assert rows.tolist() == [STEPS - 1] * ROWS


def test_pageable_index_tensors(audited):
    """A pageable source is read while the call lasts, although the copy is non-blocking."""
    table, indices = torch.arange(100.0).to("cuda"), torch.zeros(ROWS, dtype=torch.int64)
    gathered = []
    for step in range(STEPS):
        busy()
        indices.fill_(step)
        gathered.append(table.index_select(0, indices.to("cuda", non_blocking=True)))
    settled(audited)
    assert [rows[0].item() for rows in gathered] == list(range(STEPS))


def test_a_workspace_shared_by_two_regions_of_one_stream(audited):
    """Two piecewise graphs read one device workspace, planned for each in turn: their stream orders them."""
    plans = PinnedBuffer("plans", (ROWS,), torch.float32, slots=2)
    workspace, seen, graphs = torch.zeros(ROWS, device="cuda"), [], []
    stream = torch.cuda.Stream()
    for _ in range(2):
        output = torch.zeros(ROWS, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            output.copy_(workspace * 2.0)
        graphs.append((graph, output))
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for step in range(STEPS):
            for region, (graph, output) in enumerate(graphs):
                plans.wait_copied(region)
                lease = plans.lease(region)
                lease.write(torch.full((ROWS,), float(2 * step + region)))
                workspace.copy_(lease.copy())
                graph.replay()
                seen.append(output.clone())
    assert settled(audited).verdict == "clean"
    assert [out[0].item() for out in seen] == [2.0 * plan for plan in range(2 * STEPS)]


def test_a_ring_with_an_event_each(audited):
    """Each place of the ring is written again only behind its own event."""
    ring = PinnedBuffer("ring", (ROWS,), torch.float32, slots=3)
    for step in range(STEPS):
        busy()
        ring.wait_copied(step % 3)
        lease = ring.lease(step % 3)
        lease.write(torch.full((ROWS,), float(step)), holds=f"plan {step}")
        wants(lease.copy(), f"plan {step}")
    assert settled(audited).verdict == "clean"
    assert audited.evidence.buffers["ring"].rewrites == STEPS - 3


def test_a_rewrite_after_query_said_done(audited):
    """A query that answers done is as good as a wait; while it says pending nothing is written."""
    source, target = torch.zeros(ROWS, pin_memory=True), torch.zeros(ROWS, device="cuda")
    copied = torch.cuda.Event()
    written = 0
    for step in range(STEPS):
        busy()
        if step and not copied.query():
            torch.cuda.synchronize()
        source.fill_(float(step))
        written += 1
        target.copy_(source, non_blocking=True)
        copied.record()
    assert settled(audited).verdict == "clean"
    assert audited.evidence.rewrites == written - 1


def test_disjoint_slices_of_one_buffer(audited):
    """One buffer, a slice for each of two steps in turn, each behind its own event."""
    source = torch.zeros(2, ROWS, pin_memory=True)
    target = torch.zeros(2, ROWS, device="cuda")
    copied = [torch.cuda.Event(), torch.cuda.Event()]
    for step in range(STEPS):
        half = step % 2
        busy()
        copied[half].synchronize()
        source[half].fill_(float(step))  # the other half's copy may well be queued
        target[half].copy_(source[half], non_blocking=True)
        copied[half].record()
    assert settled(audited).verdict == "clean"
    assert audited.evidence.rewrites == STEPS - 2


def test_out_and_back_through_one_pinned_buffer(audited):
    """A D2H and an H2D of one stream through one pinned buffer: the stream orders them, the host is out."""
    staging = torch.zeros(ROWS, pin_memory=True)
    first, second = torch.zeros(ROWS, device="cuda"), torch.zeros(ROWS, device="cuda")
    for _ in range(STEPS):
        first.add_(1.0)
        staging.copy_(first, non_blocking=True)
        second.copy_(staging, non_blocking=True)
    settled(audited)
    assert second.tolist() == [STEPS] * ROWS


def test_a_plan_ordered_by_a_blocking_copy_of_something_else(audited):
    """A paged plan as FlashInfer makes it: the host indices are copied blocking, and only that protects
    the workspace. Clean, and the audit of synchronisations says that it is so by accident.
    """
    workspace = torch.zeros(ROWS, dtype=torch.int32, pin_memory=True)
    schedule = torch.zeros(ROWS, dtype=torch.int32, device="cuda")
    indices = torch.arange(ROWS, dtype=torch.int32)
    on_device = torch.zeros(ROWS, dtype=torch.int32, device="cuda")
    for step in range(STEPS):
        busy()
        on_device.copy_(indices + step)  # pageable and blocking: the host waits for the stream
        workspace.fill_(step)
        schedule.copy_(workspace, non_blocking=True)
    assert settled(audited).verdict == "clean"
    by_accident = [sync for sync in audit_syncs(audited.trace) if sync.role == ACCIDENTAL]
    assert [sync.what for sync in by_accident] == ["blocking h2d"]
    assert "pinned memory of 128 bytes" in by_accident[0].protects
