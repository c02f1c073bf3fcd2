from types import SimpleNamespace

import pytest
from hub_stand_in import local_hub
from tiny_job import TinyNetwork, tiny_search
from typer.testing import CliRunner

import bcnet
from bcnet.cli.app import app
from bcnet.errors import ExportError
from bcnet.export import hub
from bcnet.export.card import data_name


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    outcome = tiny_search(tmp_path_factory.mktemp("runs") / "whole")
    bcnet.export_run(outcome.run_dir, TinyNetwork, format="safetensors")
    return outcome


def test_the_card_has_the_figures_of_the_run(finished):
    card = (finished.run_dir / "model_card.md").read_text()
    assert card.startswith("---\nlibrary_name: pytorch\n")
    for name in ("original", "uniform", "searched"):
        figures = finished.result.networks[name]
        assert f"| {figures.macs:,} | {figures.macs_ratio:.3f} | {figures.params:,} |" in card
    mean = bcnet.run.finished.FinishedRun.read(finished.run_dir, TinyNetwork).input.normaliser.mean[0]
    for text in (f"with mean ({mean:.4f})", "(batch, 1, 8, 8)", "classes, in this order: 0, 1, 2", "`export/network"):
        assert text in card
    for group, width in finished.result.widths.items():
        assert f"| {group} |" in card
        assert f" {width} |" in card


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("imagefolder:/home/me/photos/", "imagefolder:photos"),
        ("parquet:data/cifar10", "parquet:cifar10"),
        ("hf:org/set", "hf:org/set"),
        ("digits", "digits"),
    ],
)
def test_folders_of_this_machine_stay_private(name, shown):
    assert data_name(name) == shown


class FakeHub:
    def __init__(self, refuses=None):
        self.refuses, self.calls = refuses, []

    def create_repo(self, name, **options):
        self.calls.append(("create_repo", name, options))

    def create_commit(self, name, operations, **options):
        if self.refuses is not None:
            raise self.refuses
        self.calls.append(("create_commit", name, {o.path_in_repo: str(o.path_or_fileobj) for o in operations}))
        return SimpleNamespace(commit_url=f"https://hub/{name}/commit/1")


def test_a_push_is_one_commit_of_file_card_and_architecture(finished):
    client, file = FakeHub(), finished.run_dir / "export" / "network.safetensors"
    assert bcnet.export.push_run(finished.run_dir, file, "me/net", client=client) == "https://hub/me/net/commit/1"
    (_, _, options), (_, name, files) = client.calls
    assert options == {"private": True, "exist_ok": True}
    assert name == "me/net"
    assert files == {
        "network.safetensors": str(file),
        "README.md": str(finished.run_dir / "model_card.md"),
        "architecture.json": str(finished.run_dir / "architecture.json"),
    }


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # huggingface_hub's own
def test_the_real_client_uploads_to_a_hub_what_the_run_holds(finished, monkeypatch):
    from huggingface_hub import HfApi, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # which other tests set before they import it
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # Xet's own servers are no part of the stand-in
    file = finished.run_dir / "export" / "network.safetensors"
    with local_hub() as hub:
        client = HfApi(endpoint=hub.address, token="hf_token")
        for _ in range(2):  # the second time there is a repository already
            address = bcnet.export.push_run(finished.run_dir, file, "me/net", client=client)
    assert address.startswith(f"{hub.address}/me/net/commit/")
    assert hub.tokens == {"Bearer hf_token"}
    assert hub.repositories["me/net"]["visibility"] == "private"
    card, architecture = (finished.run_dir / name for name in ("model_card.md", "architecture.json"))
    assert hub.files["me/net"] == {
        "network.safetensors": file.read_bytes(),
        "README.md": card.read_bytes(),
        "architecture.json": architecture.read_bytes(),
    }


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_a_hub_that_is_not_there_is_an_error_of_ours(finished):
    from huggingface_hub import HfApi

    file = finished.run_dir / "export" / "network.safetensors"
    client = HfApi(endpoint="http://127.0.0.1:9", token="hf_token")
    with pytest.raises(ExportError, match=r"it answered with .* is kept in"):
        bcnet.export.push_run(finished.run_dir, file, "me/net", client=client)


def test_a_hub_that_refuses_is_an_error_of_ours(finished):
    file = finished.run_dir / "export" / "network.safetensors"
    with pytest.raises(ExportError, match=r"it answered with OSError: no route to host: check .* is kept in"):
        bcnet.export.push_run(finished.run_dir, file, "me/net", client=FakeHub(OSError("no route\nto host")))


def test_pushing_needs_a_name_and_a_token(finished, monkeypatch):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(ExportError, match="must be ORG/NAME"):
        bcnet.export.push_run(finished.run_dir, "x", "net")
    outcome = command(finished, "--push", "me/net")
    assert outcome.exit_code == 2
    assert "there is none: run `hf auth login`, or set HF_TOKEN" in outcome.stderr


def command(finished, *options):
    arguments = ["export", str(finished.run_dir), "--model", "tiny_job:TinyNetwork", *options]
    return CliRunner().invoke(app, arguments)


def test_the_command_writes_checks_and_says_so(finished, tmp_path):
    outcome = command(finished, "--out", str(tmp_path / "net.safetensors"))
    assert outcome.exit_code == 0, outcome.output
    for text in (
        "Wrote",
        "largest difference 0.0e+00",
        "of the original's",
        "Takes: inputs as in training",
        "Model card",
    ):
        assert text in outcome.stdout
    assert "Uploaded" not in outcome.stdout


def test_the_command_pushes_only_when_asked_to(finished, monkeypatch):
    client = FakeHub()
    monkeypatch.setattr(hub, "hub_client", lambda: client)
    assert command(finished, "--format", "safetensors").exit_code == 0
    assert client.calls == []
    outcome = command(finished, "--format", "safetensors", "--push", "me/net", "--public")
    assert "Uploaded: https://hub/me/net/commit/1" in outcome.stdout
    assert client.calls[0][2]["private"] is False
