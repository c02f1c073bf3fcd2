import json

import pytest
import torch
from tiny_job import TinyNetwork, tiny_data, tiny_search, traces
from typer.testing import CliRunner

import bcnet
from bcnet.cli.app import app
from bcnet.cli.replay import finding
from bcnet.errors import ModelError, RunError, TrainingError
from bcnet.run.directory import read_settings

SKIP = {"on_bad_step": "skip"}


class Allergic(TinyNetwork):
    """A white image makes its batch no number."""

    def forward(self, x):
        white = x.mean((1, 2, 3), keepdim=True) > 2
        return super().forward(torch.where(white, torch.inf, x))


def data_with_a_white_image():
    data = tiny_data()
    pixels = data.train.pixels.clone()
    pixels[50] = 255
    return bcnet.DataSet.from_tensors(
        (pixels, data.train.labels), (data.test.pixels, data.test.labels), name="one white"
    )


def allergic_search(folder, **changes):
    return tiny_search(folder, model=Allergic, data=data_with_a_white_image(), **changes)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    with pytest.raises(TrainingError, match=r"saved for replay in .*bad_steps.supernet-step-\d+.safetensors"):
        allergic_search(folder)
    return folder


def test_the_saved_step_is_replayed_from_the_run_directory(stopped):
    found = bcnet.replay(stopped, Allergic)
    assert found.same
    assert [path.path.side.name for path in found.paths] == ["LEFT", "RIGHT", "LEFT", "RIGHT"]
    assert {path.broken for path in found.paths} == {"network.first.0"}
    assert "first.0 was given it" in finding(found)
    page = json.loads(next((stopped / "bad_steps").glob("*.json")).read_text())
    assert page["step"] == found.failed_step.step
    assert page["terms"][0]["paths"][0]["side"] == "LEFT"


def test_a_replay_needs_the_runs_model(stopped):
    with pytest.raises(ModelError, match=r"Allergic from a factory: call bcnet.replay\(run_dir, model\)"):
        bcnet.replay(stopped)
    with pytest.raises(ModelError, match="got one of another width space"):
        bcnet.replay(stopped, lambda: TinyNetwork(10))


def test_a_stopped_run_goes_on_with_another_policy_and_counts(stopped, tmp_path):
    skipped = allergic_search(tmp_path, changes=SKIP)
    gone_on = allergic_search(stopped, changes=SKIP)
    assert traces(stopped) == traces(tmp_path)
    assert read_settings(stopped).supernet.on_bad_step == "skip"
    counts = gone_on.result["skipped_steps"]
    assert counts == skipped.result["skipped_steps"]
    assert counts["original"] == counts["uniform"] == counts["searched"] > 0
    assert f"Bad training steps left out: supernet {counts['supernet']}, " in (stopped / "report.html").read_text()
    assert all(tensor.isfinite().all() for tensor in gone_on.network.state_dict().values())


def test_a_step_of_a_final_network_is_replayed_too(tmp_path):
    with pytest.raises(TrainingError, match=r"stage final, step 1: .* finite number"):
        tiny_search(tmp_path, changes={"final.lr": 1e30, "final.schedule.kind": "cosine"})
    found = bcnet.replay(tmp_path, TinyNetwork)
    assert found.same
    assert found.heaviest[1] > 1e20
    assert "training diverged before: lower lr" in finding(found)


def test_the_command_line_says_what_happened_and_replays_it(tmp_path):
    def run(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments], terminal_width=120)

    search = ["search", "--model", "resnet_digits", "--data", "digits", "--budget", "0.5", "--threads", "1"]
    search += ["--scorer", "supernet"]
    outcome = run(*search, "--epochs", "1", "--set", "lr=1e30", "--set", "warmup_epochs=0", "--out", tmp_path)
    assert outcome.exit_code == 2
    assert "step 1 at widths" in outcome.stderr
    assert "--set on_bad_step=skip" in outcome.stderr
    replayed = run("replay", tmp_path)
    assert replayed.exit_code == 0, replayed.output
    assert "Replayed with the same numbers as in the run." in replayed.output
    assert "The first output that is not finite is that of module network." in replayed.output


def test_a_run_without_a_bad_step_has_nothing_to_replay(tmp_path):
    tiny_search(tmp_path)
    with pytest.raises(RunError, match="holds no step to replay"):
        bcnet.replay(tmp_path, TinyNetwork)
