"""The page in Chromium while a real search runs, is killed, goes on, and ends as its report."""

import signal
import subprocess
import sys

import pytest
from browsers import BROWSER_IS_THERE, DESKTOP, PHONE, browser_with, complaints, open_page, until
from tiny_job import Recorder, StoppedError, tiny_search

from bcnet import Run

pytestmark = [BROWSER_IS_THERE, pytest.mark.slow]
SEARCH = (
    *("search", "--model", "resnet_digits", "--data", "digits", "--budget", "0.5", "--threads", "1", "--log", "quiet"),
    *("--supernet-epochs", "20", "--epochs", "12", "--population", "40", "--generations", "12"),
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


def text(browser, selector, run=0):
    return browser.execute_script(f"return document.querySelector('#run-{run} {selector}').textContent")


def dots(browser, run=0):
    return browser.execute_script(f"return document.querySelectorAll('#run-{run} .candidates .dots_marks path').length")


def test_a_search_is_shown_killed_gone_on_with_and_ends_as_its_report(browser, watching, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    address = watching(run)
    open_page(browser, address)
    assert text(browser, ".state") == "empty"
    search = bcnet(*SEARCH, "--out", run)
    until(lambda: text(browser, ".state") == "running", 120)
    until(lambda: browser.execute_script("return !!document.querySelector('#run-0 .supernet svg path')"), 120)
    until(lambda: dots(browser) > 50, 120)
    assert "of 480 candidates" in text(browser, ".stages .at-hand")
    search.kill()
    search.communicate()
    until(lambda: text(browser, ".state") == "stopped")
    kept = len(Run.open(run).evaluations)
    until(lambda: dots(browser) == kept)
    assert "the same command goes on" in text(browser, ".ends")
    search = bcnet(*SEARCH, "--out", run)
    until(lambda: text(browser, ".state") == "running", 120)
    until(lambda: dots(browser) == 480, 300)
    until(lambda: browser.execute_script("return !document.querySelector('#run-0 .networks').hidden"), 300)
    assert complaints(browser) == []
    until(lambda: browser.current_url.endswith("/runs/0/report"), 300)
    until(lambda: browser.execute_script("return document.documentElement.dataset.drawn") == "yes")
    assert search.wait(timeout=60) == 0
    search.communicate()
    assert "test top-1" in browser.execute_script("return document.body.textContent")
    assert complaints(browser) == []


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_runs_side_by_side_fit(browser, watching, tmp_path_factory, size):
    folder = tmp_path_factory.mktemp("two")
    tiny_search(folder / "whole")
    with pytest.raises(StoppedError):
        tiny_search(folder / "part", seed=1, reporter=Recorder(stop=("evolution", 5)))
    open_page(browser, watching(folder / "whole", folder / "part"), size)
    assert [text(browser, ".state", n) for n in (0, 1)] == ["finished", "failed"]
    assert [dots(browser, n) for n in (0, 1)] == [len(Run.open(folder / n).evaluations) for n in ("whole", "part")]
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    tops = [browser.execute_script(f"return document.querySelector('#run-{n}').offsetTop") for n in (0, 1)]
    assert (tops[0] == tops[1]) == (size == DESKTOP)
    assert browser.execute_script("return document.getElementById('compare').hidden")
    assert complaints(browser) == []


def test_the_page_says_that_its_server_is_gone(browser, watching, tmp_path):
    server = bcnet("watch", tmp_path, "--port", "0")
    open_page(browser, server.stdout.readline().split()[2])
    server.send_signal(signal.SIGINT)
    server.communicate()
    until(lambda: not browser.execute_script("return document.getElementById('lost').hidden"))
