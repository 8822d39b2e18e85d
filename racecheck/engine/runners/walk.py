"""One kind of step, in the two parts that runners treat differently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from racecheck.engine.request import Batch, Shape
from racecheck.engine.resources import Resource
from racecheck.errors import UsageError

#: The forward up to the region: (shape, label, slot) -> what the region reads, each [B or T, ...].
Outer = Callable[[Shape, str, int], tuple[Tensor, ...]]
#: The rest of the forward: (shape, label, slot, *those tensors). Its results go to static memory.
Region = Callable[..., None]


@dataclass(kw_only=True, eq=False)
class Walk:
    """One kind of step of a node: its forward in two parts, and what each part reads through slots.

    `buckets` are the shapes that graphs are captured for, `label` the graphs' name; walks of one forward
    share a label. `prepare(batch)` queues eager work ahead of the forward, for inputs that nobody stages, and
    `finish(batch, is_padded)` behind it. `output` is what the host reads of a step, [requests, ...] in
    static memory; `adopt(batch)` goes on from an output that rank 0 has replaced. `joins`: requests begin
    with it. `prompt`: it reads a prompt, which may come in chunks.
    """

    name: str
    label: str
    outer: Outer
    region: Region
    outer_resources: Sequence[Resource] = ()
    region_resources: Sequence[Resource] = ()
    buckets: Sequence[Shape]
    prepare: Callable[[Batch], None] = field(default=lambda batch: None)
    finish: Callable[[Batch, bool], None] = field(default=lambda batch, is_padded: None)
    output: Tensor | None = None
    adopt: Callable[[Batch], None] = field(default=lambda batch: None)
    joins: bool = False
    prompt: bool = False

    def __post_init__(self) -> None:
        """Refuse a walk that no shape was given for: it could run nothing."""
        if not self.buckets:
            raise UsageError(
                f"{self.name} has no bucket; give its `Limits` a shape that it can be captured for"
            )

    @property
    def resources(self) -> Sequence[Resource]:
        """All that a step of this walk reads through."""
        return (*self.outer_resources, *self.region_resources)
