"""One question, two methods: they agree, or there is no answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from racecheck.errors import UsageError
from racecheck.prove.explore import explore
from racecheck.prove.protocol import Protocol
from racecheck.prove.verdict import Counterexample, Result, Status

METHODS = ("both", "z3", "explore")
EXIT_CODES: dict[Status, int] = {"proved": 0, "refuted": 1, "unknown": 3}


@dataclass(frozen=True)
class Answer:
    """What each method that was asked says of `protocol`."""

    protocol: Protocol
    results: tuple[Result, ...]

    @property
    def status(self) -> Status:
        """What all of them say; "unknown" if they do not say the same."""
        said = {result.status for result in self.results}
        return said.pop() if len(said) == 1 else "unknown"

    @property
    def disagree(self) -> bool:
        """Does one prove what another refutes? Then one of the two models is wrong."""
        return {"proved", "refuted"} <= {result.status for result in self.results}

    @property
    def counterexample(self) -> Counterexample | None:
        """The one with the fewest actions; among equals the exploration's, which is always the same."""
        found = [each.counterexample for each in self.results[::-1] if each.counterexample is not None]
        return min(found, key=lambda each: len(each.steps), default=None)

    @property
    def exit_code(self) -> int:
        """0 proved, 1 refuted, 3 unknown."""
        return EXIT_CODES[self.status]


def ask(protocol: Protocol, method: str = "both", *, brief: bool = False) -> Answer:
    """Put `protocol` to one of `METHODS`; `brief` asks for an invariant that can spare no conjunct.

    Raises:
        UsageError: the method needs z3, which is not installed.
    """
    results = []
    if method != "explore":
        results.append(z3_method()(protocol, brief=brief))
    if method != "z3":
        results.append(explore(protocol))
    return Answer(protocol, tuple(results))


def z3_method() -> Callable[..., Result]:
    """`induct`, if z3 is installed."""
    try:
        from racecheck.prove.induct import induct
    except ImportError:
        raise UsageError(
            "racecheck prove: z3 is not installed; pip install 'racecheck[prove]', or write --method explore"
        ) from None
    return induct
