"""`python -m racecheck`: the command line without an installed script."""

import sys

from racecheck.cli import main

sys.exit(main())
