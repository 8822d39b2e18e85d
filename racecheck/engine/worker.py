"""The GPU thread's loop.

    plan(n) or take the plan that the plan thread has made    launch(n)    D2H(n)
    wait(n - run_ahead)    commit(n - run_ahead)    guess step n + 1 and have it planned ...

So when step n is planned, every step up to n - run_ahead - 1 has been waited for, copies, forward and
results alike. With as many slots as steps can be in flight while one is planned (run_ahead + 1), the slot
that step n rewrites is one the host has waited for. Nothing else guards it: the wait is taken on every
path, also when a step leaves nothing to read.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace

from racecheck.engine.intake import Intake
from racecheck.engine.model import Model
from racecheck.engine.ranks import Group
from racecheck.engine.request import Batch, Request
from racecheck.engine.results import Items, Results
from racecheck.engine.scheduler import Scheduler
from racecheck.engine.speculation import Speculation
from racecheck.staging import host_delay
from racecheck.trace import mark

Tokens = dict[str, Items]  # request id -> what it got: frames of codes, or bytes of audio
OnStep = Callable[[Batch], None]


class Worker:
    """Serves one run; everything below is the GPU thread's, but for the two executors."""

    def __init__(
        self,
        model: Model,
        scheduler: Scheduler,
        results: Results,
        speculation: Speculation,
        group: Group,
        *,
        run_ahead: int,
        chunk: int,
        first_step: int,
    ) -> None:
        self.model = model
        self.scheduler = scheduler
        self.results = results
        self.speculation = speculation
        self.step = first_step
        self.tokens: Tokens = {}
        self._group = group
        self._run_ahead = run_ahead
        self._chunk = chunk

    def serve(
        self, intake: Intake, steps: int | None, on_step: OnStep | None, plan: Executor, d2h: Executor
    ) -> Tokens:
        """Run steps until nothing is left or `steps` are submitted; all are waited for in the end."""
        first, end = self.step, None if steps is None else self.step + steps
        try:
            while self.step != end:
                more = self._arrivals(intake, self.step - first)
                batch = self.scheduler.next_batch(self.step)
                if batch is not None:
                    self._submit(batch, plan, d2h)
                    if on_step is not None:
                        on_step(batch)
                elif len(self.results):
                    self._complete_oldest()  # what it frees may let a waiting request join
                elif not more:
                    break
        finally:
            intake.finish()
            try:
                self.speculation.cancel()
            finally:
                self._settle()
        return self.tokens

    def _settle(self) -> None:
        """Wait for all steps, and let go of who was not served to the end."""
        while len(self.results):
            self._complete_oldest()
        for running in self.scheduler.running:
            self.model.release(running.request.id)

    def _arrivals(self, intake: Intake, step: int) -> bool:
        """Let in whoever is due and has room; is anybody still to come or waiting?"""
        arrived = intake.due(step, self.scheduler.idle)
        for request in arrived or ():
            self._queue(request)
        for request in self.scheduler.waiting():
            cached = self.model.reserve(request, self._chunk)
            if cached is None:
                break
            running = self.scheduler.admit(cached)
            with mark(step=self.step, phase="admit"):
                intake.admit(request, running.row)
        return arrived is not None or not self.scheduler.idle

    def _queue(self, request: Request) -> None:
        """`request` waits for a row; what it has got so far, if it was preempted, it will get again."""
        self.tokens[request.id] = []
        self.scheduler.arrive(request, self.model.route(request))

    def _submit(self, batch: Batch, plan: Executor, d2h: Executor) -> None:
        node = self.model.node(batch)
        with mark(step=batch.step), node.attempt(batch):
            with mark(phase="plan"):
                turn = self.speculation.take(batch)
                if turn is None:
                    self._group.broadcast(f"plan {batch.step} {batch.walk}")
                    turn = node.declare(batch)
                    node.plan(batch, turn)
            host_delay("after_plan")
            host_delay("before_launch")
            self._group.broadcast(f"launch {batch.step} {batch.walk}")
            with mark(phase="launch"):
                node.launch(batch, turn)
                node.share(batch, self._group)
            with mark(phase="results"):
                gone = self.scheduler.cancelled()
                mine = [entry for entry in batch.entries if not (entry.partial or entry.id in gone)]
                self.results.submit(batch, d2h, wanted=bool(mine))
        self.step += 1
        if len(self.results) > self._run_ahead:
            self._complete_oldest()
        guess = self.scheduler.predict(batch) if self._run_ahead else None
        if guess is not None:
            self.speculation.start(node, guess, plan)

    def _complete_oldest(self) -> None:
        """The completion wait, then what it allows: handing out the items and freeing rows and pages."""
        host_delay("before_completion_wait")
        batch, gone = self.results.oldest(), self.scheduler.cancelled()
        with mark(step=batch.step, phase="wait"):
            items = self.results.wait_oldest()
        with mark(step=batch.step, phase="commit"):
            for entry, item in zip(batch.entries, items, strict=False):  # a step may give no items
                if not (entry.partial or entry.id in gone):
                    self.tokens[entry.id].append(item)
            self.model.node(batch).commit(batch)
            for running in self.scheduler.commit(batch.step):
                self.model.release(running.request.id)
                if running.preempted:
                    self._queue(replace(running.request, preempt_after=None))
