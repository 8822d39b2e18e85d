"""A named staging buffer: pinned host memory and its device twin, once per slot.

    rows = PinnedBuffer("sampler.gather_indices", (32,), torch.int64, slots=2)
    lease = rows.lease(slot=step % 2)
    lease.write(indices)            # the host fills the slot
    on_device = lease.copy()        # non-blocking H2D on the current stream, then an event

Nothing here waits: whether slot k may be rewritten is the engine's business (its completion wait, or
`lease.wait_copied()`), and the detector's to judge. An event after each copy stands ready for those who
wait on the slot itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import torch

from racecheck.errors import LeaseError
from racecheck.staging import operands
from racecheck.staging.delays import host_delay
from racecheck.trace import caller, register, registered, thread_name
from racecheck.trace.records import Alloc

#: What `Lease.write` takes.
Values = torch.Tensor | numpy.ndarray[Any, Any] | Sequence[Any] | float


class PinnedBuffer:
    """`slots` copies of one staged buffer of `shape` and `dtype`; plain `torch.cuda` underneath.

    `label` is what findings call it: `name`, or `name#2` while another buffer of that name is alive, as
    two engines in one process have them.

    Raises:
        LeaseError: no slots were asked for, or there is no CUDA device and no `virtual_cuda` is open.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        *,
        slots: int = 1,
        device: torch.device | str = "cuda",
    ) -> None:
        if not isinstance(name, str) or not name.isprintable() or not name:
            raise LeaseError(f"a staging buffer needs a name of one line of text, not {name!r:.40}")
        if not isinstance(slots, int) or slots < 1:
            raise LeaseError(f"{name}: a staging buffer needs at least one slot, not {slots!r:.40}")
        if not torch.cuda.is_available():
            raise LeaseError(
                f"{name}: PyTorch finds no CUDA device here to stage for; make the buffer inside "
                "racecheck.virtual_cuda(), which needs none, or run on a machine with a GPU"
            )
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.slots = slots
        self._where = caller()
        self._host = [torch.zeros(shape, dtype=dtype, pin_memory=True) for _ in range(slots)]
        self._device = [torch.empty(shape, dtype=dtype, device=device) for _ in range(slots)]
        self._copied = [torch.cuda.Event() for _ in range(slots)]
        self._generation = [0] * slots
        self.label = _free_label(name)  # not earlier: another thread may have come in since, and taken it
        register(self)

    @property
    def bytes_per_slot(self) -> int:
        """Pinned bytes of one slot; the device twin takes the same again."""
        return self._host[0].numel() * self._host[0].element_size()

    def lease(self, slot: int) -> Lease:
        """Take `slot` for one use. Leases taken earlier on the same slot become invalid."""
        if not isinstance(slot, int) or not 0 <= slot < self.slots:
            raise LeaseError(
                f"{self.label}: slot {slot!r:.40} does not exist; it has {self.slots}, counted from 0"
            )
        self._generation[slot] += 1
        return Lease(self, slot, self._generation[slot])

    def device_view(self, slot: int) -> torch.Tensor:
        """The device twin of `slot`: the address a captured graph may bake in."""
        return self._device[slot]

    def wants(self, slot: int, value: str) -> None:
        """Say that the work issued next reads the device twin of `slot` and needs `value` in all of it."""
        operands.wants(self.device_view(slot), value)

    def wait_copied(self, slot: int) -> None:
        """Hold the host until the latest copy of `slot` is done; at once if there was none."""
        self._copied[slot].synchronize()

    def describe(self) -> list[Alloc]:
        """One `Alloc` record a slot and side: what findings call these bytes."""
        out = []
        for slot in range(self.slots):
            out.append(self._alloc(self._host[slot], slot, "pinned", self.label))
            out.append(self._alloc(self._device[slot], slot, "device", f"{self.label} (device)"))
        return out

    def _alloc(self, tensor: torch.Tensor, slot: int, kind: str, buffer: str) -> Alloc:
        base = tensor.data_ptr()
        span = (base, base + tensor.numel() * tensor.element_size())
        return Alloc(
            thread=thread_name(),
            loc=self._where,
            span=span,
            name=f"{buffer}[{slot}]",
            kind=kind,
            buffer=buffer,
            slot=slot,
            reuse=True,
        )


class Lease:
    """One use of one slot. `generation` counts the uses of that slot, from 1."""

    def __init__(self, buffer: PinnedBuffer, slot: int, generation: int) -> None:
        self.buffer = buffer
        self.slot = slot
        self.generation = generation

    @property
    def host(self) -> torch.Tensor:
        """The slot's pinned tensor. Write through it, a numpy view of it, or from C."""
        self._check()
        return self.buffer._host[self.slot]

    @property
    def device(self) -> torch.Tensor:
        """The slot's device tensor, the destination of `copy`."""
        self._check()
        return self.buffer._device[self.slot]

    def write(self, values: Values, holds: str | None = None) -> None:
        """Fill the slot with `values`, or its leading rows if there are fewer of them.

        Tensors and arrays must have the buffer's dtype; numbers and lists of them take it. `holds` says
        what the rows written hold then. The others keep what was said of them: whoever reads those too
        would find an earlier step's.

        Raises:
            LeaseError: the lease is out of date, or `values` are of another dtype or do not fit.
        """
        host, fits = self.host, tuple(self.buffer.shape)
        what = f"{self.buffer.label}[{self.slot}]"
        tensor = _as_tensor(what, values, self.buffer.dtype)
        shape = tuple(tensor.shape)
        if shape != fits and len(shape) == len(fits) > 0 and shape[1:] == fits[1:] and shape[0] < fits[0]:
            host = host[: shape[0]]
        elif shape != fits:
            raise LeaseError(
                f"{what}: values of shape {list(shape)} do not fit; write {list(fits)}, or fewer rows"
            )
        host.copy_(tensor)
        if holds is not None:
            operands.holds(host, holds)
        host_delay("after_write")

    def copy(self) -> torch.Tensor:
        """Issue the non-blocking H2D on the current stream and record the slot's event after it."""
        device = self.device
        device.copy_(self.host, non_blocking=True)
        self.buffer._copied[self.slot].record()
        host_delay("after_copy")
        return device

    def wait_copied(self) -> None:
        """Hold the host until the slot's latest copy is done; at once if there was none."""
        self.buffer.wait_copied(self.slot)

    def _check(self) -> None:
        current = self.buffer._generation[self.slot]
        if current != self.generation:
            raise LeaseError(
                f"{self.buffer.label}[{self.slot}]: lease {self.generation} is out of date, the slot is at "
                f"{current}; take a new lease for every step"
            )


def _free_label(name: str) -> str:
    """`name`, or with a count if a living buffer of this scope has it already."""
    taken = {thing.label for thing in registered() if isinstance(thing, PinnedBuffer)}
    label, count = name, 1
    while label in taken:
        count += 1
        label = f"{name}#{count}"
    return label


def _as_tensor(what: str, values: Values, dtype: torch.dtype) -> torch.Tensor:
    """`values` as a tensor of `dtype`; whatever would change a value is refused."""
    given = values if isinstance(values, torch.Tensor) else None
    try:
        if hasattr(values, "__array__") and given is None:
            given = torch.as_tensor(numpy.array(values))  # a copy: any strides, also read-only
        natural = torch.as_tensor(values) if given is None else given
        tensor = torch.as_tensor(values, dtype=dtype) if given is None else given
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise LeaseError(f"{what}: these values make no tensor of {dtype}: {reason}") from None
    same = natural.dtype == dtype
    if given is None and not same:
        rounds = natural.is_floating_point() and dtype.is_floating_point
        same = rounds or torch.equal(tensor.to(natural.dtype), natural)
    if not same:
        raise LeaseError(
            f"{what}: values of {natural.dtype} would be changed by a buffer of {dtype}; "
            "convert them, or make the buffer of their dtype"
        )
    return tensor
