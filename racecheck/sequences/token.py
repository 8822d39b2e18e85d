"""A sequence and its target as one short token, to paste into an issue and to replay anywhere.

`s1.` is followed by base64url of a compressed list and a checksum. The token holds everything that the report
depends on but the code: no scenario file is needed, nor the random numbers that led to the sequence.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import astuple, fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from racecheck.sequences.story import StepSequence
from racecheck.sequences.target import Target
from racecheck.virtual.token import broken, seal, unseal

PREFIX = "s1."
#: Bytes that a token may unfold to; more than any sequence has.
MOST = 1 << 20
#: What most tokens have in them. Part of the format: another one is another prefix.
_WORDS = (
    b'captured-copydropped-plan-advancesstale-promotion"audio","vision","qwen3-omni","qwen3-tts",'
    b'[8,0,1,0,0,0,"text",[]],["orpheus","orpheus","tiny","racecheck.scenario.reference:build",1,'
    b'[["main",2],["piecewise",2],["eager",2]],[],0,1,256,""],[[[6,0,1,0,0,0,"text",[]]],3,[],[]]]'
)

#: What a sequence may have beyond these four parts; left out from the right where it is as by default.
_MORE = ("prefill_chunk", "lazy_capture")
_TARGET = [field.name for field in fields(Target) if field.name != "folder"]
_SEQUENCE = TypeAdapter(StepSequence)
_CHECKED = TypeAdapter(Target)
_ASK = ("prompt", "arrival", "new", "cancel_after", "preempt_after", "group", "medium", "segments")


def token_of(target: Target, sequence: StepSequence) -> str:
    """The token of `sequence` on `target`."""
    told = [[getattr(target, name) for name in _TARGET], _parts(sequence)]
    packer = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=_WORDS)
    body = packer.compress(json.dumps(told, separators=(",", ":")).encode()) + packer.flush()
    return seal(PREFIX, body)


def parse_token(token: str) -> tuple[Target, StepSequence]:
    """What `token` says.

    Raises:
        UsageError: this is no token, or one that was cut short or mistyped.
    """
    try:
        target, (asks, steps, delays, lag, *more) = _unpacked(token)
        named = [dict(zip(_ASK, ask, strict=True)) for ask in asks]
        sequence = {"asks": named, "steps": steps, "delays": delays, "lag": lag}
        sequence |= dict(zip(_MORE[: len(more)], more, strict=True))
        return (
            _CHECKED.validate_python(dict(zip(_TARGET, target, strict=True))),
            _SEQUENCE.validate_python(sequence),
        )
    except (ValidationError, ValueError, TypeError, zlib.error):
        raise broken(PREFIX, token) from None


def _parts(sequence: StepSequence) -> list[Any]:
    """All of it, without what a sequence from before `_MORE` has not: such tokens stay as they are."""
    parts = list(astuple(sequence))
    while len(parts) > 4 and not parts[-1]:
        parts.pop()
    return parts


def _unpacked(token: str) -> Any:
    unpacker = zlib.decompressobj(-15, zdict=_WORDS)
    text = unpacker.decompress(unseal(PREFIX, token), MOST)
    if not unpacker.eof:
        raise broken(PREFIX, token)
    return json.loads(text)
