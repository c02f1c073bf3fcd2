import pytest
import torch
from tiny_job import TinyNetwork, tiny_data, tiny_supernet_search, traces
from typer.testing import CliRunner

import bcnet
from bcnet.cli.app import app
from bcnet.errors import TrainingError
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
    return tiny_supernet_search(folder, model=Allergic, data=data_with_a_white_image(), **changes)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    with pytest.raises(TrainingError, match=r"stage supernet, step \d+ at widths .*nothing of it reached the weights"):
        allergic_search(folder)
    return folder


def test_a_stopped_run_goes_on_with_another_policy_and_counts(stopped, tmp_path):
    skipped = allergic_search(tmp_path, training=SKIP, report=True)
    gone_on = allergic_search(stopped, training=SKIP, report=True)
    assert traces(stopped) == traces(tmp_path)
    assert read_settings(stopped).supernet_recipe.on_bad_step == "skip"
    counts = gone_on.result.skipped_steps
    assert counts == skipped.result.skipped_steps
    assert counts["original"] == counts["uniform"] == counts["searched"] > 0
    assert f"Bad training steps left out: supernet {counts['supernet']}, " in (stopped / "report.html").read_text()
    assert all(tensor.isfinite().all() for tensor in gone_on.network.state_dict().values())


def test_the_command_line_says_what_happened(tmp_path):
    def run(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments], terminal_width=120)

    search = ["search", "--model", "resnet_digits", "--data", "digits", "--budget", "0.5", "--threads", "1"]
    search += ["--method", "bcnet"]
    outcome = run(*search, "--epochs", "1", "--set", "lr=1e30", "--set", "warmup_epochs=0", "--out", tmp_path)
    assert outcome.exit_code == 2
    assert "step 1 at widths" in outcome.stderr
    assert "--set on_bad_step=skip" in outcome.stderr
