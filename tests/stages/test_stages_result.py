"""What a result holds, and what it says of the versions that made it."""

import json
import subprocess

import pytest
from pydantic import ValidationError

import bcnet
from bcnet.run.result import RunResult
from bcnet.stages.result import _commit, versions
from tests.robustness.fuzz_states import result_document


def test_a_checkout_tells_its_commit_and_that_files_were_changed(tmp_path, monkeypatch):
    def git(*words):
        person = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
        return subprocess.run(["git", "-C", str(tmp_path), *person, *words], capture_output=True, text=True, check=True)

    package = tmp_path / "src" / "bcnet"
    package.mkdir(parents=True)
    monkeypatch.setattr(bcnet, "__file__", str(package / "__init__.py"))
    assert _commit() is None, "in no repository"
    git("init")
    (tmp_path / "other.py").write_text("")
    git("add", "other.py")
    git("commit", "-m", "somebody's own")
    (package / "__init__.py").write_text("")
    assert _commit() is None, "installed within somebody's repository"
    git("add", ".")
    git("commit", "-m", "ours")
    commit = git("rev-parse", "--short", "HEAD").stdout.strip()
    assert _commit() == commit
    (tmp_path / "other.py").write_text("changed")
    assert _commit() == commit, "the package is as it was"
    (package / "new.py").write_text("")
    assert _commit() == f"{commit}+changes"


def test_without_git_nothing_is_told(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert _commit() is None


def test_versions_stay_those_of_the_first_time(monkeypatch):
    before = versions()
    if "commit" not in before:
        pytest.skip("bcnet is installed, and not a checkout")
    monkeypatch.setattr(bcnet, "__file__", "/nowhere/bcnet/__init__.py")
    assert versions() == before


@pytest.mark.parametrize("network", ["original", "uniform", "searched"])
@pytest.mark.parametrize("change", [lambda networks, name: networks.pop(name), lambda n, name: n[name]["test"].clear()])
def test_a_result_has_three_networks_that_say_what_the_task_measures(network, change):
    document = json.loads(json.dumps(result_document()))  # whose networks share nothing
    assert RunResult.model_validate(document).value(network) == 9.0
    change(document["networks"], network)
    with pytest.raises(ValidationError, match=f"'networks' has '{network}', whose 'test' has the headline 'top1'"):
        RunResult.model_validate(document)


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["task"]["headline"].update(digits=-1),
        lambda document: document["widths"].update(a=2**31),
        lambda document: document["device"].update(threads=0),
        lambda document: document["groups"][0].update(max_width=2**31),
    ],
)
def test_numbers_that_nobody_wrote_are_refused(change):
    document = json.loads(json.dumps(result_document()))
    change(document)
    with pytest.raises(ValidationError):
        RunResult.model_validate(document)
