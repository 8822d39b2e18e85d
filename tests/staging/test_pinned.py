"""PinnedBuffer: slots, leases, events, delay points, names."""

from __future__ import annotations

import pytest
import torch

import racecheck
from racecheck.errors import LeaseError
from racecheck.staging import PinnedBuffer, delays


@pytest.fixture(autouse=True)
def device():
    """A late virtual device."""
    with racecheck.virtual_cuda(lag="latest"):
        yield


def stage(slots: int, steps: int, *, wait: str = "") -> racecheck.Audit:
    """Stage `steps` times with the slot rotating and the chosen wait."""
    with racecheck.audit() as audit:
        buffer = PinnedBuffer("rows", (4,), torch.int64, slots=slots)
        done = []
        for step in range(steps):
            with racecheck.mark(step=step, slot=step % slots):
                lease = buffer.lease(step % slots)
                if wait == "own event":
                    lease.wait_copied()
                lease.write(torch.full((4,), step))
                lease.copy()
                done.append(torch.cuda.current_stream().record_event())
            if wait == "completion" and step:
                done[step - 1].synchronize()
    return audit


def test_one_slot_races_and_two_do_not():
    """With the host one step ahead, two slots are enough and one is not."""
    assert stage(1, 4, wait="completion").verdict == "race"
    assert stage(2, 4, wait="completion").verdict == "clean"


def test_no_completion_wait_races_with_any_number_of_slots():
    """Without a wait the host may be ahead without bound."""
    for slots in (1, 2, 3, 8):
        assert stage(slots, slots + 1).verdict == "race"


def test_waiting_for_the_slots_own_event_makes_one_slot_safe():
    """It merely stalls; the certificate names the wait."""
    audit = stage(1, 4, wait="own event")
    assert audit.verdict == "clean"
    (cause,) = audit.evidence.buffers["rows"].ordered_by
    assert cause.startswith("event sync at ")


def test_finding_names_buffer_slot_and_steps():
    """The buffer's name, the slot, both steps and where it was made."""
    finding = stage(1, 3, wait="completion").findings[0]
    assert (finding.buffer, finding.slot, finding.offset) == ("rows", 0, (0, 32))
    assert (finding.first.mark.step, finding.second.mark.step) == (0, 1)
    assert finding.allocated.file.endswith("test_pinned.py")
    assert finding.repair is not None


def test_every_slot_is_listed_in_the_evidence():
    """Also the ones the run never came to."""
    rows = stage(3, 1).evidence.buffers["rows"]
    assert (rows.slots, rows.rewrites) == ({0, 1, 2}, 0)


def test_lease_goes_out_of_date():
    """Using a lease after the slot was leased again is an error that names both generations."""
    buffer = PinnedBuffer("rows", (4,), torch.int64, slots=2)
    old = buffer.lease(0)
    buffer.lease(1)
    old.write(torch.ones(4, dtype=torch.int64))
    buffer.lease(0)
    for use in (lambda: old.host, lambda: old.device, old.copy, lambda: old.write(torch.ones(4))):
        with pytest.raises(LeaseError, match="lease 1 is out of date, the slot is at 2"):
            use()


@pytest.mark.parametrize("slot", [-1, 2])
def test_slots_that_do_not_exist(slot):
    """Out of range is an error, not a wrap-around."""
    with pytest.raises(LeaseError, match="does not exist"):
        PinnedBuffer("rows", (4,), torch.int64, slots=2).lease(slot)
    with pytest.raises(LeaseError, match="at least one slot"):
        PinnedBuffer("rows", (4,), torch.int64, slots=0)


def test_partial_write_leaves_the_rest():
    """A shorter value fills the leading rows."""
    buffer = PinnedBuffer("rows", (4, 2), torch.int64)
    lease = buffer.lease(0)
    lease.write(torch.ones(4, 2, dtype=torch.int64))
    lease.write(torch.full((1, 2), 7))
    assert lease.copy().tolist() == [[7, 7], [1, 1], [1, 1], [1, 1]]
    assert buffer.bytes_per_slot == 64


def test_delay_points_are_passed_in_order():
    """After the write and after the copy; nothing is called once the context is left."""
    passed: list[str] = []
    buffer = PinnedBuffer("rows", (4,), torch.int64)
    with delays(passed.append):
        lease = buffer.lease(0)
        lease.write(torch.ones(4, dtype=torch.int64))
        lease.copy()
    buffer.lease(0).copy()
    assert passed == ["after_write", "after_copy"]


def test_buffer_made_before_the_audit_keeps_its_name():
    """An audit that starts late still knows what is staged."""
    buffer = PinnedBuffer("early", (4,), torch.int64)
    with racecheck.audit() as audit:
        for _ in range(2):
            buffer.lease(0).write(torch.ones(4, dtype=torch.int64))
            buffer.lease(0).copy()
    assert audit.findings[0].buffer == "early"
