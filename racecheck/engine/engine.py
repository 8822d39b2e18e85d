"""The engine's loop.

    plan(n)  launch(n)  D2H(n)  wait(n - run_ahead)  commit(n - run_ahead)  plan(n + 1) ...

So when step n is planned, every step up to n - run_ahead - 1 has been waited for, copies, forward and
results alike. With as many slots as steps can be in flight while one is planned (run_ahead + 1), the slot
that step n rewrites is one the host has waited for. Nothing else guards it: the wait is taken on every
path, also when a step leaves nothing to read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from racecheck.engine.config import EngineConfig, Parts
from racecheck.engine.errors import RequestError
from racecheck.engine.node import TalkerNode
from racecheck.engine.request import Batch, Request
from racecheck.engine.runners import Streams
from racecheck.engine.scheduler import Scheduler
from racecheck.staging import host_delay
from racecheck.trace import mark

Tokens = dict[str, list[tuple[int, ...]]]  # request id -> frames of `groups` codes


class Engine:
    """One host thread and three streams over one node, with random weights from a seed.

    `parts` are the classes to assemble; the default is the engine as it should be.
    """

    @torch.no_grad()
    def __init__(self, config: EngineConfig | None = None, parts: Parts | None = None) -> None:
        self.config = config or EngineConfig()
        self.parts = parts or Parts()
        self.streams = Streams.create()
        self.node = TalkerNode(self.config, self.parts, self.streams)
        self.results = self.parts.results(self.config.spec, self.streams, self.config.run_ahead)
        # Weights and buffers were filled on the current stream; the engine's streams do not follow it.
        torch.cuda.synchronize()
        self.node.capture()
        torch.cuda.synchronize()
        self.step_count = 0
        self.scheduler = self._schedule(())

    @torch.no_grad()
    def run(
        self,
        requests: Sequence[Request],
        steps: int | None = None,
        on_step: Callable[[Batch], None] | None = None,
    ) -> Tokens:
        """Serve `requests` to their end, or for `steps` engine steps; returns each request's frames.

        Arrivals count from this call. `on_step(batch)` is called after every step's submission and the
        wait that follows it. All steps are waited for before this returns; requests cut short are dropped.
        """
        self._check(requests)
        self.scheduler = self._schedule(requests)
        tokens: Tokens = {request.id: [] for request in requests}
        try:
            self._loop(tokens, steps, on_step)
        finally:
            while self.results:
                self._complete_oldest(tokens)
            for request in requests:
                self.node.release(request.id)
        return tokens

    def _loop(self, tokens: Tokens, steps: int | None, on_step: Callable[[Batch], None] | None) -> None:
        end = None if steps is None else self.step_count + steps
        while self.step_count != end:
            batch = self.scheduler.next_batch(self.step_count)
            if batch is not None:
                self._submit(batch)
                if len(self.results) > self.config.run_ahead:
                    self._complete_oldest(tokens)
                if on_step is not None:
                    on_step(batch)
            elif self.results:
                self._complete_oldest(tokens)  # what it frees may let a waiting request join
            else:
                break

    def _submit(self, batch: Batch) -> None:
        with mark(step=batch.step):
            if batch.walk == "prefill":
                with mark(phase="admit"):
                    self.node.admit(batch)
            with mark(phase="plan"):
                turn = self.node.plan(batch)
            host_delay("after_plan")
            host_delay("before_launch")
            with mark(phase="launch"):
                self.node.launch(batch, turn)
            with mark(phase="results"):
                self.results.submit(batch, self.node.codes)
        self.step_count += 1

    def _complete_oldest(self, tokens: Tokens) -> None:
        """The completion wait, then what it allows: reading the frames and freeing rows and pages."""
        host_delay("before_completion_wait")
        step = self.step_count - len(self.results)  # the steps in flight are the latest ones
        with mark(step=step, phase="wait"):
            batch, frames = self.results.wait_oldest()
        with mark(step=step, phase="commit"):
            for entry, frame in zip(batch.entries, frames, strict=True):
                tokens[entry.id].append(tuple(frame))
            self.node.commit(batch)
            self.scheduler.commit(batch)

    def _schedule(self, requests: Sequence[Request]) -> Scheduler:
        limit = self.config.prefill_limit
        return self.parts.scheduler(
            self.config.spec, requests, prefill_limit=limit, first_step=self.step_count
        )

    def _check(self, requests: Sequence[Request]) -> None:
        if len({request.id for request in requests}) != len(requests):
            raise RequestError("two requests have the same id; ids key the result")
        for request in requests:
            request.check(self.config.spec)
