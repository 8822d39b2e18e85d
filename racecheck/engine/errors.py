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
