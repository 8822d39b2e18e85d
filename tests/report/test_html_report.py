"""The HTML report as a tree: what is in it, what is not, and that all text stays text."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from markup import Node, parse
from samples import make_evidence, make_finding, make_row, make_stall

import racecheck
from racecheck.commands.litmus import page as litmus_page
from racecheck.litmus import judge, load
from racecheck.report import Report, html
from racecheck.staging import SlotCost
from racecheck.trace.records import Loc

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "d2h-read-early-13-broken.outline"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def page_of(*names: str) -> str:
    """The page of shipped litmus programs."""
    judged = [judge(load(Path(f"scenarios/litmus/{name}.litmus"))) for name in names]
    return litmus_page("programs", judged)


def find(tree: Node, tag: str, **attributes: str) -> list[Node]:
    """All elements `tag` with these attributes."""
    wanted = {key.removesuffix("_"): value for key, value in attributes.items()}.items()
    return [node for node in tree.walk() if node.tag == tag and wanted <= node.attributes.items()]


def test_the_structure_of_a_page() -> None:
    """As in the file beside this one; `python tests/report/test_html_report.py` writes it anew."""
    outline = "\n".join(parse(page_of("d2h-read-early-13-broken")).outline()) + "\n"
    assert outline == GOLDEN.read_text()


MANY = ("d2h-read-early-13-broken", "graph-operand-01-broken", "ranks-diverge-01-broken", "safe-01")


def test_a_page_needs_nothing_else() -> None:
    """No address of any kind but places in the page itself, and a policy that forbids to fetch."""
    tree = parse(page_of(*MANY))
    links = [
        node.attributes[key] for node in tree.walk() for key in ("src", "href") if key in node.attributes
    ]
    assert links
    assert all(link is not None and link.startswith("#") for link in links)
    assert not find(tree, "link")
    (policy,) = find(tree, "meta", **{"http-equiv": "Content-Security-Policy"})
    told = policy.attributes["content"] or ""
    assert told.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        (element,) = find(tree, tag)
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in told
    assert not [node for node in tree.walk() if "style" in node.attributes]


def test_ids_are_unique_and_references_lead_somewhere() -> None:
    """Labels, links and arrow heads."""
    tree = parse(page_of(*MANY))
    ids = [node.attributes["id"] for node in tree.walk() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    for node in tree.walk():
        for key in ("aria-labelledby", "for", "href"):
            if key in node.attributes:
                assert (node.attributes[key] or "").removeprefix("#") in ids
        head = node.attributes.get("marker-end")
        assert head is None or head.removeprefix("url(#").removesuffix(")") in ids


def test_every_item_has_words_and_a_place_in_the_list() -> None:
    """What is seen is also said: a label on each shape, and the timeline as a list."""
    tree = parse(page_of("cross-stream-09-broken"))
    for figure in find(tree, "figure"):
        items = [node for node in figure.walk() if (node.attributes.get("class") or "").startswith("item ")]
        (listed,) = find(figure, "ol")
        assert len(items) == len(listed.children) > 3
        assert all(item.attributes["aria-label"] and item.attributes["tabindex"] == "-1" for item in items)
        (slider,) = find(figure, "input")
        assert find(figure, "label", for_=slider.attributes["id"] or "")
        assert len(find(figure, "g", class_="edge missing")) == 1


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b\0\u202e\udc80"


def test_hostile_names_stay_text() -> None:
    """In titles, labels, lists, evidence, commands and code: one script, racecheck's own."""
    finding = make_finding(HOSTILE, missing=HOSTILE, reasons=[HOSTILE], repairs=[HOSTILE])
    finding.first = replace(finding.first, loc=Loc(HOSTILE, 3, HOSTILE), what=HOSTILE)
    evidence = make_evidence()
    evidence.buffers[HOSTILE] = evidence.buffers["sampler.rows"]
    evidence.buffers[HOSTILE].ordered_by[HOSTILE] = 2
    row = make_row(
        "race", findings=[finding], evidence=evidence, scenario=HOSTILE, runner=HOSTILE, reason=HOSTILE,
        replay=HOSTILE,
    )  # fmt: skip
    text = html.page(HOSTILE, [row, row])
    tree = parse(text)
    assert len(find(tree, "script")) == 1
    assert not find(tree, "img")
    assert "alert(1)" not in find(tree, "script")[0].text
    assert not {"\x1b", "\0", "\u202e", "\udc80"} & set(text)
    assert r"\x1b\x00\u202e\udc80" in text
    text.encode()


def test_hostile_names_in_a_picture_stay_text() -> None:
    """Buffers and threads are named by the program."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        rows = racecheck.PinnedBuffer("</script><img src=x onerror=alert(2)>", (4,), torch.int64)
        for step in range(3):
            with racecheck.mark(step=step, phase=HOSTILE):
                lease = rows.lease(0)
                lease.write([step] * 4, holds=HOSTILE)
                lease.copy()
    text = audit.html(HOSTILE)
    tree = parse(text)
    assert find(tree, "figure")
    assert len(find(tree, "script")) == 1
    assert not find(tree, "img")
    text.encode()


def test_rows_have_a_table_of_verdicts() -> None:
    """A line for each with its verdict, what was expected, and a link to its chapter."""
    rows = [make_row("race", "race"), make_row("clean", "race", slots=2), make_row("inconclusive", "clean")]
    tree = parse(html.render(Report(rows)))
    table = find(tree, "table")[0]
    lines = [[cell.text for cell in find(line, "th") + find(line, "td")] for line in find(table, "tr")]
    assert lines == [
        ["What", "Verdict", "As expected", "Findings", "Rewrites", "Open", "Tokens wrong"],
        ["small, main, 1 slot", "race", "yes", "1", "6", "2", "1 of 3"],
        ["small, main, 2 slots", "clean", "race (not met)", "0", "6", "2", "0 of 3"],
        ["small, main, 1 slot", "inconclusive", "untested", "0", "0", "0", "0 of 3"],
    ]
    assert [node.text for node in find(tree, "p", class_="problem")] == [
        "expected race, the verdict is clean",
        "expected clean, the verdict is inconclusive",
    ][:1]
    assert "No staging buffer was rewritten." in tree.text


def test_the_evidence_of_a_clean_row_is_open() -> None:
    """By buffer: slots, rewrites, windows, what ordered them; stalls and costs; the command."""
    evidence, stall = make_evidence(), make_stall()
    evidence.held[stall.what, stall.loc, stall.waited_loc] = stall
    costs = [SlotCost(resource="kv", slots=3, pinned=2048, device=64, needs={"main": 3})]
    tree = parse(html.render(Report([make_row(evidence=evidence, costs=costs, replay="racecheck run x")])))
    parts = find(tree, "details")
    assert [find(part, "summary")[0].text for part in parts] == [
        "Evidence: 6 rewrites of 1 buffer checked, 2 while an earlier read of the buffer was still open",
        "Waits that held the host up: 1",
        "What a slot costs",
    ]
    assert "open" in parts[0].attributes
    assert "open" not in parts[1].attributes
    cells = [node.text for node in find(parts[0], "tbody")[0].walk() if node.tag in ("th", "td")]
    assert cells == ["sampler.rows", "2", "7", "6", "2", "event sync at engine/loop.py:7 (6)"]
    assert [node.text for node in find(parts[2], "td")] == ["2.0 KiB", "64 B", "3"]
    assert "Run it again: racecheck run x" in tree.text


def test_a_finding_without_a_picture_says_why() -> None:
    """Rows made from elsewhere have none; the text of the finding is complete."""
    tree = parse(html.render(Report([make_row("race", replay="racecheck run x")])))
    assert not find(tree, "figure")
    assert "No timeline: " in tree.text
    labels = [node.text for node in find(tree, "dt")]
    assert labels == [
        "buffer",
        "first",
        "second",
        "missing",
        "repair",
        "replay",
        "made at",
        "rule",
        "explain",
    ]
    assert find(tree, "pre", class_="summary")[0].text.startswith("SUMMARY: racecheck: race/")


def test_audits_and_rows_share_a_page() -> None:
    """`page` takes either; of no result at all it makes a page that says so."""
    with racecheck.audit() as audit:
        pass
    tree = parse(html.page("both", [audit, make_row()]))
    assert [node.text for node in find(tree, "h2")] == [
        "Verdicts",
        "audit: inconclusive",
        "small, main, 1 slot: clean",
    ]
    assert "no device work was recorded" in tree.text
    assert "inconclusive no finding" in parse(html.render(Report([]))).text


def test_the_other_findings_are_there_to_be_opened() -> None:
    """The first in full; a line for each of the others."""
    tree = parse(html.render(Report([make_row("race", findings=[make_finding(), make_finding("kv.slots")])])))
    (folded,) = find(tree, "details", class_="more")
    assert find(folded, "summary")[0].text == "Finding 2: race/h2d-read-vs-host-write on kv.slots[0]"
    assert len(find(tree, "article")) == 2


if __name__ == "__main__":
    GOLDEN.write_text("\n".join(parse(page_of("d2h-read-early-13-broken")).outline()) + "\n")
