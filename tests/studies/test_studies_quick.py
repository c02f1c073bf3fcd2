"""Every study runs in its quick form."""

import csv
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import typer

import bcnet
from bcnet.costs import TimedNetwork
from bcnet.space import Side, Widths
from bcnet.stages import acceptance
from bcnet.stages.base import Context
from bcnet.stages.calibration import latency_of
from studies.cifar import __main__ as cifar_table
from studies.coverage import __main__ as coverage
from studies.digits import __main__ as demo_seeds
from studies.latency import __main__ as latency
from studies.prior import __main__ as prior
from studies.prior import records
from studies.ranking import channel_bench_macro, halves, lengths, score_model
from studies.scores import noise as score_noise
from studies.scores import statistics as score_statistics
from studies.scores import tuned as tuned_scores
from studies.scores import tuning as tuning_noise
from studies.shared import short_training

pytestmark = pytest.mark.slow
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
    assert (row["network"], row["unseen"]) == ("resnet20", "6")
    assert 0 <= float(row["model_median_error"]) <= float(row["model_90_error"])
    latency.model(quick=True, out=tmp_path)
    assert (tmp_path / "latency_model.csv").read_text() == written


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


def as_predicted(context: Context, asked: Sequence[Widths]) -> dict[Widths, TimedNetwork]:
    """Networks that take what the model says."""
    times = latency_of(context.workload.budget).values(context.workload.space, np.array(asked))
    return {w: TimedNetwork(w, time, 0.0) for w, time in zip(asked, times.tolist(), strict=True)}


@pytest.mark.slow
def test_accuracies_at_equal_latency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bcnet.latency.measurement.BUSY", float("inf"))
    monkeypatch.setattr(acceptance, "timed", as_predicted)  # beside other tests few networks keep to a limit twice
    latency.accuracy(quick=True, out=tmp_path, runs=tmp_path / "runs")
    written = (tmp_path / "latency_accuracy.csv").read_text()
    rows = list(csv.DictReader(written.splitlines()))
    assert [row["widths_by"] for row in rows] == ["MACs", "latency", "Uniform"]
    assert all(0 < float(row["latency_ratio"]) < 1.5 and float(row["top1"]) > 0 for row in rows)
    latency.accuracy(quick=True, out=tmp_path, runs=tmp_path / "runs")
    assert (tmp_path / "latency_accuracy.csv").read_text() == written


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


_TRAININGS = {
    "scratch, all trainings": ("scratch", "again", "again 2"),
    "original, all trainings": ("original", "original, again", "original, again 2"),
}


def test_the_comparison_on_cifar(tmp_path: Path) -> None:
    small = {"seeds": 1, "supernet_epochs": 1, "epochs": 1}
    options = {**small, "data": "digits", "threads": 1, "device": "cpu", "again": 2}
    for _ in range(2):  # the second time everything is there
        cifar_table.main(quick=True, runs=tmp_path / "runs", out=tmp_path / "table.csv", **options)
    table = (tmp_path / "quick_table.csv").read_text()
    (tmp_path / "quick_table.csv").write_text("".join(table.splitlines(keepends=True)[:-1]))
    shutil.rmtree(tmp_path / "runs")  # what trained the last network, and what found its widths
    cifar_table.main(quick=True, runs=tmp_path / "runs", out=tmp_path / "table.csv", **options)
    with (tmp_path / "quick_table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    cells = [(row["method"], row["start"]) for row in rows]
    assert len({(row["method"], row["widths"]) for row in rows}) == len({row["method"] for row in rows})
    ours = ("ours", "ours, tuned scores")
    scratch, tuned = ("original", "uniform", *ours), ("ours", "original", "uniform", "ours, tuned scores")
    again = ("original", "uniform", "ours, tuned scores")
    starts = {"scratch": scratch, "supernet": tuned, "original": ("uniform",)}
    starts |= {"again": again, "original, again": ("uniform",), "again 2": again, "original, again 2": ("uniform",)}
    assert cells == [(method, start) for start, methods in starts.items() for method in methods]
    with (tmp_path / "quick_table_summary.csv").open(newline="") as file:
        summary = {(row["method"], row["start"]): float(row["top1_mean"]) for row in csv.DictReader(file)}
    pooled = {*((method, "scratch, all trainings") for method in again), ("uniform", "original, all trainings")}
    assert summary.keys() == {*cells} | pooled
    for method, start in pooled:
        trainings = [
            float(row["top1"]) for row in rows if row["method"] == method and row["start"] in _TRAININGS[start]
        ]
        assert len(trainings) == 3
        assert len(set(trainings)) > 1, "by other seeds"
        assert summary[method, start] == pytest.approx(sum(trainings) / 3, abs=1e-3)
    assert (tmp_path / "quick_table_summary.svg").stat().st_size > 1000


def test_the_noise_of_scores(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "noise.csv"
    bcnet.train_supernet("resnet_digits", "digits", run_dir=run, supernet_epochs=1, threads=1)
    for _ in range(2):  # the second time everything is there
        score_noise.main([run], widths=6, threads=1, out=out)
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["metric"] for row in rows] == ["accuracy", "loss"]
    assert all(-1 <= float(row["agreement"]) <= 1 and float(row["spread"]) > 0 for row in rows)


def test_scores_with_other_statistics(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "statistics.csv"
    bcnet.train_supernet("resnet_digits", "digits", run_dir=run, supernet_epochs=1, threads=1)
    for _ in range(2):  # the second time everything is there
        score_statistics.main([run], widths=4, threads=1, out=out)
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    kinds = score_statistics.KINDS
    assert [(row["metric"], row["statistics"]) for row in rows] == [(m, k) for m in ("accuracy", "loss") for k in kinds]
    assert [row["tau"] for row in rows if row["statistics"] == score_statistics.USUAL] == ["1.0", "1.0"]
    spreads = [row["spread"] for row in rows if row["metric"] == "loss"]
    assert spreads[0] == spreads[1], "there are fewer held-out digits than 512"
    scorer = score_noise.RunScorer.of(run)
    (widths,) = scorer.candidates(1)
    x, y = scorer.context.workload.validation[0]
    with torch.no_grad():
        losses = [
            torch.nn.functional.cross_entropy(scorer.supernet(x[:128], widths, side), y[:128])
            for side in (Side.LEFT, Side.RIGHT)
        ]
    (found,) = score_statistics.scores(scorer, [widths], "loss", "128 images")
    assert found == pytest.approx(-float(torch.stack(losses).mean()), rel=1e-4)


def test_a_supernet_of_one_side_is_scored_from_it_alone(tmp_path: Path) -> None:
    for strategy in ("unilateral", "complementary"):
        options = {"supernet_epochs": 1, "threads": 1, "strategy": strategy}
        bcnet.train_supernet("resnet_digits", "digits", run_dir=tmp_path / strategy, **options)
        scorer = score_noise.RunScorer.of(tmp_path / strategy)
        (widths,) = scorer.candidates(1)
        (score,) = scorer.scores([widths], "loss").mean(axis=1)
        paths = [-_loss(scorer, widths, side) for side in (Side.LEFT, Side.RIGHT)]
        expected = paths[0] if strategy == "unilateral" else sum(paths) / 2
        assert score == pytest.approx(expected, rel=1e-4)


def _loss(scorer: score_noise.RunScorer, widths: tuple[int, ...], side: Side) -> float:
    batches = scorer.batches
    with torch.no_grad():
        losses = [torch.nn.functional.cross_entropy(scorer.supernet(x, widths, side), y) for x, y in batches]
    return float(torch.stack(losses).mean())


def test_scores_of_halves_agree_where_the_images_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    signal, noise = rng.standard_normal((200, 1)), rng.standard_normal((200, 4))
    agreements = [score_noise.agreement(signal + size * noise) for size in (0, 0.5, 2, 1000)]
    assert agreements == sorted(agreements, reverse=True)
    assert agreements[0] == pytest.approx(1)
    assert agreements[-1] == pytest.approx(0, abs=0.1)


def test_scores_after_fine_tuning(tmp_path: Path) -> None:
    run, out, table = tmp_path / "run", tmp_path / "tuned.csv", tmp_path / "table.csv"
    trained = bcnet.train_supernet("resnet_digits", "digits", run_dir=run, supernet_epochs=1, threads=1)
    generator = torch.Generator().manual_seed(0)
    drawn = [trained.space.sample(generator) for _ in range(5)]
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("budget", "start", "method", "widths", "top1"))
        for number, widths in enumerate((*drawn, drawn[0])):
            start = "again" if number == 5 else "scratch"
            writer.writerow(("0.5", start, "ours", " ".join(map(str, widths)), 60 + number))
        writer.writerow(("0.25", "scratch", "ours", "1 2", 10))
        writer.writerow(("0.5", "supernet", "ours", "1 2", 10))
        writer.writerow(("0.5", "scratch", "magnitude", "1 2", 10))
    assert tuned_scores.trained_networks(table, "0.5")[drawn[0]] == 62.5
    for _ in range(2):  # the second time everything is there
        tuned_scores.main([run], steps="0,2,5", lr_shares="0.2,1", table=table, threads=1, out=out)
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["steps"] for row in rows] == ["5", "2", "0"] * 2
    assert [row["lr_share"] for row in rows] == ["0.2"] * 3 + ["1"] * 3
    assert {row["networks"] for row in rows} == {"5"}
    assert float(rows[0]["tau_most_steps"]) == 1
    assert all(-1 <= float(row["tau_top1"]) <= 1 for row in rows)


def test_the_noise_of_scores_after_fine_tuning(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "noise.csv"
    options = {"generations": 2, "population": 3, "tune_steps": 2, "score": "loss", "supernet_epochs": 1, "threads": 1}
    recipe = bcnet.Recipe(lr=0.05, batch_size=128, epochs=1, precision="fp32")
    bcnet.search("resnet_digits", "digits", budget=bcnet.Budget(macs=0.5), recipe=recipe, run_dir=run, **options)
    for _ in range(2):  # the second time everything is there
        tuning_noise.main([run], steps="2,5", orders=2, threads=1, out=out)
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["networks"].split()[0], row["steps"]) for row in rows] == [
        (kind, steps) for kind in ("finalists", "random") for steps in ("5", "2")
    ]
    assert all(float(row["noise"]) > 0 and -1 <= float(row["agreement"]) <= 1 for row in rows)
    assert [float(row["tau_most_steps"]) for row in rows[::2]] == [1, 1]
    assert {int(row["count"]) for row in rows} == {len(tuning_noise.finalists(run))}


def test_what_order_and_network_explain_of_a_score_is_no_noise() -> None:
    rng = np.random.default_rng(0)
    networks, orders = 3 * rng.standard_normal((400, 1)), 5 * rng.standard_normal((1, 6))
    assert tuning_noise.noise(networks + orders) == pytest.approx(0, abs=1e-9)
    assert tuning_noise.agreement(networks + orders) == pytest.approx(1)
    assert tuning_noise.signal(networks + orders) == pytest.approx(3, rel=0.1)
    noisy = networks + orders + 2 * rng.standard_normal((400, 6))
    assert tuning_noise.noise(noisy) == pytest.approx(2, rel=0.1)
    assert tuning_noise.signal(noisy) == pytest.approx(3, rel=0.1)
    assert tuning_noise.signal(rng.standard_normal((400, 6))) < 0.2


def test_noise_is_not_measured_where_nothing_was_searched(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="has 0 finalists"):
        tuning_noise.main([tmp_path], out=tmp_path / "noise.csv")
    assert not (tmp_path / "noise.csv").exists()


def test_a_cell_that_fails_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cifar_table, "METHODS", ("uniform",))
    options = {"seeds": 1, "supernet_epochs": 1, "epochs": 1, "threads": 1, "device": "cpu"}
    data = f"parquet:{tmp_path / 'nowhere'}"
    with pytest.raises(SystemExit, match="5 cells failed; run again"):
        cifar_table.main(quick=False, data=data, runs=tmp_path, out=tmp_path / "table.csv", **options)
    shown = capsys.readouterr().err
    assert "FAILED: seed0-uniform-0.5 ended with exit code 2" in shown
    assert "FAILED: seed0-uniform-0.25 ended with exit code 2" in shown
    assert "nowhere" in shown


@pytest.mark.parametrize("option", ["also", "skip"])
def test_an_unknown_method_is_refused_before_any_cell(option: str, tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match=f"^--{option} is one of .*; got 'autoslimm'$"):
        cifar_table.main(runs=tmp_path / "runs", out=tmp_path / "table.csv", **{option: ["autoslimm"]})
    assert not list(tmp_path.iterdir())


def test_the_demo() -> None:
    figures = demo_seeds.run(0, [*demo_seeds.DEMO, *demo_seeds.QUICK], threads=1)
    assert figures["evaluations"] == 8
