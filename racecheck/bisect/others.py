"""What the commits of a bisection show besides the race that is followed, each race once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from racecheck.bisect.identity import Form, assign
from racecheck.bisect.snapshot import Snapshot
from racecheck.bisect.state import Record
from racecheck.bisect.verdict import describe


def elsewhere(at: Record, records: Iterable[Record], snapshot: Callable[[str], Snapshot]) -> Iterator[str]:
    """The races of other commits that are none of those `at` has, each in the form it is first met in.

    A race that got another fingerprint, because its file or function was renamed, is the same one.
    """
    known = [[Form.of(finding, snapshot(at.commit))] for finding in at.others]
    names = {describe(finding): index for index, finding in enumerate(at.others)}
    for record in records:
        taken = {names[name] for name in map(describe, record.others) if name in names}
        new = [finding for finding in record.others if describe(finding) not in names]
        forms = [Form.of(finding, snapshot(record.commit)) for finding in new]
        free = [index for index in range(len(known)) if index not in taken]
        same = assign(forms, [known[index] for index in free])
        for place, (finding, form) in enumerate(zip(new, forms, strict=True)):
            if place in same:
                index = free[same[place]]
                known[index].append(form)
            else:
                index = len(known)
                known.append([form])
                yield f"{describe(finding)} at {record.commit[:10]}"
            names[describe(finding)] = index
