"""The lag that walks the tree of decisions depth first, one path a run."""

from __future__ import annotations

from dataclasses import dataclass

from racecheck.errors import UsageError
from racecheck.virtual.history import History
from racecheck.virtual.lag import RETIRE
from racecheck.virtual.machine import machine


@dataclass(slots=True)
class _Choice:
    """A choice point on the path: the state it was met in, how many answers it has, and the one to take."""

    state: bytes
    options: int
    taken: int


class Explorer:
    """Answers along a known path, then with the first answer everywhere; `advance` makes the next path.

    `polls` is how often a query may find its work pending before something has to retire.
    """

    name = "explore"

    def __init__(self, polls: int) -> None:
        self.pruned = 0
        self.taken: list[int] = []  # this run's answers
        self._polls = polls
        self._seen: set[bytes] = set()
        self._path: list[_Choice] = []
        self._known = 0  # the part of the path that earlier runs have gone
        self._branching = True  # has this run met no state that was seen before?
        self._strayed = False

    @property
    def states(self) -> int:
        """How many different states were met so far."""
        return len(self._seen)

    def begin(self) -> None:
        """A run begins, in the open context."""
        self._machine = machine()
        self._machine.history = self._history = History(self._machine)
        self._machine.scheduler.returning = self._history.returned
        self._known, self._branching = len(self._path), True
        self.taken = []

    def decide(self, kind: str, options: int) -> int:
        """The path's answer, or the first one."""
        answer = self._on_path(kind, options) if len(self.taken) < self._known else self._new(kind, options)
        self.taken.append(answer)
        if kind != RETIRE:
            self._history.learn(kind, answer)  # the order of the host's threads; what retires shows by itself
        return answer

    def advance(self) -> bool:
        """Change the last answer that has an alternative left. False: every path has been gone."""
        while self._path and self._path[-1].taken + 1 == self._path[-1].options:
            self._path.pop()
        if self._path:
            self._path[-1].taken += 1
        return bool(self._path)

    def check(self) -> None:
        """Raise an error if the program did not follow the path as it did before.

        Raises:
            UsageError: it did not; what was found so far says nothing.
        """
        if self._strayed or len(self.taken) < self._known:
            raise UsageError(
                "explore() needs a program that does the same whenever the device does the same; this "
                "one did not: look for times, addresses, tensors or counters kept from one run to the next"
            )

    def _on_path(self, kind: str, options: int) -> int:
        depth = len(self.taken)
        choice = self._path[depth]
        last = depth == self._known - 1
        if options != choice.options or (last and self._history.state(kind, options) != choice.state):
            self._strayed = True
        return min(choice.taken, options - 1)

    def _new(self, kind: str, options: int) -> int:
        first = int(kind == RETIRE and self._polled_enough())
        if not self._branching:
            return first
        state = self._history.state(kind, options)
        if state in self._seen:
            self._branching = False
            self.pruned += 1
            return first
        self._seen.add(state)
        self._path.append(_Choice(state, options, first))
        return first

    def _polled_enough(self) -> bool:
        """Is somebody asking about work that was pending too often? Then retiring nothing is no answer."""
        work = self._machine.asked
        return work is not None and not work.done and work.asked > self._polls
