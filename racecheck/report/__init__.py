"""What a run came to: plain results, and their two renderings (`text` for people, `json` for programs)."""

from racecheck.report.result import Expected, Report, Row, WrongTokens

__all__ = ["Expected", "Report", "Row", "WrongTokens"]
