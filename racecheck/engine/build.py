"""Assembles a model's nodes from the parts of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from racecheck.engine.config import EngineConfig, Parts
from racecheck.engine.node import Node
from racecheck.engine.resources import Resource
from racecheck.engine.runners import GraphKey, Runner, Streams, Walk
from racecheck.errors import UsageError


class Builder:
    """Makes runners and nodes; models make their resources from `parts` themselves."""

    def __init__(self, config: EngineConfig, parts: Parts, streams: Streams) -> None:
        self.config = config
        self.spec = config.spec
        self.parts = parts
        self.streams = streams
        self._policy = parts.slots(config.slots, config.run_ahead)
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[str, dict[GraphKey, torch.cuda.CUDAGraph]] = {}
        self._unknown = dict(config.walks)

    def node(self, name: str, resources: Sequence[Resource], walks: Sequence[tuple[Walk, str]]) -> Node:
        """A node of `walks`, each with the runner it has unless the configuration says otherwise."""
        runners = {
            walk.name: self._runner(walk, self._unknown.pop(walk.name, usual)) for walk, usual in walks
        }
        return Node(name, resources, runners, self.parts.rotation())

    def check(self) -> None:
        """All nodes are made: `UsageError` if the configuration names a walk that none of them has."""
        if self._unknown:
            raise UsageError(f"walks: {self.spec.name} has no walk {next(iter(self._unknown))!r}")

    def _runner(self, walk: Walk, kind: str) -> Runner:
        common: dict[str, Any] = {"walk": walk, "streams": self.streams}
        if kind == "main":
            slots = self._policy.count("main", walk.resources)
            graphs = self._shared(f"main {walk.label}")
            return self.parts.main(**common, num_slots=slots, graphs=graphs, pool=self._pool)
        if kind == "piecewise":
            return self.parts.piecewise(
                **common,
                num_slots=self._policy.count("piecewise", walk.region_resources),
                outer_slots=self._policy.count("eager", walk.outer_resources),
                graphs=self._shared(f"piecewise {walk.label}"),
                pool=self._pool,
            )
        make = self.parts.per_request if kind == "per-request" else self.parts.eager
        return make(**common, num_slots=self._policy.count("eager", walk.resources))

    def _shared(self, key: str) -> dict[GraphKey, torch.cuda.CUDAGraph]:
        return self._graphs.setdefault(key, {})
