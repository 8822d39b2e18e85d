"""What the reference engine refuses to do; each docstring gives the cause and the remedy."""

from __future__ import annotations

from racecheck.errors import RacecheckError, UsageError


class NoGraphError(RacecheckError):
    """A step's declared shape resolves to no captured graph; the step is never run eagerly instead.

    Remedy: add a bucket that holds the batch to `ModelSpec.buckets`, or lower the limit that let the
    batch grow (`EngineConfig.prefill_limit`, `ModelSpec.max_requests`). If the bucket exists, the graph
    was stored under another key than it is looked up with.
    """


class RequestError(UsageError):
    """A request cannot be served by the model's limits.

    Remedy: the message names the request, the field and the range it must lie in.
    """


class CollectiveMismatch(RacecheckError):
    """Ranks make different collective calls, or one has left while others wait for it: a hang elsewhere.

    Remedy: the message names both calls and their lines; a decision that ranks must take alike was taken
    on one rank alone. A rank that left after an error of its own raised that error: look for it first.
    """


class RankLost(RacecheckError):
    """The process of a rank has died without a word; the launcher has ended the others.

    Remedy: the message has the exit code; a negative one is the signal (9 is often the kernel, out of
    memory).
    """
