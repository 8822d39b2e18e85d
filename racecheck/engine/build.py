"""Assembles a model's nodes from the parts of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from racecheck.engine.config import EngineConfig, Parts
from racecheck.engine.node import Node
from racecheck.engine.resources import Resource
from racecheck.engine.runners import GraphKey, Runner, Streams, Walk
from racecheck.engine.runners.graphs import GraphMemory
from racecheck.errors import UsageError


class Builder:
    """Makes runners and nodes; models make their resources from `parts` themselves."""

    def __init__(self, config: EngineConfig, parts: Parts, streams: Streams) -> None:
        self.config = config
        self.spec = config.spec
        self.parts = parts
        self.streams = streams
        self._policy = parts.slots(config.slots, config.run_ahead)
        self._memory = GraphMemory()
        self._graphs: dict[str, dict[GraphKey, torch.cuda.CUDAGraph]] = {}
        self._inputs: dict[str, list[torch.Tensor]] = {}
        self._walks: list[str] = []

    def node(self, name: str, resources: Sequence[Resource], walks: Sequence[tuple[Walk, str]]) -> Node:
        """A node of `walks`, each with the runner it has unless the configuration says otherwise."""
        self._walks += [walk.name for walk, _ in walks]
        runners = {
            walk.name: self._runner(walk, self.config.walks.get(walk.name, usual)) for walk, usual in walks
        }
        return Node(name, resources, runners, self.parts.rotation())

    def check(self) -> None:
        """All nodes are made: `UsageError` if the configuration names a walk that none of them has."""
        for name in self.config.walks:
            if name not in self._walks:
                known = ", ".join(self._walks)
                raise UsageError(f"{self.spec.name} has no walk {name!r}; its walks are {known}")

    def _runner(self, walk: Walk, kind: str) -> Runner:
        common: dict[str, Any] = {"walk": walk, "streams": self.streams}
        if kind == "main":
            slots = self._policy.count("main", walk.resources)
            graphs = self._shared(f"main {walk.label}")
            return self.parts.main(**common, num_slots=slots, graphs=graphs, memory=self._memory)
        if kind == "piecewise":
            return self.parts.piecewise(
                **common,
                num_slots=self._policy.count("piecewise", walk.region_resources),
                outer_slots=self._policy.count("eager", walk.outer_resources),
                graphs=self._shared(f"piecewise {walk.label}"),
                memory=self._memory,
                inputs=self._inputs.setdefault(walk.label, []),
            )
        make = self.parts.per_request if kind == "per-request" else self.parts.eager
        return make(**common, num_slots=self._policy.count("eager", walk.resources))

    def _shared(self, key: str) -> dict[GraphKey, torch.cuda.CUDAGraph]:
        return self._graphs.setdefault(key, {})
