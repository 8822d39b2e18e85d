"""Run one sequence on an engine that stands ready, under audit, and say what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from racecheck.errors import RacecheckError, UsageError
from racecheck.report.result import WRONG
from racecheck.sequences.steering import Steering
from racecheck.sequences.story import StepSequence
from racecheck.sequences.watch import Watch
from racecheck.staging.delays import delays

if TYPE_CHECKING:
    from racecheck.detect.evidence import BufferEvidence
    from racecheck.detect.finding import Finding
    from racecheck.detect.premises import Premises
    from racecheck.judge import Audit
    from racecheck.scenario.engines import ServingEngine


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a sequence came to.

    `verdict` is the audit's, "error" if the engine refused before anything was found, "crash" if its process
    died, "stuck" if it did not end. `signature` tells one finding from another, whatever the steps; None if
    there is none. `on` is the buffer of the first finding, of an error its class. `steps` were run;
    in the step `at` (from 1) it was clear what the sequence comes to. `premises` are those of the slot
    theorem (docs/proof.md).
    """

    verdict: str
    signature: str | None = None
    on: str | None = None
    message: str | None = None
    findings: tuple[Finding, ...] = ()
    buffers: Mapping[str, BufferEvidence] = field(default_factory=dict)
    moves: Mapping[str, int] = field(default_factory=dict)
    events: Mapping[str, int] = field(default_factory=dict)
    steps: int = 0
    premises: Premises | None = None
    tokens: Mapping[str, Any] | None = None  # with reasons only; None if the run ended early
    at: int = 0

    @property
    def title(self) -> str:
        """The verdict and what it is about."""
        return self.verdict if self.on is None else f"{self.verdict} on {self.on}"

    @property
    def open_windows(self) -> int:
        """How many rewrites were made while the device was still reading an earlier step's layout."""
        return sum(buffer.open_windows for buffer in self.buffers.values())

    @property
    def rewrites(self) -> int:
        """Rewrites of all staged buffers."""
        return sum(buffer.rewrites for buffer in self.buffers.values())


class _Enough(Exception):
    """A race has been met, and no later step changes which one is the first."""


def perform(
    engine: ServingEngine,
    vocab: int,
    audit: Audit,
    steering: Steering,
    sequence: StepSequence,
    explain: bool = False,
) -> Outcome:
    """Serve `sequence` on `engine`, which reads `vocab` text tokens; `audit` has listened since it was built.

    With `explain` all steps are run, and findings have reasons and checked repairs, which takes time; without
    nothing is run behind a race. An exception that no race explains and that is none of racecheck's own is
    raised: it is a bug, not a verdict.
    """
    requests, watch = sequence.requests(vocab), Watch(engine)
    error: Exception | None = None
    tokens = None
    sequence.adjust(engine)
    verdicts: dict[str, int] = {}  # with the step in which each came

    def on_step(batch: Any) -> None:
        watch(batch)
        verdicts.setdefault(audit.verdict, watch.steps)
        if "race" in verdicts and not explain:
            raise _Enough

    steering.take(sequence.delays, sequence.lag)
    try:
        with delays(steering.delay):
            tokens = engine.run(requests, sequence.steps, on_step)
        watch.finish(requests, tokens)
    except _Enough:
        pass
    except Exception as caught:
        error = caught
    watch.events.update(Counter(own_events(engine)))
    seen = judge(audit, audit.first, error, explain)
    at = verdicts.get(seen.verdict, watch.steps)
    return completed(seen, audit, watch, at, tokens if explain else None)


def completed(
    outcome: Outcome, audit: Audit, watch: Watch, at: int, tokens: Mapping[str, Any] | None
) -> Outcome:
    """`outcome` with the evidence of its run."""
    return replace(
        outcome,
        buffers=dict(audit.evidence.buffers),
        moves=+watch.moves,
        events=+watch.events,
        steps=watch.steps,
        premises=audit.premises,
        tokens=tokens,
        at=at,
    )


def own_events(engine: Any) -> Mapping[str, int]:
    """What an engine counts itself; it need not."""
    return engine.events() if hasattr(engine, "events") else {}


def judge(audit: Audit, first: Finding | None, error: Exception | None, explain: bool) -> Outcome:
    """What `audit` found, told by its finding `first`, or what the `error` that ended the run says.

    An error that no finding explains and that is none of racecheck's own is raised.
    """
    if audit.verdict not in WRONG or first is None:
        if error is None:
            return Outcome(verdict=audit.verdict)
        if not isinstance(error, RacecheckError) or isinstance(error, UsageError):
            raise error  # a request that cannot be served is the space's mistake, not the engine's
        name = type(error).__name__
        return Outcome(verdict="error", signature=f"error {name}", on=name, message=str(error))
    findings = sorted(audit.findings, key=lambda each: each is not first) if explain else [first]
    # The pairs would keep, and send, the whole trace.
    bare = tuple(replace(finding, pairs=[]) for finding in findings)
    message = None if error is None else f"The run ended early with {type(error).__name__}: {error}"
    return Outcome(
        verdict=first.kind, signature=first.base_fingerprint, on=first.buffer, message=message, findings=bare
    )
