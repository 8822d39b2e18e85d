"""PinnedBuffer: slots, leases, events, delay points, names."""

from __future__ import annotations

from typing import Any

import numpy
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
    with pytest.raises(LeaseError, match=r"rows: slot -?[0-9] does not exist; it has 2, counted from 0"):
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


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (torch.int64, [1, 2]),
        (torch.int32, numpy.array([2, 1], dtype=numpy.int32)[::-1]),
        (torch.float32, [1, 2]),
        (torch.float16, [1.0, 2.0]),
        (torch.uint8, [1.0, 2.0]),
        (torch.int64, torch.tensor([1, 2])),
    ],
)
def test_values_that_a_buffer_can_hold(dtype: torch.dtype, values: Any):
    """Tensors and arrays of its dtype; lists take its dtype where that changes none of them."""
    lease = PinnedBuffer("rows", (2,), dtype).lease(0)
    lease.write(values)
    assert lease.copy().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        (torch.tensor([1.5, 2.5]), "rows[0]: values of torch.float32 would be changed by a"),
        (torch.tensor([1, 2], dtype=torch.int32), "rows[0]: values of torch.int32 would be changed by a"),
        (numpy.array([1.0, 2.0]), "rows[0]: values of torch.float64 would be changed by a"),
        ([1.5, 2], "rows[0]: values of torch.float32 would be changed by a buffer of torch.int64; convert"),
        ([1, 2**70], "rows[0]: these values make no tensor of torch.int64: "),
        (["x"], "rows[0]: these values make no tensor of torch.int64: "),
        ([[1, 2], [3]], "rows[0]: these values make no tensor of torch.int64: "),
        ([1, 2, 3], "rows[0]: values of shape [3] do not fit; write [2], or fewer rows"),
        ([[1, 2]], "rows[0]: values of shape [1, 2] do not fit; write [2], or fewer rows"),
        (7, "rows[0]: values of shape [] do not fit; write [2], or fewer rows"),
    ],
)  # fmt: skip
def test_values_that_a_buffer_cannot_hold(values: Any, wrong: str):
    """One line, and nothing is written: staging must not change what it stages."""
    lease = PinnedBuffer("rows", (2,), torch.int64).lease(0)
    lease.write([5, 6])
    with pytest.raises(LeaseError) as error:
        lease.write(values)
    assert str(error.value).startswith(wrong)
    assert "\n" not in str(error.value)
    assert lease.copy().tolist() == [5, 6]


def test_rows_must_have_the_buffers_shape():
    """No broadcasting: a row that is too short is a mistake, not a pattern."""
    lease = PinnedBuffer("rows", (4, 2), torch.int64).lease(0)
    with pytest.raises(LeaseError, match=r"values of shape \[2, 1\] do not fit; write \[4, 2\]"):
        lease.write(torch.ones(2, 1, dtype=torch.int64))
    single = PinnedBuffer("length", (), torch.int32).lease(0)
    single.write(3)
    assert single.copy().item() == 3


def test_two_living_buffers_of_one_name_are_told_apart():
    """Two engines in one process: findings and figures of one are not those of the other."""
    with racecheck.audit() as audit:
        first, second = (PinnedBuffer("rows", (4,), torch.int64) for _ in range(2))
        for buffer, times in ((first, 1), (second, 2)):
            for value in range(times):
                buffer.lease(0).write([value] * 4)
                buffer.lease(0).copy()
    assert (first.label, second.label) == ("rows", "rows#2")
    assert (first.name, second.name) == ("rows", "rows")
    assert audit.findings[0].buffer == "rows#2"
    assert set(audit.evidence.buffers) == {"rows", "rows#2"}
    assert audit.evidence.buffers["rows"].rewrites == 0


def test_a_name_is_free_again_once_its_buffer_is_gone():
    """Making the same buffer again and again gives it the same name every time."""
    assert [PinnedBuffer("rows", (4,), torch.int64).label for _ in range(3)] == ["rows"] * 3
    kept = PinnedBuffer("rows", (4,), torch.int64)
    with racecheck.virtual_cuda():
        assert PinnedBuffer("rows", (4,), torch.int64).label == kept.label == "rows"


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


def test_no_device_is_one_line(monkeypatch):
    """Outside of `virtual_cuda`, on a machine without a GPU: what is missing and what to do."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(LeaseError) as error:
        PinnedBuffer("rows", (4,), torch.int64)
    assert str(error.value) == (
        "rows: PyTorch finds no CUDA device here to stage for; make the buffer inside "
        "racecheck.virtual_cuda(), which needs none, or run on a machine with a GPU"
    )
