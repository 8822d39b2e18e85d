"""The report as one HTML file that needs nothing else: no network, no framework, no file beside it.

`page` makes it from rows of scenarios, audits and judged traces. All text is escaped by the serialiser, and a
content security policy lets no script run but racecheck's own.
"""

from racecheck.report.html.chapter import Chapter
from racecheck.report.html.document import page, render

__all__ = ["Chapter", "page", "render"]
