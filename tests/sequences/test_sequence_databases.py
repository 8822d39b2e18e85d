"""Where examples are kept: folders, a Redis server (a made-up one), and what a repository has."""

from __future__ import annotations

import sys
from collections import defaultdict
from types import ModuleType

import pytest
from hypothesis.database import InMemoryExampleDatabase, MultiplexedDatabase

from racecheck.errors import UsageError
from racecheck.sequences import Outcome, Space, search
from racecheck.sequences.database import Named, open_database

SPACE = Space(prompt=(5, 12))
SERVERS: dict[str, dict[bytes, set[bytes]]] = {}


class RedisError(Exception):
    """What the client raises."""


class Redis:
    """As much of the client as Hypothesis uses: sets of bytes, by server."""

    def __init__(self, sets):
        self.sets = sets

    @classmethod
    def from_url(cls, url):
        """The server of this address."""
        if not url.startswith("redis://here"):
            raise ValueError("no such scheme")
        return cls(SERVERS.setdefault(url, defaultdict(set)))

    def ping(self):
        """One server is down."""
        if self.sets is SERVERS.get("redis://here/9"):
            raise RedisError("connection refused")

    def pipeline(self):
        """Commands one after the other."""
        return Pipeline(self.sets)

    def publish(self, channel, message):
        """Nobody listens."""


class Pipeline:
    """Its commands are done when it is executed."""

    def __init__(self, sets):
        self.sets, self.todo = sets, []

    def __getattr__(self, command):
        return lambda *given: self.todo.append((command, *given))

    def execute(self):
        """What each command comes to."""
        return [getattr(self, f"_{command}")(*given) for command, *given in self.todo]

    def _expire(self, key, time):
        return 1

    def _smembers(self, key):
        return set(self.sets[key])

    def _sadd(self, key, value):
        before = len(self.sets[key])
        self.sets[key].add(value)
        return len(self.sets[key]) - before

    def _srem(self, key, value):
        before = len(self.sets[key])
        self.sets[key].discard(value)
        return before - len(self.sets[key])


@pytest.fixture
def client(monkeypatch):
    """The made-up client is installed, and its servers are empty."""
    module = ModuleType("redis")
    module.Redis, module.RedisError = Redis, RedisError
    monkeypatch.setitem(sys.modules, "redis", module)
    sys.modules.pop("hypothesis.extra.redis", None)
    SERVERS.clear()
    yield
    sys.modules.pop("hypothesis.extra.redis", None)


def two_together(sequence):
    """A race once two requests are there."""
    signature = "pair" if len(sequence.asks) > 1 else None
    return Outcome(verdict="race" if signature else "clean", signature=signature, steps=sequence.steps)


def found(database, known):
    """What a search finds with it, or what the database knows."""
    given = {"examples": 30, "seed": 1, "name": "one", "database": database, "known": known}
    return search(two_together, SPACE, **given)


def test_two_machines_share_what_a_server_has(client):
    """One finds it, the other one runs it first; another server knows nothing."""
    assert set(found(open_database("redis://here/0"), known=False).found) == {"pair"}
    again = found(open_database("redis://here/0"), known=True)
    assert (again.first, set(again.found)) == (1, {"pair"})
    assert not found(open_database("redis://here/1"), known=True).found


@pytest.mark.parametrize(
    ("where", "said"),
    [("redis://here/9", "does not answer .connection refused.; start it"), ("rediss://x", "no such scheme")],
)
def test_a_server_that_cannot_be_had(client, where, said):
    """One line with the remedy."""
    with pytest.raises(UsageError, match=said):
        open_database(where)


def test_redis_without_its_client(monkeypatch):
    """The line names the extra."""
    monkeypatch.setitem(sys.modules, "redis", None)
    sys.modules.pop("hypothesis.extra.redis", None)
    with pytest.raises(UsageError, match=r"pip install 'hypothesis\[redis\]'"):
        open_database("redis://here/0")


def test_a_folder_is_shared(tmp_path):
    """What one process keeps there, the next one runs first."""
    assert found(open_database(str(tmp_path)), known=False).found
    assert found(open_database(str(tmp_path)), known=True).first == 1


def test_a_repository_is_read_and_a_folder_written(tmp_path, monkeypatch):
    """Saving goes to the folder beside it alone: nothing asks the repository for that."""
    monkeypatch.chdir(tmp_path)
    database = open_database("github:owner/repository")
    assert isinstance(database, MultiplexedDatabase)
    database.save(b"key", b"value")
    assert list((tmp_path / ".racecheck" / "examples").rglob("*"))
    with pytest.raises(UsageError, match="write github:OWNER/REPOSITORY"):
        open_database("github:nobody")


def test_a_name_is_a_part_of_its_own():
    """Two targets do not see each other's examples, and moving stays within one."""
    base = InMemoryExampleDatabase()
    one, other = Named(base, "one"), Named(base, "other")
    one.save(b"key", b"a")
    one.move(b"key", b"next", b"a")
    assert (set(one.fetch(b"key")), set(one.fetch(b"next")), set(other.fetch(b"next"))) == (
        set(),
        {b"a"},
        set(),
    )
    one.delete(b"next", b"a")
    assert not set(one.fetch(b"next"))


@pytest.mark.parametrize("where", ["foo://x", "rdis://here/1", "https://host/folder"])
def test_a_kind_that_is_none(where, tmp_path, monkeypatch):
    """One line with the three that are, and no folder of that name."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="write a folder, redis://HOST:PORT/N or github:OWNER/REPOSITORY"):
        open_database(where)
    assert not list(tmp_path.iterdir())
