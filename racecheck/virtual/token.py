"""Tokens: a list of decisions in a few letters, to paste into an issue and to replay from.

`d1.` is followed by base64url (without padding) of pairs of variable-length integers: how many zeros, and
the decision after them. Zeros at the end say nothing and are left out, so most tokens are short. The last
two bytes are a checksum: a token that lost a letter is refused, not run as another one.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator

from racecheck.errors import UsageError

PREFIX = "d1."
#: More zeros than any run has decisions; a token that says more is broken, not long.
MOST = 10_000_000


def token_of(decisions: Iterable[int]) -> str:
    """The token of `decisions`, each a whole number from 0."""
    body, zeros = bytearray(), 0
    for decision in decisions:
        if decision == 0:
            zeros += 1
            continue
        body += _varint(zeros) + _varint(decision)
        zeros = 0
    return seal(PREFIX, bytes(body))


def decisions_of(token: str) -> list[int]:
    """The decisions that `token` spells.

    Raises:
        UsageError: this is no token, or one that was cut short or mistyped.
    """
    decisions: list[int] = []
    numbers = list(_numbers(unseal(PREFIX, token)))
    if len(numbers) % 2 or sum(numbers[::2]) + len(numbers) > MOST:
        raise broken(PREFIX, token)
    for zeros, decision in zip(numbers[::2], numbers[1::2], strict=True):
        decisions += [*[0] * zeros, decision]
    return decisions


def seal(prefix: str, body: bytes) -> str:
    """`body` and its checksum as letters that survive a shell, a URL and a file name, behind `prefix`."""
    return prefix + base64.urlsafe_b64encode(body + _checksum(body)).decode().rstrip("=")


def unseal(prefix: str, token: str) -> bytes:
    """What was sealed as `token`.

    Raises:
        UsageError: `token` has another prefix, or was cut short or mistyped.
    """
    text = token.removeprefix(prefix)
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        packed = b""
    if not token.startswith(prefix) or len(packed) < 2 or _checksum(packed[:-2]) != packed[-2:]:
        raise broken(prefix, token)
    return packed[:-2]


def broken(prefix: str, token: str) -> UsageError:
    """The error for a `token` that is none."""
    shown = token if len(token) <= 40 else f"{token[:37]}..."
    return UsageError(f"{shown!r} is not a complete token; paste it whole, from {prefix} to its last letter")


def _checksum(body: bytes) -> bytes:
    return (binascii.crc32(body) & 0xFFFF).to_bytes(2, "big")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _numbers(body: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in body:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
    if shift:
        yield MOST  # the last number is not complete
        yield 0
