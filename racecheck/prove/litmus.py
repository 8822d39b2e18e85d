"""A counterexample as a litmus program, so that the detector can judge what the model calls a race."""

from __future__ import annotations

from racecheck.prove.verdict import Counterexample, Step


def litmus(found: Counterexample) -> str:
    """The program: mapped memory for the slots, one host thread, expected to race."""
    writer = _Writer(found)
    for step in found.steps:
        writer.add(step)
    return "\n".join(writer.lines) + "\n"


class _Writer:
    """Says each action as `racecheck.engine` would do it; `plans` counts them, dropped ones too."""

    def __init__(self, found: Counterexample) -> None:
        self.protocol = found.protocol
        self.plan_stream = "compute" if self.protocol.one_stream else "plan"
        self.plans = 0
        self.completion: dict[int, str] = {}  # by step
        self.own: dict[int, str] = {}  # by slot
        first, second = found.first, found.second
        reader = "replay" if first.action == "submit" else "copy"
        slots = sorted({step.slot for step in found.steps})
        copies = sum(step.action == "copy" for step in found.steps)
        what = f"step {second.step} writes slot {second.slot}, which the {reader} of step {first.step} reads"
        self.lines = [
            f"# title: {what}",
            "# source: own",
            "# expect: RACE",
            *(f"alloc mapped P{slot}" for slot in slots),
            *(f"alloc device D{plan}" for plan in range(copies)),
        ]

    def add(self, step: Step) -> None:
        """Append what `step` does."""
        match step.action:
            case "own-wait":
                self._begin(step)
                self._sync(self.own.get(step.slot))
            case "write":
                self._begin(step)
                self.lines.append(f"host_write P{step.slot}")
            case "copy":
                self._copy(step)
            case "submit":
                self._submit(step)
            case "drop" if self.protocol.drop_wait:
                self._sync(f"copied{self.plans - 1}")
            case "wait":
                self._sync(self.completion.get(step.step))
        self._last = step.action

    _last = ""

    def _sync(self, event: str | None) -> None:
        self.lines += [] if event is None else [f"sync {event}"]

    def _begin(self, step: Step) -> None:
        """An event that comes too early is recorded before anything of the plan."""
        if self.protocol.event == "before" and self._last not in ("own-wait", "copy"):
            self._record(f"early{self.plans}", "compute")
            self.completion[step.step] = f"early{self.plans}"

    def _record(self, event: str, stream: str) -> None:
        self.lines.append(f"record {event} on {stream}")

    def _copy(self, step: Step) -> None:
        event = f"copied{self.plans}"
        self.lines.append(f"h2d P{step.slot} -> D{self.plans} on {self.plan_stream}")
        self._record(event, self.plan_stream)
        self.plans += 1
        if self.protocol.event == "after":
            self.own[step.slot] = self.completion[step.step] = event
        elif self.protocol.event == "before":
            self.own[step.slot] = self.completion[step.step]

    def _submit(self, step: Step) -> None:
        self.lines.append(f"wait copied{self.plans - 1} on compute")
        self.lines.append(f"kernel reads P{step.slot} on compute")
        protocol, event = self.protocol, f"done{step.step}"
        if protocol.event == "other-stream":
            self._record(event, "other")
            self.completion[step.step] = event
        elif protocol.event == "after" and protocol.wait_covers_replay:
            self._record(event, "compute")
            self.own[step.slot] = self.completion[step.step] = event
