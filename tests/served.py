"""What a process that serves sequences may do: of these, `GpuProcess` is told which."""

from __future__ import annotations

import os

from racecheck.errors import UsageError
from racecheck.sequences.process import next_job
from racecheck.sequences.run import Outcome


def well(connection, target):
    """Every run tells which process it was in; one of 5 steps is the process's last."""
    connection.send(("promoted",))
    while (job := next_job(connection)) is not None:
        goes_on = job[0].steps != 5
        connection.send((Outcome(verdict="clean", message=str(os.getpid())), goes_on))
        if not goes_on:
            return


def dying(connection, target):
    """A run ends the process."""
    connection.send(())
    next_job(connection)
    os.kill(os.getpid(), 9)


def hanging(connection, target):
    """A run waits for what never comes."""
    connection.send(())
    next_job(connection)
    next_job(connection)


def refusing(connection, target):
    """There is nothing to serve."""
    connection.send(UsageError("there is no engine"))


def mute(connection, target):
    """It ends at once."""


def ending(connection, target):
    """Its first good answer is its last word, which it does not say."""
    connection.send(())
    next_job(connection)
    connection.send((Outcome(verdict="clean", message=str(os.getpid())), True))


def tearing(connection, target):
    """It dies in the middle of a word."""
    connection.send(())
    next_job(connection)
    os.write(connection.fileno(), (1000).to_bytes(4, "big") + b"torn")
    os.kill(os.getpid(), 9)


def stalling(connection, target):
    """It stops in the middle of a word."""
    connection.send(())
    next_job(connection)
    os.write(connection.fileno(), (1000).to_bytes(4, "big") + b"torn")
    next_job(connection)


def building(connection, target):
    """It never gets so far."""
    next_job(connection)


def raising(connection, target):
    """A run is a bug."""
    connection.send(())
    next_job(connection)
    connection.send(KeyError("a bug"))
