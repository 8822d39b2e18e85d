"""Inside one run: from which step on a race is there, what it takes to show it, and what it takes to end it.

    followed = open_followed("report.json")       # of `racecheck run --json`; or a token of `racecheck fuzz`
    first_step(followed).steps                    # so many engine steps suffice
    needed_lateness(followed).by_value            # who must be late for the bytes to be wrong
    enough_slots(followed)                        # by runner
    needed_syncs(followed).missing                # what to add, and what could go

`racecheck bisect steps`, `delays`, `slots` and `syncs` print them; docs/bisect.md has examples.
"""

from racecheck.bisect.inside.delays import Needed, needed_lateness
from racecheck.bisect.inside.followed import Followed
from racecheck.bisect.inside.late import Late
from racecheck.bisect.inside.slots import Sweep, enough_slots
from racecheck.bisect.inside.source import open_followed
from racecheck.bisect.inside.steps import FirstStep, first_step
from racecheck.bisect.inside.subject import Seen, Subject
from racecheck.bisect.inside.syncs import Syncs, needed_syncs

__all__ = [
    "FirstStep",
    "Followed",
    "Late",
    "Needed",
    "Seen",
    "Subject",
    "Sweep",
    "Syncs",
    "enough_slots",
    "first_step",
    "needed_lateness",
    "needed_syncs",
    "open_followed",
]
