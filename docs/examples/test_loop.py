"""A step loop that stages rows in pinned memory, with one slot and with two: what the reports here are of."""

from __future__ import annotations

import torch

import racecheck


def serve(slots: int, steps: int = 5) -> None:
    """Gather one row a step; the host plans one step ahead and waits for the step before."""
    table = torch.arange(100, 108, device="cuda")
    rows = racecheck.PinnedBuffer("sampler.rows", (4,), torch.int64, slots=slots)
    ended: list[torch.cuda.Event] = []
    for step in range(steps):
        with racecheck.mark(step=step, phase="plan", resource="sampler", slot=step % slots):
            lease = rows.lease(step % slots)
            lease.write([step % 8] * 4)
            indices = lease.copy()
        table[indices].sum()
        ended.append(torch.cuda.current_stream().record_event())
        if step:
            ended[step - 1].synchronize()


def test_one_slot(race_audit: racecheck.Audit) -> None:
    """Races: step N + 1 is written while the copy of step N is waiting."""
    serve(slots=1)


def test_two_slots(race_audit: racecheck.Audit) -> None:
    """Clean: what is rewritten was read a step ago."""
    serve(slots=2)
