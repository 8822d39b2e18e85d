"""Python imports this before a program that `racecheck exec` runs; it imports the program's own."""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_HERE = os.path.dirname(os.path.abspath(__file__))


def _own() -> None:
    path = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


if os.environ.get("RACECHECK") == "1":
    try:
        from racecheck.injected import start
    except ImportError as error:  # another Python than racecheck's
        print(f"racecheck: {sys.executable} cannot import it ({error}): not audited", file=sys.stderr)
    else:
        start()
_own()
