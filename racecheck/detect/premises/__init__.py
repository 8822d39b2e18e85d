"""The premises of the slot theorem, checked on the run that a trace tells of (docs/proof.md has the theorem)."""

from racecheck.detect.premises.check import PremiseCheck
from racecheck.detect.premises.result import LETTERS, Broken, Premises

__all__ = ["LETTERS", "Broken", "PremiseCheck", "Premises"]
