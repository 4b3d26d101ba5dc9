"""The pages of the report in headless Chromium: on a phone, in dark mode, by keyboard, and without a network.

Where Chromium is not there, the tests are skipped; with ``HARNESS_REQUIRE_BROWSER=1`` that is a failure. With
``HARNESS_SCREENSHOTS=DIR`` each page is kept as it looks.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sample_records as samples

from harness.report.comparison import Column, compare
from harness.report.html.comparison_page import comparison_page
from harness.report.html.page import report_page

_CHROMIUM = "/usr/bin/chromium"
_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_PHONE = {"width": 375, "height": 812}
_DESK = {"width": 1280, "height": 900}
#: What WCAG 2.2 asks of text (1.4.3), level AA.
_LEAST_CONTRAST = 4.5
_NAMES = ("clean", "failing", "eight_cards", "incomplete", "empty", "hostile", "comparison")

#: Of every text that is seen: the contrast to what is behind it, where that is one colour.
_CONTRASTS = """() => {
  const parse = (text) => { const m = text.match(/[\\d.]+/g).map(Number); return m.length === 3 ? [...m, 1] : m; };
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour[3] > 0) return colour;
    }
    return [255, 255, 255, 1];
  };
  const found = [];
  document.querySelectorAll('details').forEach((each) => { each.open = true; });
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, style = getComputedStyle(element);
    const inChart = element.closest('svg');
    if (!walker.currentNode.textContent.trim() || ['title', 'desc'].includes(element.tagName)) continue;
    if (inChart && element.style.fill.startsWith('rgb')) continue;  // on a cell: see tests/report/test_charts.py
    const [a, b] = [light(parse(inChart ? style.fill : style.color)), light(ground(element))];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), walker.currentNode.textContent.trim().slice(0, 40)]);
  }
  return found;
}"""
#: Where the tabulator goes, until it leaves the page: an id, a class, or what is written there.
_FOCUSED = """() => {
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  const style = getComputedStyle(e), box = e.getBoundingClientRect(), result = e.closest('article');
  return { tag: e.tagName, text: e.textContent.trim().slice(0, 60), result: result ? result.id : '',
           outline: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
           seen: box.left >= 0 && box.width > 0 };
}"""


def _unavailable(why: str) -> None:
    if os.environ.get("HARNESS_REQUIRE_BROWSER") == "1":
        pytest.fail(f"{why}, and HARNESS_REQUIRE_BROWSER=1 asks for it")
    pytest.skip(f"{why}; HARNESS_REQUIRE_BROWSER=1 makes this a failure")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _unavailable("Playwright is not installed (extra 'test')")
    if not Path(_CHROMIUM).exists() and shutil.which("chromium") is None:
        _unavailable(f"there is no Chromium at {_CHROMIUM}")
    found = _CHROMIUM if Path(_CHROMIUM).exists() else shutil.which("chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=list(_ARGUMENTS))
        yield started
        started.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every page, as a file."""
    made = tmp_path_factory.mktemp("pages")
    for name in _NAMES[:-1]:
        (made / f"{name}.html").write_text(report_page(getattr(samples, name)()), encoding="utf-8")
    whole = samples.eight_cards()
    columns = [
        Column("node-a", whole),
        Column("node-b", whole),
        Column("node-c", samples.scaled(replace(whole, results=whole.results[1:]), 0.6, "GPU:2")),
    ]
    (made / "comparison.html").write_text(comparison_page(compare(columns)), encoding="utf-8")
    return made


@pytest.fixture
def show(browser: Any, folder: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Opens a page; when the test ends, nothing may have been fetched and nothing may have been complained of."""
    said: list[str] = []
    contexts: list[Any] = []

    def only_files(route: Any) -> None:
        address = route.request.url
        if address.startswith("file:"):
            route.continue_()
        else:
            said.append(f"fetched {address}")
            route.abort()

    def open_page(name: str, viewport: dict[str, int] = _DESK, scheme: str = "light") -> Any:
        context = browser.new_context(viewport=viewport, color_scheme=scheme, offline=False)
        contexts.append(context)
        context.route("**/*", only_files)
        page = context.new_page()
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.goto((folder / f"{name}.html").as_uri())
        if kept := os.environ.get("HARNESS_SCREENSHOTS"):
            Path(kept).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=str(Path(kept) / f"{name}-{viewport['width']}-{scheme}.png"), full_page=True)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


def test_a_browser_that_is_not_there_is_a_skip_with_its_reason_and_a_failure_where_it_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HARNESS_REQUIRE_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no browser; HARNESS_REQUIRE_BROWSER=1 makes this a failure"):
        _unavailable("no browser")
    monkeypatch.setenv("HARNESS_REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match="no browser, and HARNESS_REQUIRE_BROWSER=1 asks for it"):
        _unavailable("no browser")


@pytest.mark.parametrize("name", _NAMES)
def test_on_a_phone_nothing_is_wider_than_the_screen_and_wide_tables_scroll_by_themselves(show: Any, name: str) -> None:
    page = show(name, _PHONE)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= _PHONE["width"]
    if name == "eight_cards":
        wide = page.evaluate(
            "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth).length"
        )
        assert wide > 0, "a table that is wider than the screen is there to scroll"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", _NAMES)
def test_every_text_can_be_read(show: Any, name: str, scheme: str) -> None:
    contrasts = show(name, scheme=scheme).evaluate(_CONTRASTS)
    assert len(contrasts) > 20
    assert [(round(ratio, 2), text) for ratio, text in contrasts if ratio < _LEAST_CONTRAST] == []


def test_a_text_that_cannot_be_read_would_be_seen(show: Any) -> None:
    page = show("clean")
    page.evaluate("document.querySelector('h2').style.color = '#cccccc'")
    assert [text for ratio, text in page.evaluate(_CONTRASTS) if ratio < _LEAST_CONTRAST]


def test_in_dark_mode_the_ground_is_dark_and_charts_follow(show: Any) -> None:
    light, dark = (show("eight_cards", scheme=scheme) for scheme in ("light", "dark"))
    ground = "getComputedStyle(document.body).backgroundColor"
    label = "getComputedStyle(document.querySelector('svg text')).fill"
    assert light.evaluate(ground) == "rgb(255, 255, 255)"
    assert dark.evaluate(ground) == "rgb(15, 20, 25)"
    assert light.evaluate(label) != dark.evaluate(label)


def test_the_keyboard_reaches_the_skip_link_first_then_each_result_and_focus_is_seen(show: Any) -> None:
    page = show("failing")
    focused = []
    for _ in range(200):
        page.keyboard.press("Tab")
        at = page.evaluate(_FOCUSED)
        if at is None:
            break
        focused.append(at)
    assert focused[0]["text"] == "Skip to the report"
    assert all(at["outline"] and at["seen"] for at in focused)
    reached = list(dict.fromkeys(at["result"] for at in focused if at["result"]))
    assert reached == [f"result-{number}" for number in range(1, 7)]


def test_the_skip_link_leads_to_the_report_and_details_open_by_keyboard(show: Any) -> None:
    page = show("failing")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.focus("article details summary")
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('article details').open")


@pytest.mark.parametrize("name", _NAMES)
def test_a_screen_reader_finds_landmarks_headings_in_order_and_a_name_for_each_picture_and_table(
    show: Any, name: str
) -> None:
    page = show(name)
    assert page.evaluate("['header', 'nav', 'main'].map((tag) => document.querySelectorAll(tag).length)") == [1, 1, 1]
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map((e) => Number(e.tagName[1]))")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    unnamed = page.evaluate(
        """[...document.querySelectorAll('svg')].filter((e) => e.getAttribute('role') !== 'img'
             || !document.getElementById(e.getAttribute('aria-labelledby').split(' ')[0]).textContent.trim()).length
           + [...document.querySelectorAll('table')].filter((e) => !e.caption || !e.querySelector('th[scope=col]')
             || e.querySelectorAll('tbody tr').length !== e.querySelectorAll('tbody th[scope=row]').length).length"""
    )
    assert unnamed == 0
    if name == "eight_cards":
        pictures = page.get_by_role("img").all()
        assert len(pictures) == 6, "one program's details are closed"
        assert page.get_by_role("img", name="copy between devices and the host in GB/s, copies of 256 MiB").count() == 1


def test_names_of_users_run_nothing_and_make_no_element(show: Any) -> None:
    page = show("hostile")
    assert page.evaluate("document.querySelectorAll('script, img, b, iframe').length") == 0
    assert "<script>alert(1)</script>" in page.inner_text("main")


def test_a_page_that_fetches_something_would_be_seen(browser: Any) -> None:
    """By the route that the other tests look at; the pages' own policy would refuse it, too."""
    page = browser.new_page()
    asked: list[str] = []

    def refuse(route: Any) -> None:
        asked.append(route.request.url)
        route.abort()

    page.route("**/*", refuse)
    page.set_content('<img src="http://localhost:9/planted.png">')
    page.wait_for_timeout(200)
    page.close()
    assert asked == ["http://localhost:9/planted.png"]
