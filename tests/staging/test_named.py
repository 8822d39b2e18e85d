"""Names for device memory that is not staged."""

from __future__ import annotations

import torch

import racecheck
from racecheck.staging import named


def race_on(tensor):
    """Write `tensor` on two streams that nothing orders."""
    for _ in range(2):
        with torch.cuda.stream(torch.cuda.Stream()):
            tensor.fill_(1.0)


def test_a_finding_has_the_name():
    """Also when the listener comes after the name was given."""
    with racecheck.virtual_cuda():
        rows = named(torch.zeros(8, device="cuda"), "sampler.rows")
        torch.cuda.synchronize()
        with racecheck.audit() as audit:
            race_on(rows[2:])
    assert audit.first is audit.findings[0]
    assert (audit.first.buffer, audit.first.offset) == ("sampler.rows", (8, 32))


def test_a_name_does_not_outlive_its_tensor():
    """The block goes to another tensor, and the name does not go with it."""
    with racecheck.virtual_cuda():
        address = named(torch.zeros(8, device="cuda"), "sampler.rows").data_ptr()
        other = torch.zeros(8, device="cuda")
        assert other.data_ptr() == address
        torch.cuda.synchronize()
        with racecheck.audit() as audit:
            race_on(other)
    assert audit.first.buffer != "sampler.rows"


def test_without_a_finding_there_is_no_first():
    """None, as `findings` is empty."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        torch.zeros(8, device="cuda")
    assert audit.first is None
