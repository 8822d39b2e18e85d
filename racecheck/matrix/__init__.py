"""Resource x runner x slots: what was measured, what the slot theorem says, and the smallest setting."""

from racecheck.matrix.table import Cell, Entry, Matrix

__all__ = ["Cell", "Entry", "Matrix"]
