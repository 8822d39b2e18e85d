"""The names at the top of the package."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import racecheck


def test_no_public_name_is_a_module():
    """A submodule of the same name would replace the function as soon as anybody imports it."""
    modules = {module.name for module in pkgutil.iter_modules(racecheck.__path__)}
    assert not modules & set(racecheck._HOMES)


def test_every_public_name_resolves():
    """`__all__` and the lazy table agree, and each name can be had."""
    assert set(racecheck.__all__) == set(racecheck._HOMES)
    for name in racecheck.__all__:
        assert callable(getattr(racecheck, name))


def test_importing_the_package_does_not_import_torch():
    """The command line's help and the pytest plugin must not pay for it."""
    code = "import racecheck, racecheck.pytest_plugin, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
