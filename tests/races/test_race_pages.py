"""The pages of the kinds of race cannot lie: their code runs, their links hold, every rule has one."""

from __future__ import annotations

import fnmatch
import re
import sys
from pathlib import Path

import pytest

import racecheck
from racecheck.detect.rules import all_rules
from racecheck.faults import CATALOGUE
from racecheck.litmus import judge, load
from racecheck.races import Page, known_rules, others, page_of, pages
from racecheck.report.alerts import UNTESTED

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import explain as docs_explain  # noqa: E402 - a script of docs/

sys.path.remove(str(ROOT / "docs"))
PROGRAMS = sorted((ROOT / "scenarios" / "litmus").glob("*.litmus"))
NAMES = [page.name for page in pages()]


def audited(code: str, name: str) -> racecheck.Audit:
    """Run the code of a page on a late virtual device."""
    with racecheck.virtual_cuda(lag="latest"), racecheck.audit() as audit:
        exec(compile(code, f"{name}.py", "exec"), {"__name__": name})
    return audit


def rules(audit: racecheck.Audit) -> set[str]:
    """The rules of the findings; else of what a report says instead: a stall, or nothing tested."""
    if audit.findings or audit.evidence.stalls:
        return {finding.rule for finding in audit.findings} or {"stall"}
    return {UNTESTED} if audit.verdict == "inconclusive" else set()


@pytest.mark.parametrize("page", pages(), ids=NAMES)
def test_the_racy_code_comes_to_the_rule_of_its_page(page: Page) -> None:
    """To that and to nothing else."""
    assert rules(audited(page.code[0], f"{page.name}-racy")) == {page.shows}


@pytest.mark.parametrize("page", pages(), ids=NAMES)
def test_the_fixed_code_has_no_finding(page: Page) -> None:
    """Nor a stall; where the racy code was only untested, the fixed code is tested."""
    fixed = rules(audited(page.code[1], f"{page.name}-fixed"))
    assert fixed == set() or (fixed == {UNTESTED} and page.shows != UNTESTED)


@pytest.mark.parametrize("page", pages(), ids=NAMES)
def test_the_shape_of_a_page(page: Page) -> None:
    """Story, timeline, code of a size to be read, and where it was seen."""
    assert re.findall(r"^## (.*)$", page.text, re.MULTILINE) == ["When", "Racy", "Fixed", "Seen in"]
    assert all(5 <= len(code.splitlines()) <= 28 for code in page.code)
    assert all(len(line) <= 120 or line.startswith("- ") for line in page.text.splitlines())


def test_every_rule_has_a_page() -> None:
    """And no other rule has: a mistyped one is told so."""
    assert len(known_rules()) > 80
    for rule in known_rules():
        assert page_of(rule) is not None
    for rule in ("race/", "race/free-vs-fre", "race/host-write-vs-h2d-read", "race/host-read-vs-host-read"):
        assert page_of(rule) is None


def test_no_two_pages_have_equal_claims_to_a_rule() -> None:
    """Of the patterns that fit a rule, one is the closest: exact, or longer than those of other pages."""
    claims = [(pattern, page) for page in pages() for pattern in page.rules]
    for rule in known_rules():
        fits = [(pattern, page) for pattern, page in claims if fnmatch.fnmatchcase(rule, pattern)]
        closest = max(("*" not in pattern, len(pattern)) for pattern, _ in fits)
        best = {page.name for pattern, page in fits if ("*" not in pattern, len(pattern)) == closest}
        assert len(best) == 1, (rule, best)


def test_each_pattern_has_a_rule() -> None:
    """A page is the page of what it says, but for what a closer pattern takes."""
    for page in pages():
        for pattern in page.rules:
            assert any(page_of(rule) is page for rule in fnmatch.filter(known_rules(), pattern)), pattern


def test_a_page_without_rules_shares_one_with_the_page_of_it() -> None:
    """And what it shows leads to the page that says so."""
    for page in pages():
        assert page.rules or page_of(page.shows) in others(page), page.name


def test_every_rule_of_the_litmus_programs_has_a_page_and_pages_name_programs_of_theirs() -> None:
    """What the detector says of all programs; of those that a page names one rule at least is its own."""
    found = {path.name: {each.rule for each in judge(load(path)).findings} for path in PROGRAMS}
    seen = set().union(*found.values())
    assert len(seen) > 20
    assert seen <= all_rules()
    for page in pages():
        for name in re.findall(r"\(\.\./\.\./scenarios/litmus/(.*?)\)", page.text):
            assert any(rule == page.shows or page_of(rule) is page for rule in found[name]), (page.name, name)
    assert [page.name for page in pages() if ".litmus)" not in page.text] == ["not-tested", "stall"]


def test_every_fault_of_the_catalogue_is_on_one_page() -> None:
    """In the list at its end."""
    lines = [re.search(r"^- `racecheck faults`: (.*)$", page.text, re.MULTILINE) for page in pages()]
    named = [name for line in lines if line for name in re.findall(r"`([^`]+)`", line.group(1))]
    assert sorted(named) == sorted(CATALOGUE)


def test_commands_in_pages_lead_to_pages() -> None:
    """`racecheck explain NAME` in a text is one that works."""
    for page in pages():
        for name in re.findall(r"racecheck explain ([\w/-]+)", page.text):
            assert name in NAMES, (page.name, name)


def test_the_index_is_current() -> None:
    """docs/races/README.md: regenerate it with docs/explain.py."""
    assert docs_explain.INDEX.read_text(encoding="utf-8") == docs_explain.index()
