"""The page in a real browser: Chromium without a window, where it is installed (Debian: chromium, chromium-driver)."""

import pytest
from browsers import BROWSER_IS_THERE, DESKTOP, PHONE, browser_with, complaints, open_page, until
from test_report_page import EVIL, renamed

from bcnet import write_comparison
from bcnet.report.evidence import read_evidence
from bcnet.report.single import report_page

pytestmark = BROWSER_IS_THERE


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with browser_with(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def show(browser, path, size=DESKTOP, scheme="light"):
    """Open a page at a size and in a colour scheme, and wait until its charts are drawn."""
    open_page(browser, path.as_uri(), size, scheme)


def place(browser, selector, number=0):
    """The middle of an element in the window, after scrolling to it."""
    return browser.execute_script(
        "const e = document.querySelectorAll(arguments[0])[arguments[1]];"
        "e.scrollIntoView({block: 'center', behavior: 'instant'});"
        "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2];",
        selector,
        number,
    )


def mouse(browser, kind, x, y):
    button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **button})


def dot(browser, number):
    """Where the dot of a candidate is in the window."""
    return place(browser, "#chart-candidates .dots_marks path", number)


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_drawn_and_fits(browser, finished, size, scheme):
    show(browser, finished.run_dir / "report.html", size, scheme)
    assert complaints(browser) == []
    places = browser.execute_script("return document.querySelectorAll('[data-chart]').length")
    assert places == browser.execute_script("return document.querySelectorAll('[data-chart] svg').length") == 11
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    widths = browser.execute_script("return [...document.querySelectorAll('.chart svg')].map((s) => s.clientWidth)")
    assert all(0.75 * size[0] < width <= size[0] for width in widths)
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 22, 27)"}[scheme]


def test_the_layer_table_is_whole_on_a_desktop(browser, finished):
    show(browser, finished.run_dir / "report.html", DESKTOP, "light")
    cut = browser.execute_script(
        "const table = document.querySelector('#layers .scroll'); return table.scrollWidth - table.clientWidth"
    )
    assert cut == 0


def test_hover_shows_widths(browser, finished):
    show(browser, finished.run_dir / "report.html")
    candidate = finished.found.evaluations[2]
    x, y = dot(browser, 2)
    mouse(browser, "mouseMoved", x, y)
    shown = until(
        lambda: browser.execute_script(
            "const t = document.querySelector('#vg-tooltip-element.visible'); return t && t.textContent"
        )
    )
    assert ", ".join(map(str, candidate.widths)) in shown
    assert f"{candidate.cost.macs:,}" in shown


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_a_click_shows_the_profile(browser, finished, size):
    show(browser, finished.run_dir / "report.html", size)
    shown = [g.searched for g in finished.result.groups]
    assert profile(browser) == shown
    number = next(n for n, c in enumerate(finished.found.evaluations) if list(c.widths) != shown)
    candidate = finished.found.evaluations[number]
    x, y = dot(browser, number)
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        mouse(browser, kind, x, y)
    until(lambda: f"candidate {number}," in browser.execute_script("return picked.textContent"))
    assert f"{candidate.cost.macs:,} MACs" in browser.execute_script("return picked.textContent")
    until(lambda: profile(browser) == list(candidate.widths))
    assert complaints(browser) == []


def test_the_menu_does_what_a_click_does(browser, finished):
    show(browser, finished.run_dir / "report.html")
    numbers = {c.widths: n for n, c in enumerate(finished.found.evaluations)}
    last = finished.found.front[0]
    browser.execute_script(
        "pick.value = String(arguments[0]); pick.dispatchEvent(new Event('change'))", numbers[last.widths]
    )
    until(lambda: profile(browser) == list(last.widths))


def profile(browser):
    """The widths in the profile as it is drawn."""
    texts = browser.execute_script(
        "return [...document.querySelectorAll('#chart-profile .widths_marks text')].map((t) => t.textContent)"
    )
    return [int(text.split(" of ")[0]) for text in texts]


def test_names_do_not_run(browser, finished, tmp_path):
    page = tmp_path / "report.html"
    page.write_text(report_page(renamed(read_evidence(finished.run_dir), EVIL)))
    show(browser, page)
    x, y = dot(browser, 0)
    mouse(browser, "mouseMoved", x, y)
    x, y = place(browser, "#chart-ratios .kept_marks path")
    mouse(browser, "mouseMoved", x, y)
    until(lambda: browser.execute_script("return !!document.querySelector('#vg-tooltip-element.visible')"))
    assert browser.execute_script("return window.hacked") is None
    assert browser.execute_script("return document.querySelector('h1').textContent").startswith(EVIL)
    assert complaints(browser) == []


def test_the_comparison_is_drawn(browser, finished, other, tmp_path):
    page = write_comparison([finished.run_dir, other.run_dir], tmp_path / "c.html")
    for size in (DESKTOP, PHONE):
        show(browser, page, size)
        assert complaints(browser) == []
        assert browser.execute_script("return document.querySelectorAll('.chart svg').length") == 3
        assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]


def test_print_is_light_and_loses_nothing(browser, finished):
    show(browser, finished.run_dir / "report.html", scheme="dark")
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": features})
    assert browser.execute_script("return getComputedStyle(document.querySelector('nav')).display") == "none"
    ink = browser.execute_script("return getComputedStyle(document.documentElement).getPropertyValue('--paper')")
    assert ink.strip() == "#ffffff"
    clipped = (
        "return [...document.querySelectorAll('.scroll')].filter((s) => getComputedStyle(s).overflow != 'visible')"
    )
    assert browser.execute_script(clipped) == []
