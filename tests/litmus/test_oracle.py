"""racecheck's litmus verdicts against an oracle that shares nothing with it but the parser."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from disputed import DISPUTED
from generate import programs
from hypothesis import HealthCheck, given, settings
from oracle import verdict
from twins import TWINS, Twins

from racecheck.litmus import judge, load, parse
from racecheck.litmus.program import Program

COLLECTION = Path(__file__).parents[2] / "scenarios" / "litmus"
FILES = sorted(COLLECTION.glob("*.litmus"))
# Derandomized: the same programs on every machine, so that a run can be repeated.
REPEATABLE = settings(derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
# What a program's text must contain somewhere for a form of docs/litmus.md to have been generated.
FORMS = (
    *(rf"^alloc {kind} \w+$" for kind in ("pinned", "pageable", "mapped", "device")),
    r"aliases \w+$",
    r"aliases \w+ after uses",
    r"^stream b0 blocking",
    r"^\[t1\] ",
    r"\[\d:\d\]",
    *(rf"{word} want \w+" for word in (r"host_read \S+", r"as v\d", r"on \w+", r"order=\w+")),
    *(rf"\b{name} .* on \w+" for name in ("h2d", "d2h", "d2d", "kernel", "hostfn", "free", "replay")),
    *(rf"\b{name} e0 on \w+" for name in ("record", "wait")),
    *(f" order={order}" for order in ("stream", "call", "any")),
    *(rf"\b{name} " for name in ("host_write", "host_read", "memcpy_h2d", "signal", "await", "release")),
    r"kernel reads .* writes",
    r"kernel writes .* reads",
    r"kernel .* as v\d on ",
    r"kernel .* on \w+ as v\d",
    r" on legacy",
    r"wait_stream \w+ <- legacy",
    r"wait_stream legacy <- ",
    *(rf"sync {target}\b" for target in ("e0", "s0", "b0", "device", "legacy")),
    *(rf"query {target}\d -> {outcome}" for target in ("e", "[sb]") for outcome in ("done", "pending")),
    r"free \w+$",
    r"graph g0 { [^;]+ }",
    r"graph g0 { .*; .* }",
    r"replay .* want ",
    r"^rank0: coll ",
    r"^rank1: coll ",
)


def program(short: str) -> Program:
    """The program whose lines are separated by " / " in `short`."""
    return parse("# expect: SAFE\n" + short.replace(" / ", "\n") + "\n")


def test_the_collection_is_complete() -> None:
    """All 142 programs of the collection are here."""
    assert len(FILES) == 142


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_both_agree_with_the_collection(path: Path) -> None:
    """The oracle's verdict and racecheck's are the one that the file expects."""
    loaded = load(path)
    assert verdict(loaded) == loaded.expect
    assert judge(loaded).verdict == loaded.expect


@settings(REPEATABLE, max_examples=1000)
@given(programs())
def test_both_agree_on_generated_programs(text: str) -> None:
    """One verdict for every program."""
    generated = parse(text)
    assert judge(generated).verdict == verdict(generated)


def test_the_generator_uses_the_whole_language() -> None:
    """Every form of statement comes up, every verdict too, and about half of the programs are SAFE."""
    texts: list[str] = []

    @settings(REPEATABLE, max_examples=1000)
    @given(programs())
    def collect(text: str) -> None:
        texts.append(text)

    collect()
    everything = "\n".join(texts)
    assert [form for form in FORMS if not re.search(form, everything, re.MULTILINE)] == []
    verdicts = Counter(verdict(parse(text)) for text in texts)
    assert set(verdicts) == {"RACE", "STALE", "HANG", "SAFE"}
    assert 0.4 < verdicts["SAFE"] / len(texts) < 0.65


@pytest.mark.parametrize("twins", TWINS, ids=lambda twins: twins.rule)
def test_each_rule_can_fire(twins: Twins) -> None:
    """Both the oracle and racecheck tell the twins of a rule apart."""
    broken, fixed = program(twins.broken), program(twins.fixed)
    assert (verdict(broken), judge(broken).verdict) == (twins.verdict, twins.verdict)
    assert (verdict(fixed), judge(fixed).verdict) == ("SAFE", "SAFE")


@pytest.mark.parametrize(("expected", "short"), DISPUTED)
def test_once_disputed_rules(expected: str, short: str) -> None:
    """Both give the verdict that was settled on."""
    shown = program(short)
    assert (verdict(shown), judge(shown).verdict) == (expected, expected)


@pytest.mark.parametrize(
    ("expected", "copied", "written"),
    [
        ("SAFE", "P[1099511627776:1099511627777]", "B[0:1]"),
        ("SAFE", "P[0:999999999999999]", "B"),
        ("RACE", "P[999999999999998:999999999999999]", "P"),
    ],
)
def test_long_ranges_keep_buffers_apart(expected: str, copied: str, written: str) -> None:
    """Ranges of every length the language takes; the oracle, which goes byte by byte, has to pass."""
    memory = "alloc pinned P / alloc pinned B / alloc device D"
    lines = f"{memory} / h2d {copied} -> D[0:1] on s / host_write {written}"
    assert judge(program(lines)).verdict == expected
