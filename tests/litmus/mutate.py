"""Ways to spoil a litmus file: each takes its bytes and a random source and gives other bytes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

Mutation = Callable[[bytes, random.Random], bytes]
TOKENS = (
    *("alloc", "pinned", "pageable", "mapped", "device", "aliases", "after", "uses", "stream", "blocking"),
    *("host_write", "host_read", "h2d", "d2h", "d2d", "memcpy_h2d", "kernel", "reads", "writes", "hostfn"),
    *(
        "record",
        "wait",
        "wait_stream",
        "sync",
        "query",
        "signal",
        "await",
        "free",
        "release",
        "graph",
        "replay",
    ),
    *(
        "rank0:",
        "rank1",
        "coll",
        "on",
        "as",
        "want",
        "order=any",
        "order=stream",
        "order=call",
        "order",
        "legacy",
    ),
    *(
        "->",
        "<-",
        "-",
        ">",
        "[",
        "]",
        "[T]",
        "[0:4]",
        "[4:4]",
        "[8:2]",
        "{",
        "}",
        ";",
        ",",
        ":",
        "=",
        "#",
        "done",
    ),
    *(
        "pending",
        "s0",
        "D",
        "H",
        "e",
        "X=v",
        "g",
        "# expect: SAFE",
        "\t",
        "\r",
        "'",
        '"',
        "\\",
        "%s",
        "{0}",
        "\n",
    ),
)
NUMBERS = ("0", "-1", "00", "1e9", "999999999999999", "9" * 16, "9" * 400, "0x10", "1.5", "٣", "²", "\uff11")
STRANGE = (
    "\u00e9",
    "\u0000",
    "\u202e",
    "\ufeff",
    "\u2028",
    "\u0085",
    "\x0b",
    "\U0001f600",
    "e\u0301",
    "\u00a0",
    "ß",
)


def flip_a_bit(data: bytes, rng: random.Random) -> bytes:
    """One bit of one byte; the result may not be UTF-8."""
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _tokens(data: bytes) -> list[bytes]:
    """Words, signs and the blanks between them."""
    return re.findall(rb"\s+|[A-Za-z0-9_]+|[^\sA-Za-z0-9_]", data)


def delete_a_token(data: bytes, rng: random.Random) -> bytes:
    """One word, sign or blank less."""
    tokens = _tokens(data)
    del tokens[rng.randrange(len(tokens))]
    return b"".join(tokens)


def insert_a_token(data: bytes, rng: random.Random) -> bytes:
    """A word of the language where it may not belong."""
    tokens = _tokens(data)
    tokens.insert(rng.randrange(len(tokens) + 1), f" {rng.choice(TOKENS)} ".encode())
    return b"".join(tokens)


def replace_a_token(data: bytes, rng: random.Random) -> bytes:
    """Another word of the language in a word's place."""
    tokens = _tokens(data)
    tokens[rng.randrange(len(tokens))] = rng.choice(TOKENS).encode()
    return b"".join(tokens)


def swap_tokens(data: bytes, rng: random.Random) -> bytes:
    """Two words or signs change places."""
    tokens = _tokens(data)
    a, b = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    tokens[a], tokens[b] = tokens[b], tokens[a]
    return b"".join(tokens)


def change_lines(data: bytes, rng: random.Random) -> bytes:
    """A line twice, a line less, or two lines in each other's place."""
    lines = data.splitlines(keepends=True)
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(3):
        case 0:
            lines.insert(b, lines[a])
        case 1:
            del lines[a]
        case _:
            lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def truncate(data: bytes, rng: random.Random) -> bytes:
    """Only the beginning, perhaps nothing."""
    return data[: rng.randrange(len(data))]


def insert_strange_text(data: bytes, rng: random.Random) -> bytes:
    """Characters that no litmus file has, or any at all."""
    at = rng.randrange(len(data) + 1)
    text = rng.choice(STRANGE) if rng.random() < 0.5 else chr(rng.choice((rng.randrange(0xD800), 0x1F300)))
    return data[:at] + text.encode() + data[at:]


def insert_a_number(data: bytes, rng: random.Random) -> bytes:
    """A range with numbers that are huge, negative or none, after some word."""
    tokens = _tokens(data)
    span = f"[{rng.choice(NUMBERS)}:{rng.choice(NUMBERS)}]"
    tokens.insert(rng.randrange(len(tokens) + 1), span.encode())
    return b"".join(tokens)


def insert_bytes(data: bytes, rng: random.Random) -> bytes:
    """NUL bytes, or bytes that are not UTF-8."""
    at = rng.randrange(len(data) + 1)
    return (
        data[:at]
        + rng.choice((b"\0", b"\0" * 40, b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\x80"))
        + data[at:]
    )


def use_other_line_ends(data: bytes, rng: random.Random) -> bytes:
    """Carriage returns, alone or with line feeds."""
    return data.replace(b"\n", rng.choice((b"\r\n", b"\r")))


MUTATIONS: tuple[Mutation, ...] = (
    flip_a_bit,
    delete_a_token,
    insert_a_token,
    replace_a_token,
    swap_tokens,
    change_lines,
    truncate,
    insert_strange_text,
    insert_a_number,
    insert_bytes,
    use_other_line_ends,
)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Mostly one mutation, sometimes up to four."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(MUTATIONS)(data, rng) if data else data
    return data
