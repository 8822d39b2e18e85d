"""Settings of racecheck's own test run."""

import os

# Tests run in parallel processes: one thread each, and the same sums on every machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

pytest_plugins = ["pytester"]
