"""docs/conformance.md says what the records say, and the records know every test."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SPEC = importlib.util.spec_from_file_location("conformance_page", ROOT / "docs" / "conformance.py")
assert SPEC is not None
assert SPEC.loader is not None
conformance = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(conformance)


def rules_in_the_tree() -> dict[str, str]:
    """`file::function` and the rule, of every conformance test there is."""
    rules = {}
    for path in sorted((ROOT / "tests" / "conformance").glob("test_*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                doc = ast.get_docstring(node) or ""
                rules[f"{path.name}::{node.name}"] = " ".join(doc.split("\n\n")[0].split())
    return rules


def test_the_page_is_what_the_records_give():
    """Nobody edits it by hand, and no record is committed without it."""
    assert conformance.PAGE.read_text() == conformance.page(conformance.load()), (
        "run python docs/conformance.py"
    )


def test_every_rule_is_recorded_and_holds():
    """The virtual record has each test of the tree, with its rule of today, passed."""
    tests = conformance.load()["virtual"]["tests"]
    recorded = {name.partition("[")[0]: test["rule"] for name, test in tests.items()}
    assert recorded == rules_in_the_tree(), "run python docs/conformance.py --device virtual"
    assert {test["outcome"] for test in tests.values()} == {"passed"}
    assert len(tests) >= 80


@pytest.mark.parametrize(
    ("outcomes", "cell"),
    [
        ([], "not run"),
        (["passed"], "passed"),
        (["passed", "passed"], "passed (2)"),
        (["passed", "failed", "passed"], "2 passed, 1 failed"),
    ],
)
def test_a_cell_tells_how_its_cases_went(outcomes, cell):
    """A rule with several cases passes only if all do; a record without the rule did not run it."""
    tests = {f"f.py::test_a[{i}]": {"rule": "r", "outcome": o} for i, o in enumerate(outcomes)}
    other = {"f.py::test_b": {"rule": "r", "outcome": "failed"}}
    record = {"date": "d", "versions": {"torch": "1"}, "tests": tests | other}
    assert conformance._cell(record, "f.py::test_a") == cell
    text = conformance.page({"virtual": record})
    assert "- GPU: not run yet." in text
    assert "| r | `test_b` | failed | not run |" in text
