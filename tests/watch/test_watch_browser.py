"""The page in Chromium while a real search runs, is killed, goes on, and ends as its report."""

import signal
import subprocess
import sys

import pytest
from browsers import BROWSER_IS_THERE, DESKTOP, PHONE, browser_with, complaints, open_page, until
from tiny_job import tiny_search

from bcnet.progress.record import read_record

pytestmark = [BROWSER_IS_THERE, pytest.mark.slow]
SEARCH = (
    *("search", "--model", "resnet_digits", "--data", "digits", "--budget", "0.5", "--threads", "1", "--log", "quiet"),
    *("--epochs", "12", "--method", "bcnet:epochs=20,population=40,generations=12"),
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with browser_with(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def bcnet(*words):
    return subprocess.Popen([sys.executable, "-m", "bcnet", *map(str, words)], stdout=subprocess.PIPE, text=True)


@pytest.fixture
def watching():
    """Starts `bcnet watch`; all are stopped at the end."""
    started = []

    def start(*runs):
        process = bcnet("watch", *runs, "--port", "0")
        started.append(process)
        return process.stdout.readline().split()[2]

    yield start
    for process in started:
        process.send_signal(signal.SIGINT)
        process.communicate()


def has_candidates(run):
    """The stage goes on: a page that is drawn anew every five seconds may miss one that a fast machine ends sooner."""
    record = read_record(run)
    return record is not None and record.stage == "evolution"


def text(browser):
    return browser.execute_script("return document.body ? document.body.textContent : ''")


def test_a_search_is_shown_killed_gone_on_with_and_ends_as_its_report(browser, watching, tmp_path):
    run = tmp_path / "run"
    open_page(browser, watching(run))
    assert "waiting for the run to start" in text(browser)
    search = bcnet(*SEARCH, "--out", run)
    until(lambda: has_candidates(run), 120)
    search.send_signal(signal.SIGSTOP)
    until(lambda: "evolution" in text(browser) and "of 480 candidates" in text(browser))
    assert ": running" in text(browser)
    search.kill()
    search.communicate()
    until(lambda: ": stopped" in text(browser), 60)
    search = bcnet(*SEARCH, "--out", run)
    until(lambda: read_record(run).pid == search.pid, 120)
    search.send_signal(signal.SIGSTOP)
    until(lambda: ": running" in text(browser))
    search.send_signal(signal.SIGCONT)
    until(lambda: "test top-1" in text(browser) and ": running" not in text(browser), 300)
    assert search.wait(timeout=60) == 0
    search.communicate()
    until(lambda: browser.execute_script("return document.documentElement.dataset.drawn") == "yes")
    assert not browser.execute_script("return !!document.querySelector('meta[http-equiv=refresh]')")
    assert complaints(browser) == []


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_several_runs_are_listed_and_compared(browser, watching, tmp_path_factory, size):
    folder = tmp_path_factory.mktemp("two")
    for seed in (0, 1):
        tiny_search(folder / str(seed), seed=seed, report=True)
    address = watching(folder / "0", folder / "1")
    open_page(browser, address, size)
    assert browser.execute_script("return document.querySelectorAll('a').length") == 3
    open_page(browser, f"{address}comparison", size)
    assert "2 runs" in text(browser)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    assert complaints(browser) == []
