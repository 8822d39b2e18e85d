"""Can a model serve a request? Asked before anything is queued."""

from __future__ import annotations

from racecheck.engine.errors import RequestError
from racecheck.engine.models.spec import Limits
from racecheck.engine.request import Request


def check(request: Request, limits: Limits, vocab: int) -> None:
    """Raise `RequestError` unless a decoder of `limits` that reads `vocab` tokens can serve `request`."""
    require(request, "prompt_tokens", request.prompt_tokens, 1, limits.max_prompt)
    require(request, "new_tokens", request.new_tokens, 1, limits.max_length - request.prompt_tokens)
    require(request, "len(text)", len(request.text), request.prompt_tokens, limits.max_length)
    require(request, "min(text)", min(request.text), 0, vocab - 1)
    require(request, "max(text)", max(request.text), 0, vocab - 1)
    require(request, "seed", request.seed, 0, 2**63 - 1)
    if request.cancel_after is not None:
        require(request, "cancel_after", request.cancel_after, 1, 2**31)
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
