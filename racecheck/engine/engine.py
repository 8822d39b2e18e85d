"""The engine: builds a model's nodes, and serves requests with four host threads.

main    takes requests in, and returns what they got
gpu     schedules, launches and waits: the loop (`worker.py`)
plan    plans the next step on the plan stream, while this one runs
d2h     waits for results on the D2H stream, and reads them
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch

from racecheck.engine.build import Builder
from racecheck.engine.config import EngineConfig, Parts
from racecheck.engine.errors import RequestError
from racecheck.engine.ranks import Group
from racecheck.engine.request import Request
from racecheck.engine.runners import Streams
from racecheck.engine.walks import build_model, check_request
from racecheck.engine.worker import OnStep, Tokens, Worker
from racecheck.staging import SlotCost, slot_cost


class Engine:
    """One worker over the nodes of one model, with random weights from a seed.

    `parts` are the classes to assemble; the default is the engine as it should be. `group` are the ranks
    it runs with; the device is the one that is current when the engine is made.
    """

    @torch.no_grad()
    def __init__(
        self, config: EngineConfig | None = None, parts: Parts | None = None, group: Group | None = None
    ) -> None:
        self.config = config or EngineConfig()
        self.parts = parts or Parts()
        self.group = group or Group()
        self.device = torch.cuda.current_device()
        self.streams = Streams.create()
        self.model = build_model(Builder(self.config, self.parts, self.streams))
        # Weights and buffers were filled on the current stream; the engine's streams do not follow it.
        torch.cuda.synchronize()
        self.model.capture(self.group, lazy=self.config.lazy_capture)
        torch.cuda.synchronize()
        walks = [walk for node in self.model.nodes for walk in node.walks]
        self.results = self.parts.results(walks, self.streams, self.config.run_ahead)
        self.step_count = self._graphs = 0
        self.worker = self._worker()

    def run(
        self, requests: Sequence[Request], steps: int | None = None, on_step: OnStep | None = None
    ) -> Tokens:
        """Serve `requests` to their end, or for `steps` engine steps; returns what each request got.

        Arrivals count from this call. `on_step(batch)` is called on the GPU thread after every step's
        submission and the wait that follows it. All steps are waited for before this returns; requests cut
        short are dropped.
        """
        self._check(requests)
        self.worker, self._graphs = self._worker(), self._captured()
        intake = self.parts.intake(requests, self.model.admit, self.streams.compute)
        with self._thread("d2h") as d2h, self._thread("plan") as plan, self._thread("gpu") as gpu:
            served = gpu.submit(self.worker.serve, intake, steps, on_step, plan, d2h)
            intake.serve()
            tokens = served.result()
        self.step_count = self.worker.step
        return tokens

    def adjust(self, *, prefill_chunk: int = 0, lazy_capture: bool = False) -> None:
        """Serve later runs with these settings of `EngineConfig`; call it between two runs.

        With `lazy_capture` the graphs that there are go; an engine that is lazy stays so.
        """
        lazy = lazy_capture or self.config.lazy_capture
        self.config = replace(self.config, prefill_chunk=prefill_chunk, lazy_capture=lazy)
        if lazy_capture:
            self.model.forget_graphs(self.group)

    def events(self) -> dict[str, int]:
        """What the latest run came to: plans made ahead, and graphs captured on the way."""
        made = self.worker.speculation
        captured = self._captured() - self._graphs
        return {
            "pre-plan promoted": made.promoted,
            "pre-plan dropped": made.dropped,
            "captured on the way": captured,
        }

    def _captured(self) -> int:
        return len({key for runner in self.model.runners() for key in runner.captured()})

    def costs(self) -> list[SlotCost]:
        """What the slots cost, by resource, in the order of the nodes; what stages nothing is left out.

        The rings of results have a place for each step in flight, whatever the runners.
        """
        resources = (resource for node in self.model.nodes for resource in node.resources)
        costs = [slot_cost(one.name, one.buffers, one.needs) for one in resources]
        places = self.config.run_ahead + 1
        return [*costs, slot_cost("results", self.results.buffers.values(), {"run-ahead": places})]

    def _worker(self) -> Worker:
        limits = self.model.limits(self.config.prefill_limit, self.config.prefill_chunk)
        return Worker(
            self.model,
            self.parts.scheduler(limits, self.model.max_requests),
            self.results,
            self.parts.speculation(self.group),
            self.group,
            run_ahead=self.config.run_ahead,
            chunk=self.config.prefill_chunk,
            first_step=self.step_count,
        )

    def _thread(self, name: str) -> ThreadPoolExecutor:
        """One thread that runs what it is given, on this engine's device."""
        prefix = f"rank {self.group.rank} " if self.group.size > 1 else ""

        def begin() -> None:
            torch.cuda.set_device(self.device)
            torch.set_grad_enabled(False)

        return ThreadPoolExecutor(1, thread_name_prefix=prefix + name, initializer=begin)

    def _check(self, requests: Sequence[Request]) -> None:
        if len({request.id for request in requests}) != len(requests):
            raise RequestError("two requests have the same id; ids key the result")
        for request in requests:
            check_request(self.config.spec, request)
