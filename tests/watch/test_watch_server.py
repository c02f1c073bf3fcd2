"""The addresses of the server: who may ask, what is refused, and that nothing of elsewhere is fetched."""

import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
import uvicorn
from tiny_job import Recorder, StoppedError, tiny_search

from bcnet.errors import BCNetError
from bcnet.watch.server import application, serve


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny_search(tmp_path_factory.mktemp("served") / "run", report=True).run_dir


@contextmanager
def served(runs, token=None):
    """The application on a free port; its address."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    config = uvicorn.Config(application(runs, token), log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listening.close()


def get(address, **headers):
    """Status, headers and text of an answer; redirects are not followed."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *args):
            return None

    try:
        with urllib.request.build_opener(Stay).open(urllib.request.Request(address, headers=headers)) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


@pytest.fixture(scope="module")
def address(run):
    with served([run]) as address:
        yield address


@pytest.mark.parametrize("place", ["/", "/runs/0"])
def test_every_address_is_the_report_of_the_run(address, run, place):
    code, headers, text = get(address + place)
    assert code == 200
    assert "default-src 'self'" in headers["content-security-policy"]
    assert text == (run / "report.html").read_text()
    assert "http-equiv" not in text, "a finished run is not loaded again"


def test_a_run_on_its_way_is_loaded_again(tmp_path):
    with pytest.raises(StoppedError):
        tiny_search(tmp_path / "run", reporter=Recorder(("trials", 2)))
    with served([tmp_path / "run", tmp_path / "later"]) as address:
        _, _, links = get(address)
        _, _, begun = get(f"{address}/runs/0")
        _, _, later = get(f"{address}/runs/1")
    assert links.count('href="/runs/') == 2
    for page in (begun, later):
        assert 'http-equiv="refresh" content="5"' in page
    assert "short trainings" in begun[begun.index('<pre class="status">') :]
    assert "waiting for the run to start" in later


def test_one_run_is_compared_with_nothing(address):
    code, headers, _ = get(f"{address}/comparison")
    assert (code, headers["location"]) == (307, "/runs/0")


def test_two_runs_are_compared(run):
    with served([run, run]) as address:
        code, _, text = get(f"{address}/comparison")
    assert code == 200
    assert "<h1>" in text


@pytest.mark.parametrize(
    ("place", "code", "said"),
    [
        ("/runs/1", 404, "counted from 0"),
        ("/runs/99999999999999999999", 404, "counted from 0"),
        ("/runs/%D9%A3", 404, ""),
        ("/../../etc/passwd", 404, ""),
        ("/runs/-1", 404, ""),
    ],
)
def test_wrong_questions_are_refused(address, place, code, said):
    answer = get(address + place)
    assert answer[0] == code
    assert said in answer[2]


def test_a_report_that_cannot_be_made_says_why(tmp_path):
    (tmp_path / "settings.json").write_text("{")
    with served([tmp_path]) as address:
        code, _, text = get(address)
    assert code == 200
    assert "settings.json" in text
    assert "http-equiv" in text, "it may be a file that is being written"


def test_a_page_under_another_name_is_refused(address):
    assert get(f"{address}/runs/0", Host="evil.example")[0] == 400


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed(address, method):
    request = urllib.request.Request(f"{address}/runs/0", method=method)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    with refused.value as error:
        assert error.code == 405


def test_a_token_lets_in_and_is_kept_in_a_cookie(run):
    with served([run], token="secret") as address:
        for place in ("/", "/runs/0", "/comparison", "/?token=wrong", "/?token="):
            assert get(address + place)[0] == 403
        assert get(address, Cookie="bcnet_token=other")[0] == 403
        code, headers, _ = get(f"{address}/?token=secret")
        assert (code, headers["location"]) == (303, "/")
        cookie = headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
        assert get(f"{address}/runs/0", Cookie=cookie.partition(";")[0])[0] == 200


def test_a_port_that_is_taken_is_refused(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BCNetError, match=rf"a free port; got 127.0.0.1 and {port}.*0 takes a free port"):
            serve([run], "127.0.0.1", port, print)


def test_an_address_of_another_machine_is_refused(run):
    with pytest.raises(BCNetError, match=r"address of this machine .* got 192.0.2.1 and 0"):
        serve([run], "192.0.2.1", 0, print)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "has_token"),
    [("127.0.0.1", False), pytest.param("localhost", False, marks=pytest.mark.slow), ("0.0.0.0", True)],
)
def test_the_command_says_its_link_and_ends_with_ctrl_c(run, host, has_token):
    words = [sys.executable, "-m", "bcnet", "watch", run, "--port", "0", "--host", host]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        process.send_signal(2)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "Stopped.\n"
    assert re.fullmatch(r"Watching at http://\S+:\d+/(\?token=\S{22})? until Ctrl-C\.\n", line)
    assert ("token" in line) == has_token


@pytest.mark.slow
def test_the_command_refuses_what_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    words = [sys.executable, "-m", "bcnet", "watch", tmp_path / "file"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "a run directory must be a folder" in done.stderr
