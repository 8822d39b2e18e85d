"""Every error racecheck raises on purpose; each docstring gives the cause and the remedy."""

from __future__ import annotations


class RacecheckError(Exception):
    """Base of all errors below: catch it to tell racecheck's own complaints from a bug in it."""


class UsageError(RacecheckError):
    """An option, a file or a key is wrong.

    Remedy: the message is one line that names the file and line (or the option) and what to write
    instead. The command line turns it into exit code 2.
    """


class ScenarioError(UsageError):
    """A scenario file cannot be read or does not validate; the message starts with `file:line:`."""


class BisectError(UsageError):
    """The ends of a bisection are not what they were said to be: good is bad, bad is good, one cannot run.

    Remedy: the message says which end, why, and what kind of commit to name instead.
    """


class GitError(UsageError):
    """git refused something while a repository was bisected.

    Remedy: the message has git's own last line; a commit that cannot be checked out is skipped.
    """


class NothingFound(RacecheckError):
    """A report or a token has no finding to ask about, or its finding does not come again.

    Remedy: the message says which; name a run that shows one, with the code it was made with. The command
    line turns it into exit code 3.
    """


class LitmusError(UsageError):
    """A litmus program is malformed; the message starts with `file:line:column:`, then what was expected."""


class TraceFileError(UsageError):
    """A trace file cannot be read or is damaged; the message starts with `file:line:`."""


class TraceError(RacecheckError):
    """A provider emitted records that contradict each other (a replay of a graph never captured).

    Remedy: this is a bug in the provider; keep the trace and report it.
    """


class LeaseError(RacecheckError):
    """A staging buffer or lease was used in a way that would stage something else than was meant.

    A lease is out of date, a slot does not exist, values have another dtype or shape, or there is no
    device to stage for. Remedy: the message says what to write instead; take a new lease for every step
    (`PinnedBuffer.lease`) and drop it when the step's plan is submitted or discarded.
    """


class UnsupportedOperation(RacecheckError):
    """Code under virtual CUDA called something that cannot be carried to the virtual device.

    Remedy: the message names the call; avoid it under `virtual_cuda()` or run on a real GPU.
    """


class DeadlockError(RacecheckError):
    """Every host thread of a `virtual_cuda` context waits, and none of them can wake another.

    Raised in the thread that opened the context; the others are unwound. Remedy: the message names each
    thread and what it waits for; acquire locks in one order, notify before the last waiter waits, or wait
    with a timeout.
    """


class RaceFound(AssertionError, RacecheckError):
    """`Audit.assert_clean()` on a run whose verdict is race, stale or hang.

    Remedy: the message names both accesses, the missing edge and a checked repair.
    """


class Inconclusive(AssertionError, RacecheckError):
    """`Audit.assert_clean()` on a run that rewrote no staged buffer, so nothing was put to the test.

    Remedy: run more steps, or audit the code that stages and re-stages a buffer.
    """
