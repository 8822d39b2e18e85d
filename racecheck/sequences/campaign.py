"""A campaign: one target searched in shards, each with a seed of its own and a file for what it came to.

Shards are the same however many workers there are, so the results are, too; a campaign that was broken off
goes on with the shards that have no file yet.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis.database import ExampleDatabase
from pydantic import TypeAdapter, ValidationError

from racecheck.errors import UsageError
from racecheck.sequences.gpu_process import engine_on
from racecheck.sequences.hunt import effort
from racecheck.sequences.process import Served
from racecheck.sequences.search import Search, search
from racecheck.sequences.space import Space
from racecheck.sequences.tally import Tally
from racecheck.sequences.target import Target
from racecheck.sequences.token import parse_token, token_of

#: Examples of one shard: a few seconds, after which progress is kept.
SHARD = 25
FILE = "campaign.json"


@dataclass(frozen=True)
class Campaign:
    """What is searched, from which seed, in `shards` of `SHARD` examples (the last may have fewer).

    `device` is "virtual" or "cuda": where it is searched, which makes it another campaign.
    """

    target: Target
    space: Space
    seed: int
    examples: int
    device: str = "virtual"

    @property
    def shards(self) -> int:
        """How many there are."""
        return -(-self.examples // SHARD)

    @property
    def key(self) -> str:
        """What examples are kept under in a database: the same for the same target, whatever the space."""
        told = repr((self.target.name, self.target.fault, self.target.walks, self.target.slots))
        return f"{self.target.name}_{hashlib.sha256(told.encode()).hexdigest()[:8]}"

    def folder(self, root: Path) -> Path:
        """Where it keeps what it has come to, below `root`."""
        return root / f"{self.target.name}-{hashlib.sha256(repr(self).encode()).hexdigest()[:12]}"


_CAMPAIGN = TypeAdapter(Campaign)


def save(campaign: Campaign, root: Path) -> Path:
    """Make the campaign's folder, with its description in it; it may be there already."""
    folder = campaign.folder(root)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / FILE, _CAMPAIGN.dump_json(campaign, indent=1).decode())
    except OSError as error:
        raise UsageError(
            f"--folder {root}: cannot be written ({error.strerror}); name another folder"
        ) from None
    return folder


def load(folder: Path) -> Campaign:
    """The campaign that `folder` belongs to."""
    return _CAMPAIGN.validate_json((folder / FILE).read_bytes())


@dataclass
class Result:
    """What a shard, or all of them, came to. `tokens` and `titles` by signature."""

    shards: int = 0
    runs: int = 0
    tally: Tally = field(default_factory=Tally)
    tokens: dict[str, str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    hoped_for: tuple[str, ...] = ()

    def merge(self, other: Result) -> None:
        """Everything that `other` came to, too; of each finding the simpler sequence stays."""
        self.shards += other.shards
        self.runs += other.runs
        self.tally.merge(other.tally)
        self.hoped_for = other.hoped_for or self.hoped_for
        for signature, token in other.tokens.items():
            mine = self.tokens.get(signature, token)
            self.tokens[signature] = min(mine, token, key=_length)
            self.titles[signature] = other.titles[signature]

    @property
    def missing(self) -> list[str]:
        """What was not put to the test."""
        return self.tally.missing(self.hoped_for)


def _length(token: str) -> tuple[object, ...]:
    """How much of a story a token tells; of two alike the first in the alphabet, on every machine."""
    return effort(parse_token(token)[1]), token


_RESULT = TypeAdapter(Result)


def run_shard(
    folder: Path, campaign: Campaign, index: int, engine: Served, database: ExampleDatabase | None
) -> Result:
    """Search shard `index` (of -1, what the database knows already) and keep what it came to in `folder`."""
    done = search(
        engine.run,
        campaign.space,
        examples=min(SHARD, campaign.examples - index * SHARD) if index >= 0 else campaign.examples,
        seed=campaign.seed * 1_000_003 + index + 1,
        name=campaign.key,
        database=database,
        known=index < 0,
    )
    result = _result(campaign.target, done, engine.hoped_for)
    _write(_file(folder, index), _RESULT.dump_json(result).decode())
    return result


def _result(target: Target, done: Search, hoped_for: tuple[str, ...]) -> Result:
    found = done.found.items()
    return Result(
        shards=1,
        runs=done.runs,
        tally=done.tally,
        tokens={signature: token_of(target, one.sequence) for signature, one in found},
        titles={signature: one.outcome.title for signature, one in found},
        hoped_for=hoped_for,
    )


def todo(folder: Path, campaign: Campaign) -> list[int]:
    """The shards that have not been searched."""
    return [index for index in range(campaign.shards) if not _file(folder, index).exists()]


def so_far(folder: Path, indices: Iterable[int]) -> Result:
    """What those of the shards `indices` came to that have been searched."""
    total = Result()
    for index in indices:
        file = _file(folder, index)
        if not file.exists():
            continue
        try:
            total.merge(_RESULT.validate_json(file.read_bytes()))
        except (ValidationError, json.JSONDecodeError):
            raise UsageError(f"{file}: this is no shard's result; remove the file, and run again") from None
    return total


def run_here(
    folder: Path,
    campaign: Campaign,
    database: ExampleDatabase | None,
    until: float | None,
    progress: Callable[[Result], None],
) -> None:
    """Search what is left one shard after the other in this process; begin none after the time `until`."""
    left = todo(folder, campaign)
    with closing(engine_on(campaign.device, campaign.target)) as engine:
        run_shard(folder, campaign, -1, engine, database)  # what is known already
        for index in left:
            if until is not None and time.time() >= until:
                return
            progress(run_shard(folder, campaign, index, engine, database))


def _file(folder: Path, index: int) -> Path:
    return folder / ("known.json" if index < 0 else f"shard-{index:06}.json")


def _write(path: Path, text: str) -> None:
    """All of it or nothing: the process may be killed at any time."""
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
