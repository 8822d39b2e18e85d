"""Happens-before over a trace: verdict, findings, evidence. Knows only `racecheck.trace`."""

from racecheck.detect.detector import Detector
from racecheck.detect.finding import Finding

__all__ = ["Detector", "Finding"]
