"""Streams, events and graphs belong to the context they were made in, as device tensors do.

A program that keeps one in a module from context to context would queue its work where nobody waits for it.
"""

from __future__ import annotations

from racecheck.virtual.machine import Machine, machine


def machine_of(home: Machine, what: str) -> Machine:
    """The open machine, which must be `home`: `what` was made there.

    Raises:
        RuntimeError: another context is open, or none.
    """
    state = machine()
    if state is not home:
        raise RuntimeError(
            f"this {what} belongs to another virtual_cuda() context, which has devices of its own; "
            "make it inside the context that uses it"
        )
    return state
