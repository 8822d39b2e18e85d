"""The premises of the slot theorem (docs/proof.md), checked on the run that a trace tells of."""

from racecheck.detect.premises.check import PremiseCheck
from racecheck.detect.premises.result import LETTERS, Broken, Premises

__all__ = ["LETTERS", "Broken", "PremiseCheck", "Premises"]
