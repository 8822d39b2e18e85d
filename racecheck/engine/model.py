"""What the loop needs of a model: its nodes, the stages of a request, and its device state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from racecheck.engine.models.spec import ModelSpec
from racecheck.engine.node import Node
from racecheck.engine.ranks import Group
from racecheck.engine.request import Batch, Request, Shape, Stage
from racecheck.engine.resources import KV
from racecheck.engine.runners import Runner
from racecheck.engine.scheduler import Limit


class Model(ABC):
    """Nodes with random weights. Subclasses build `nodes`, and say how a request goes through their walks."""

    spec: ModelSpec
    nodes: Sequence[Node]
    max_requests: int

    @abstractmethod
    def route(self, request: Request) -> Iterator[Stage]:
        """The steps that `request` goes through, in order."""

    @abstractmethod
    def admit(self, request: Request, row: int) -> None:
        """Write the device rows of a joining request, on the compute stream."""

    def lengths(self, request: Request) -> Mapping[KV, int]:
        """How many positions `request` will fill in each cache."""
        return {}

    def reserve(self, request: Request, chunk: int = 0) -> int | None:
        """Pages for all of `request`; how many of its prompt's positions are cached, None without room.

        Of a prompt that is read in chunks only the first one is shared: it is computed before whoever comes
        after it begins.
        """
        cached = 0
        for kv, length in self.lengths(request).items():
            found = kv.reserve(request.id, self.prompt(request)[: chunk or None], length)
            if found is None:
                self.release(request.id)
                return None
            cached = max(cached, found)
        return cached

    def prompt(self, request: Request) -> Sequence[int]:
        """The tokens that requests may share cached pages for; none if a prompt is not text alone."""
        return request.text[: request.prompt_tokens]

    def release(self, request_id: str) -> None:
        """The request is gone and no step in flight uses it."""
        for node in self.nodes:
            node.release(request_id)

    def node(self, batch: Batch) -> Node:
        """The node that runs `batch`."""
        return next(node for node in self.nodes if batch.walk in node.runners)

    def limits(self, prefill_limit: int, chunk: int = 0) -> dict[str, Limit]:
        """The largest batch of each walk; walks of one token a request are turned from step to step.

        Prompts are read in chunks of at most `chunk` tokens, 0: at once.
        """
        out = {}
        for walk in chain.from_iterable(node.walks for node in self.nodes):
            shape = Shape(max(b.requests for b in walk.buckets), max(b.tokens for b in walk.buckets))
            decodes = shape.requests == shape.tokens
            if walk.joins:
                shape = Shape(min(shape.requests, prefill_limit), shape.tokens)
            out[walk.name] = Limit(shape, turns=decodes, chunk=chunk if walk.prompt else 0)
        return out

    def capture(self, group: Group, *, lazy: bool) -> None:
        """Make ready the graphs of all nodes; capture them, unless `lazy`: then each when it is needed."""
        for runner in self.runners():
            runner.warm_up_all()
            runner.capture(group, lazy=lazy)

    def forget_graphs(self, group: Group) -> None:
        """Let go of all graphs; each is captured again when it is needed. Kernels stay loaded."""
        for runner in self.runners():
            runner.capture(group, lazy=True)

    def runners(self) -> Iterator[Runner]:
        """Those of all nodes; walks of one label share their graphs."""
        return chain.from_iterable(node.runners.values() for node in self.nodes)
