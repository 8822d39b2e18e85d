"""Settings of racecheck's own test run."""

import os

# Tests run in parallel processes: one thread each, and the same sums on every machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# pytester forgets the modules that are first imported in a test of the plugin: classes would be there twice.
import racecheck.cli
import racecheck.engine
import racecheck.exact
import racecheck.faults
import racecheck.judge
import racecheck.litmus
import racecheck.scenario.run
import racecheck.trace.file
import racecheck.virtual  # noqa: F401

pytest_plugins = ["pytester"]
