"""Known regressions of staging, each one wrong engine part, and what must be found of it.

    fault = find("captured-copy")
    run_fault(fault, "orpheus")     # race on sampler.gather_indices
    run_twin(fault, "orpheus")      # clean: the same engine, setting and requests, with the right part

`racecheck faults` lists them. Read one: `racecheck faults captured-copy`.
"""

from racecheck.faults.catalogue import CATALOGUE, find
from racecheck.faults.fault import MODELS, USUAL, Fault, Setting
from racecheck.faults.matrix import Cell, cells, fault_problem, twin_problem
from racecheck.faults.run import Seen, observe, run_fault, run_twin

__all__ = [
    "CATALOGUE",
    "MODELS",
    "USUAL",
    "Cell",
    "Fault",
    "Seen",
    "Setting",
    "cells",
    "fault_problem",
    "find",
    "observe",
    "run_fault",
    "run_twin",
    "twin_problem",
]
