"""Pages in Chromium without a window, where it is installed (Debian: chromium, chromium-driver)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
BROWSER_IS_THERE = pytest.mark.skipif(
    not (CHROMIUM and DRIVER and find_spec("selenium")),
    reason="a browser is not installed: apt-get install chromium chromium-driver, pip install selenium",
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
DESKTOP, PHONE = (1100, 900), (390, 844)


@contextmanager
def browser_with(profile: Path) -> Iterator[Any]:
    """A browser with an empty folder for what it remembers."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


LOADED = """
return document.readyState === "complete"
    && (!document.getElementById("data") || document.documentElement.dataset.drawn === "yes");
"""


def open_page(browser, address, size=DESKTOP, scheme="light"):
    """Open a page at a size and in a colour scheme, and wait until it is loaded and its charts, if any, are drawn."""
    screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(address)
    until(lambda: browser.execute_script(LOADED))


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "the page did not get there"
        time.sleep(0.05)
    return found


def complaints(browser):
    """What the page said; what one before it said as it was left, its server gone perhaps, is of another address."""
    here = urlsplit(browser.current_url).netloc
    found = [line["message"] for line in browser.get_log("browser")]
    return [message for message in found if not message.startswith("http://") or urlsplit(message).netloc == here]
