"""Can a model serve a request? Asked before anything is queued."""

from __future__ import annotations

from racecheck.engine.errors import RequestError
from racecheck.engine.models.spec import EncoderSpec, Limits
from racecheck.engine.request import Request

#: Segments that one step may pack.
MAX_SEGMENTS = 64


def check(request: Request, limits: Limits, vocab: int) -> None:
    """Raise `RequestError` unless a decoder of `limits` that reads `vocab` tokens can serve `request`."""
    require(request, "prompt_tokens", request.prompt_tokens, 1, limits.max_prompt)
    require(request, "new_tokens", request.new_tokens, 1, limits.max_length - request.prompt_tokens)
    require(request, "len(text)", len(request.text), request.prompt_tokens, limits.max_length)
    require(request, "min(text)", min(request.text), 0, vocab - 1)
    require(request, "max(text)", max(request.text), 0, vocab - 1)
    require(request, "seed", request.seed, 0, 2**63 - 1)
    for field in ("cancel_after", "preempt_after"):
        value = getattr(request, field)
        if value is not None:
            require(request, field, value, 1, 2**31)
    if not request.temperature > 0:
        raise RequestError(f"request {request.id}: temperature must be above 0, not {request.temperature}")


def require(request: Request, field: str, value: int, low: int, high: int) -> None:
    """Raise `RequestError` unless `value` lies in `low`..`high`."""
    if not low <= value <= high:
        raise RequestError(f"request {request.id}: {field} must lie in {low}..{high}, not {value}")


def text_only(request: Request) -> None:
    """Raise `RequestError` if `request` comes with sound or pictures."""
    if request.medium != "text" or request.segments:
        raise RequestError(f"request {request.id}: this model takes no {request.medium}, only text")


def check_segments(request: Request, encoder: EncoderSpec | None) -> None:
    """Raise `RequestError` unless `encoder` can take the segments of `request`; None: there is no encoder."""
    if encoder is None:
        raise RequestError(f"request {request.id}: this model takes no {request.medium}")
    require(request, "the number of segments", len(request.segments), 1, MAX_SEGMENTS)
    require(request, "the sum of segments", sum(request.segments), 1, max(encoder.buckets))
    for length in request.segments:
        if length < 1 or length % encoder.segment:
            raise RequestError(
                f"request {request.id}: {request.medium} comes in segments of a multiple of "
                f"{encoder.segment} tokens, not of {length}"
            )
