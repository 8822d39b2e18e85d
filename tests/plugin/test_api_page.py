"""docs/api.md says what is there, and its example runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch  # noqa: F401 - pytester forgets modules imported in a test, and torch cannot be imported twice

import racecheck
import racecheck.virtual  # registers a backend, once a process
from racecheck import errors
from racecheck.staging import Lease, PinnedBuffer

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
EXAMPLES = [part.partition("```")[0] for part in PAGE.split("```python\n")[1:]]
KERNELS = next(example for example in EXAMPLES if "virtual.register" in example)
EXAMPLE = EXAMPLES[0]


def test_the_example_passes(pytester: pytest.Pytester) -> None:
    """What a reader copies is a test file of three tests that pass."""
    pytester.makepyfile(test_staging=EXAMPLE)
    pytester.runpytest_inprocess("test_staging.py").assert_outcomes(passed=3)


def test_the_example_of_registered_kernels_passes(pytester: pytest.Pytester) -> None:
    """A Triton kernel and a compiled one, each behind a custom operator, run by their CPU functions."""
    pytester.makepyfile(test_kernels=KERNELS)
    pytester.runpytest_inprocess("test_kernels.py").assert_outcomes(passed=1)


def test_a_race_in_a_test_is_told_at_the_line_of_the_test(pytester: pytest.Pytester) -> None:
    """No frame of racecheck: the test's own line, then rule and buffer, then the finding."""
    pytester.makepyfile(test_staging=EXAMPLE.replace("audited(slots=2)", "audited(slots=1)"))
    result = pytester.runpytest_inprocess("test_staging.py")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            ">       audit.assert_clean()",
            "E       racecheck.errors.RaceFound: race/h2d-read-vs-host-write on sampler.rows*",
            "E       first    h2d copy reads at test_staging.py:17 in serve",
        ]
    )
    assert "judge.py" not in result.stdout.str()


@pytest.mark.parametrize("kind", [racecheck.Audit, PinnedBuffer, Lease])
def test_every_public_attribute_is_on_the_page(kind: type) -> None:
    """Methods and properties; `describe` is for listeners."""
    for name in vars(kind):
        if not name.startswith("_") and name != "describe":
            assert f"`{name}" in PAGE, f"{kind.__name__}.{name}"


def test_every_public_name_and_error_is_on_the_page() -> None:
    """The names at the top of the package, and every error."""
    raised = [name for name, kind in vars(errors).items() if isinstance(kind, type)]
    for name in [*racecheck.__all__, *raised]:
        assert f"`{name}" in PAGE or f".{name}`" in PAGE, name
