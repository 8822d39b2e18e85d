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
