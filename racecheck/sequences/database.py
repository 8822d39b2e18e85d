"""Where failing examples are kept: one of Hypothesis' own databases, named by a short text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from hypothesis.database import (
    DirectoryBasedExampleDatabase,
    ExampleDatabase,
    GitHubArtifactDatabase,
    MultiplexedDatabase,
    ReadOnlyDatabase,
)

from racecheck.errors import UsageError

#: What `github:` keeps of its own, as artifacts are only read.
LOCAL = Path(".racecheck") / "examples"
_GITHUB = re.compile(r"github:([\w.-]+)/([\w.-]+)")


class Named(ExampleDatabase):
    """The part of `base` that belongs to `name`: Hypothesis' own keys know the test's source and no more."""

    def __init__(self, base: ExampleDatabase, name: str) -> None:
        super().__init__()
        self._base, self._name = base, name.encode()

    def save(self, key: bytes, value: bytes) -> None:
        """Keep `value` under `key`."""
        self._base.save(self._name + key, value)

    def fetch(self, key: bytes) -> Iterable[bytes]:
        """What is kept under `key`."""
        return self._base.fetch(self._name + key)

    def delete(self, key: bytes, value: bytes) -> None:
        """Keep `value` no longer."""
        self._base.delete(self._name + key, value)


def open_database(where: str) -> ExampleDatabase:
    """A folder, `redis://HOST:PORT/N`, or `github:OWNER/REPOSITORY` (read only, with a folder beside it).

    Raises:
        UsageError: the Redis client is not installed, its server does not answer, or this is no repository.
    """
    if where.startswith(("redis://", "rediss://")):
        return _redis(where)
    if not where.startswith("github:") and "://" in where:
        raise UsageError(
            f"--database {where}: this is no kind of database; write a folder, redis://HOST:PORT/N or "
            "github:OWNER/REPOSITORY"
        )
    if not where.startswith("github:"):
        return DirectoryBasedExampleDatabase(Path(where) if where else LOCAL)
    match = _GITHUB.fullmatch(where)
    if match is None:
        raise UsageError(f"--database {where}: this is no repository; write github:OWNER/REPOSITORY")
    shared = ReadOnlyDatabase(GitHubArtifactDatabase(match[1], match[2]))
    return MultiplexedDatabase(DirectoryBasedExampleDatabase(LOCAL), shared)


def _redis(where: str) -> ExampleDatabase:
    try:
        from hypothesis.extra.redis import RedisExampleDatabase
        from redis import Redis, RedisError  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise UsageError(
            f"--database {where}: the Redis client is not installed; pip install 'hypothesis[redis]'"
        ) from None
    try:
        client = Redis.from_url(where)
        client.ping()
    except ValueError as error:
        raise UsageError(f"--database {where}: {error}; write redis://HOST:PORT/N") from None
    except RedisError as error:
        raise UsageError(f"--database {where}: the server does not answer ({error}); start it") from None
    return RedisExampleDatabase(client)
