"""The HTML report in a real browser: layout, slider, keyboard, no network. Skipped without Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, find

from racecheck.commands.litmus import page
from racecheck.litmus import judge, load

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = find()

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine's PATH")

RACE, CROSS = "d2h-read-early-13-broken", "cross-stream-09-broken"
STALE, HANG, CLEAN = "graph-operand-01-broken", "ranks-diverge-01-broken", "safe-01"
#: Where an item's work is done and how wide its window is.
MOVED = """(() => { const one = document.querySelector('.item.first');
  return [Number(one.querySelector('.block').getAttribute('x')),
          Number(one.querySelector('.window').getAttribute('width'))]; })()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests here."""
    assert CHROMIUM is not None
    with Browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def show(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    """A browser that can `open` the pages of litmus programs; afterwards it has nothing to complain of."""
    monkeypatch.chdir(ROOT)
    for name in (RACE, CROSS, STALE, HANG, CLEAN):
        judged = [judge(load(Path(f"scenarios/litmus/{name}.litmus")))]
        (tmp_path / f"{name}.html").write_text(page(name, judged))
    yield browser
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("file:")] == []


@pytest.mark.parametrize("name", [RACE, CROSS, STALE, HANG, CLEAN])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_and_follow_the_colour_scheme(
    show: Browser, tmp_path: Path, name: str, width: int, scheme: str
) -> None:
    """No page is wider than its window; dark is light on dark. No text is outside of what holds it."""
    show.open(tmp_path / f"{name}.html", width, scheme)
    assert show.run("document.documentElement.scrollWidth") <= width
    colours = [show.run(f"getComputedStyle(document.body).{key}") for key in ("color", "backgroundColor")]
    ink, page = (sum(map(int, colour.removeprefix("rgb(").rstrip(")").split(","))) for colour in colours)
    assert (ink > page) == (scheme == "dark")
    outside = """[...document.querySelectorAll('p, dd, li, h2, h3, figcaption')].filter(one =>
        one.getBoundingClientRect().right > document.documentElement.clientWidth + 1).length"""
    assert show.run(outside) == 0


def test_the_slider_moves_the_copy_within_its_window(show: Browser, tmp_path: Path) -> None:
    """With the arrow keys: from after the host's read to before it, and the words say so."""
    show.open(tmp_path / f"{RACE}.html")
    assert "first (d2h copy writes) comes after the second (host read)" in show.run(
        "document.querySelector('.now').textContent"
    )
    late = show.run(MOVED)
    show.run("document.querySelector('.lag input').focus()")
    show.press("ArrowLeft")
    assert show.run("document.querySelector('.lag output').textContent") == "0.99"
    assert late[0] > show.run(MOVED)[0]
    show.press("Home")
    early = show.run(MOVED)
    second = show.run("Number(document.querySelector('.item.second .block').getAttribute('x'))")
    assert early[0] < second < late[0]
    assert early[1] < late[1]
    assert show.run("document.querySelector('.lag output').textContent") == "0.00, eager"
    assert show.run("document.querySelector('.lag input').getAttribute('aria-valuetext')") == "0.00, eager"
    assert "comes before" in show.run("document.querySelector('.now').textContent")


def test_arrows_follow_what_they_join(show: Browser, tmp_path: Path) -> None:
    """The missing one leaves from where the copy is done, at every lag, as the page was written."""
    show.open(tmp_path / f"{CROSS}.html")
    path = "document.querySelector('.edge.missing path').getAttribute('d')"
    drawn = show.run(path)
    show.run("document.querySelector('.lag input').focus()")
    show.press("Home")
    assert show.run(path) != drawn
    show.press("End")
    numbers = [float(part) for part in _numbers(show.run(path))]
    assert numbers == pytest.approx([float(part) for part in _numbers(drawn)], abs=0.1)


def _numbers(path: str) -> list[str]:
    return "".join(letter if letter in "0123456789.-" else " " for letter in path).split()


def test_items_are_reached_by_keyboard_and_tell_their_line(show: Browser, tmp_path: Path) -> None:
    """One stop of the tab key; then left, right, home and end. The words and the source appear below."""
    show.open(tmp_path / f"{RACE}.html")
    assert show.run("document.querySelectorAll('.item[tabindex=\"0\"]').length") == 1
    show.run("document.querySelector('.item[tabindex=\"0\"]').focus()")
    told = "document.querySelector('.told').textContent"
    assert "d2h copy writes" in show.run(told)
    assert "d2h W -> T on s0" in show.run(told)
    show.press("ArrowRight")
    assert "event sync at" in show.run(told)
    show.press("End")
    assert "host read at" in show.run(told)
    show.press("ArrowRight")
    assert "host read at" in show.run(told)
    show.press("Home")
    assert "new object T" in show.run(told)
    assert show.run("document.querySelectorAll('.item[tabindex=\"0\"]').length") == 1


def test_the_tab_key_goes_through_the_page_in_order(show: Browser, tmp_path: Path) -> None:
    """The way past the head, the timeline's item, the slider, the list."""
    show.open(tmp_path / f"{RACE}.html")
    met = []
    for _ in range(4):
        show.press("Tab")
        met.append(show.run("document.activeElement.className.baseVal || document.activeElement.tagName"))
    assert met == ["A", "item first device", "INPUT", "SUMMARY"]


def test_a_hang_has_no_slider(show: Browser, tmp_path: Path) -> None:
    """Nothing in it moves."""
    show.open(tmp_path / f"{HANG}.html")
    assert show.run("document.querySelectorAll('.lag').length") == 0
    assert show.run("document.querySelectorAll('.item').length") == 4
