"""The ranking study's figures are those of scipy, its cells go on where they were, and it runs in its quick form."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from bcnet.space import Side, WidthSpace
from bcnet.testing.searchers import toy_space
from bcnet.train import LossRecords
from studies.ranking import __main__ as ranking
from studies.ranking import channel_bench_macro, differences, score_model, shapes, smallest, trainings
from studies.ranking import figure as ranking_figure
from studies.ranking import supernets as ranking_supernets
from studies.ranking.scores import MACS, METRICS, Contender, ScoreFile
from studies.ranking.statistics import (
    Estimate,
    kendall,
    kendall_given,
    kendall_within_bins,
    mean_kendall,
    regret,
    resamples,
    spearman,
)
from studies.ranking.supernets import PATHS_PER_STEP, SUPERNETS, BilateralSandwich, Cell, Scoring, Training, Workload
from studies.shared.provenance import rows

rng = np.random.default_rng(0)
X, Z = rng.integers(0, 12, 40).astype(float), rng.normal(size=40)  # X has ties
Y = X + Z + rng.normal(scale=4, size=40)
COUNTS = resamples(40, count=5)


def repeated(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.repeat(values, counts.astype(int))


@pytest.mark.parametrize(("ours", "theirs"), [(kendall, stats.kendalltau), (spearman, stats.spearmanr)])
def test_resampled_correlations_are_those_of_the_repeated_items(ours: object, theirs: object) -> None:
    expected = [theirs(repeated(X, w), repeated(Y, w)).statistic for w in COUNTS]
    np.testing.assert_allclose(ours(X, Y, COUNTS), expected)


def test_a_line_is_regressed_out_of_every_resample() -> None:
    expected = []
    for w in COUNTS:
        x, y, z = (repeated(a, w) for a in (X, Y, Z))
        rest = [a - np.polyval(np.polyfit(z, a, 1), z) for a in (x, y)]
        # Equal items keep equal residuals but for rounding, which would break their ties.
        expected.append(stats.kendalltau(*(a.round(9) for a in rest)).statistic)
    np.testing.assert_allclose(kendall_given(X, Y, Z, COUNTS), expected)


def test_nothing_is_left_of_a_score_that_only_knows_the_macs() -> None:
    many = rng.normal(size=(3, 2000))
    score, truth, macs = many[0] + 5 * many[2], many[1] + 5 * many[2], many[2]
    one = np.ones((1, 2000))
    assert kendall(score, truth, one)[0] > 0.7
    assert abs(kendall_given(score, truth, macs, one)[0]) < 0.05


def test_the_interval_covers_as_often_as_it_says() -> None:
    true = 2 / np.pi * np.arcsin(0.6)  # Kendall's tau of a normal correlation of 0.6
    inside = 0
    for repeat in range(200):
        x, y = np.random.default_rng([7, repeat]).multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=60).T
        estimate = Estimate.of(lambda w, x=x, y=y: kendall(x, y, w), resamples(60, seed=repeat, count=400))
        inside += estimate.low <= true <= estimate.high
    assert 0.88 < inside / 200 <= 0.99


def test_scores_without_differences_have_no_figure() -> None:
    estimate = Estimate.of(lambda w: kendall(np.ones(40), Y, w), COUNTS)
    assert np.isnan([estimate.value, estimate.low, estimate.high]).all()


def test_the_mean_over_seeds() -> None:
    expected = (kendall(X, Y, COUNTS) + kendall(Z, Y, COUNTS)) / 2
    np.testing.assert_allclose(mean_kendall([X, Z], Y, COUNTS), expected)


def test_regret_is_the_mean_over_equal_choices_within_the_limit() -> None:
    truth, cost, once = np.array([90.0, 91, 92, 95]), np.array([1.0, 2, 2, 9]), np.ones((1, 4))
    assert regret(np.array([0.0, 1, 1, 5]), truth, cost, 5, once) == pytest.approx(0.5)
    assert regret(np.array([0.0, 1, 2, 5]), truth, cost, 5, once) == 0
    assert regret(cost, truth, cost, 10, once) == 0
    assert np.isnan(regret(cost, truth, cost, 0.5, once))


def test_resampled_regrets_are_those_of_the_repeated_items() -> None:
    cost = np.arange(40) % 5
    expected = []
    for w in COUNTS:
        x, y, z = (repeated(a, w) for a in (X, Y, cost))
        expected.append(y[z <= 2].max() - y[(z <= 2) & (x == x[z <= 2].max())].mean())
    assert max(expected) > 0
    np.testing.assert_allclose(regret(X, Y, cost, 2, COUNTS), expected)


def test_resampled_correlations_within_bins_are_those_of_the_repeated_items() -> None:
    share = np.linspace(0.01, 0.99, 40)
    share[:3] = 1.0, 0.1, 0.2  # the upper edges of their bins
    expected = []
    for w in COUNTS:
        x, y, z = (repeated(a, w) for a in (X, Y, share))
        taus, pairs = [], []
        for low in np.arange(0, 1, 0.1):
            inside = (z > low) & (z <= low + 0.1)
            if min(len(set(x[inside])), len(set(y[inside]))) > 1:
                tau = stats.kendalltau(x[inside], y[inside]).statistic
                taus.append(tau)
                pairs.append(inside.sum() * (inside.sum() - 1))
        expected.append(np.average(taus, weights=pairs))
    np.testing.assert_allclose(kendall_within_bins(X, Y, share, 0.1, COUNTS), expected)
    apart = np.arange(40.0)
    assert np.isnan(kendall_within_bins(X, Y, apart / 39, 0.01, np.ones((1, 40)))).all()


def test_score_files_replace_a_cell_and_keep_the_others(tmp_path: Path) -> None:
    file = ScoreFile(tmp_path / "scores.csv")
    assert file.read({"seed": 0}) is None
    row = {"macs": 5, "table_accuracy": 90.5, "left_loss": 1.0, "right_loss": 2.0}
    file.write({"seed": 0}, [row])
    file.write({"seed": 1}, [row, {**row, "macs": 7}])
    file.write({"seed": 0}, [row, row, row])
    first, second = (file.read({"seed": seed}) for seed in (0, 1))
    assert first is not None
    assert second is not None
    assert len(first.macs) == 3
    assert second.score(MACS).tolist() == [5, 7]
    assert second.score(Contender("x", "both", "loss")).tolist() == [-1.5, -1.5]
    assert second.accuracy.tolist() == [90.5, 90.5]


def test_every_supernet_takes_equal_steps_along_the_mean_of_its_paths() -> None:
    assert set(SUPERNETS) == set(ranking_figure.NAMES)
    data = Workload.open("digits", *ranking.QUICK, "cpu")
    for make in SUPERNETS.values():
        strategy = make()
        terms = strategy.plan(data.space, torch.Generator().manual_seed(0))
        recipe = Training(lr=0.2, weight_decay=1e-4).recipe(strategy, data.space)
        assert sum(len(term.paths) for term in terms) == PATHS_PER_STEP
        assert recipe.lr * len(terms) == pytest.approx(0.2)
        assert recipe.lr * recipe.weight_decay == pytest.approx(0.2 * 1e-4)


def test_bc_by_the_sandwich_rule_learns_from_the_full_width_on_both_sides() -> None:
    space = Workload.open("digits", *ranking.QUICK, "cpu").space
    strategy = BilateralSandwich()
    generator = torch.Generator().manual_seed(0)
    narrowest = []
    for _ in range(20):
        full, narrow, drawn = strategy.plan(space, generator)
        assert full.paths == (strategy.teacher(space),)
        assert [path.widths for path in narrow.paths] == [space.narrowest]
        narrowest.append(narrow.paths[0].side)
        assert {path.side for path in drawn.paths} == {Side.LEFT, Side.RIGHT}
        assert len({path.widths for path in drawn.paths}) == 1
    assert 4 < narrowest.count(Side.LEFT) < 16


@pytest.mark.parametrize(("right", "wrong"), [("curvature", "pairs"), ("pairs", "curvature")])
def test_a_shape_explains_the_scores_that_have_it(right: str, wrong: str) -> None:
    space = toy_space(4)
    draw = np.random.default_rng(0)
    some = [tuple(int(draw.choice(group.choices)) for group in space.groups) for _ in range(200)]
    logs = np.log(np.array(some, dtype=np.float64))
    centred = logs - logs[:100].mean(axis=0)
    bent = {"curvature": -(centred**2).sum(axis=1), "pairs": centred[:, 0] * centred[:, 1]}[right]
    truth = centred.sum(axis=1) + bent
    found = {shape: shapes.expected(space, some[:100], truth[:100], some[100:], shape) for shape in shapes.SHAPES}
    assert found[right][1] > 0.95
    assert stats.pearsonr(found[right][0], truth[100:]).statistic > 0.97
    assert found[wrong][1] < 0.9
    assert found["linear"][1] < 0.9
    assert found["curvature and pairs"][1] > 0.95


def test_a_cheaper_score_that_says_something_helps_a_model_of_few_scores_by_any_scale() -> None:
    space = toy_space(8)
    draw = np.random.default_rng(0)
    slopes = np.array([3.0, 0.1, 2.0, 0.1, 1.0, 0.1, 4.0, 0.1])
    some = [tuple(int(draw.choice(group.choices)) for group in space.groups) for _ in range(206)]
    truth = np.log(np.array(some, dtype=np.float64)) @ slopes + 0.5 * draw.normal(size=206)

    def correlation(known: list[np.ndarray]) -> float:
        guess, _ = shapes.expected(space, some[:6], truth[:6], some[6:], cheaper=known)
        return stats.pearsonr(guess, truth[6:]).statistic

    assert correlation([slopes]) > correlation([]) + 0.1
    assert correlation([7 * slopes]) == pytest.approx(correlation([slopes]))


def test_a_supernet_trained_otherwise_is_held_against_the_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking, "pairs", list)
    draw = np.random.default_rng(0)
    truth = np.linspace(89, 91, 40)

    def study(epochs: int) -> ranking.Study:
        training = Training(epochs=epochs)
        return ranking.Study(None, training, Scoring(), "digits", tmp_path, tmp_path / "r.csv", "cpu", 1)

    def write(epochs: int, noise: float) -> None:
        table = [
            {"macs": 1, "table_accuracy": exact, "left_accuracy": score, "left_loss": -score}
            for exact, score in zip(truth, truth + noise * draw.normal(size=40), strict=True)
        ]
        study(epochs).scores.write(study(epochs).key("unilateral", 0), table)

    write(10, noise=0.1)
    ranking.finish_differences(study(10), 1)
    assert not (tmp_path / "r_differences.csv").exists(), "there is no usual one yet"
    write(4, noise=10)
    ranking.finish_differences(study(4), 1)
    assert not (tmp_path / "r_differences.csv").exists(), "the usual one is not held against itself"
    for _ in range(2):
        ranking.finish_differences(study(10), 1)
    found = rows(tmp_path / "r_differences.csv")
    assert [row["second"] for row in found] == [f"unilateral left {m}, 4 epochs at 16x16" for m in ("accuracy", "loss")]
    assert all(float(row["tau_difference_low"]) > 0.3 and row["epochs"] == "10" for row in found)


class Killed(Exception):  # noqa: N818 - no error
    pass


@pytest.mark.studies
def test_a_cell_goes_on_where_it_was_and_is_never_scored_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training, scoring = (
        Training(image_size=8, epochs=1, batch_size=360),
        Scoring(widths=3, images=32, score_batch_size=16),
    )
    workload = Workload.open("digits", training, scoring, "cpu")
    sample = [workload.space.full, workload.space.narrowest, workload.space.scaled(0.5)]
    cell = Cell("bilateral", 0, training, "digits", tmp_path)
    asked = []
    original = ranking_supernets.score

    def count(*arguments: object) -> object:
        asked.append(arguments[2:])
        if len(asked) == 4:
            raise Killed
        return original(*arguments)

    monkeypatch.setattr(ranking_supernets, "score", count)
    monkeypatch.setattr(ranking_supernets, "_SAVE_EVERY", 2)
    with pytest.raises(Killed):
        cell.scores(workload, sample)
    assert len(LossRecords.load(cell.folder / "records.safetensors", cell.identity)) == 2 * len(workload.training)
    weights = (cell.folder / "supernet.safetensors").stat().st_mtime_ns
    scores = cell.scores(workload, sample)
    assert asked[4:] == [asked[2], asked[3], *asked[6:]]
    assert len(asked) == 4 + 4
    assert {side for _, side in scores} == {Side.LEFT, Side.RIGHT}
    assert cell.scores(workload, sample) == scores
    assert len(asked) == 8
    assert (cell.folder / "supernet.safetensors").stat().st_mtime_ns == weights
    other = Workload.open("digits", training, Scoring(images=16, score_batch_size=16), "cpu")
    with pytest.raises(SystemExit, match="other settings"):
        cell.scores(other, sample)


@pytest.mark.studies
@pytest.mark.skipif(
    not channel_bench_macro.DATA.is_file(), reason="needs Channel-Bench-Macro's table in ../shared/data"
)
def test_the_study_in_its_quick_form(tmp_path: Path) -> None:
    out, runs = tmp_path / "ranking.csv", tmp_path / "runs"
    ranking.main(quick=True, out=out, runs=runs, threads=1)
    text = (tmp_path / "quick_ranking.csv").read_text()
    assert len(text.splitlines()) == 1 + (3 + 3 + 3 + 1 + 1 + 1 + 3) * 2 + 1
    assert (tmp_path / "quick_ranking.svg").stat().st_size > 1000
    assert len((tmp_path / "quick_ranking_differences.csv").read_text().splitlines()) == 1 + len(ranking.pairs())
    ranking.main(quick=True, out=out, runs=tmp_path / "no runs", threads=1)
    assert (tmp_path / "quick_ranking.csv").read_text() == text
    assert not (tmp_path / "quick_no runs").exists()


@pytest.mark.studies
@pytest.mark.skipif(
    not channel_bench_macro.DATA.is_file(), reason="needs Channel-Bench-Macro's table in ../shared/data"
)
def test_trainings_from_the_original_go_on_where_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = channel_bench_macro.Table.read(channel_bench_macro.DATA)
    judged = score_model.widths_of(next(iter(score_model.cells_of(score_model.SCORES).values())))
    candidates = trainings.drawn(table, judged, 0, 36)
    assert trainings.drawn(table, judged, 0, 12) == candidates[:12]
    assert not set(candidates) & set(judged)
    places = {"runs": tmp_path / "runs", "out": tmp_path / "out.csv", "model_out": tmp_path / "model.csv"}
    trained = []
    built = trainings.Ranked.built

    def killed_at_the_third(ranked: trainings.Ranked, widths: tuple[int, ...]) -> torch.nn.Module:
        trained.append(widths)
        if len(trained) == 3:
            raise Killed
        return built(ranked, widths)

    monkeypatch.setattr(trainings.Ranked, "built", killed_at_the_third)
    with pytest.raises(Killed):
        trainings.main(quick=True, **places)
    original = next((tmp_path / "runs").glob("*.safetensors"))
    weights = original.stat().st_mtime_ns
    assert [file.name for file in (tmp_path / "runs").iterdir()] == [original.name]
    trainings.main(quick=True, **places)
    assert trained == [*candidates[:3], *candidates[2:4]]
    assert original.stat().st_mtime_ns == weights
    assert [row["kind"] for row in rows(tmp_path / "model.csv")] == ["model", "model and closed form"]
    trainings.main(quick=True, **places)
    assert len(trained) == 5
    assert len(rows(tmp_path / "model.csv")) == 2


def made_up_table(path: Path) -> WidthSpace:
    """A table of the benchmark's ResNet: costs as they are, accuracies by a formula with noise."""
    network, example = channel_bench_macro.network_called("resnet"), torch.zeros(2, 3, 32, 32)
    space = WidthSpace.trace(network, example, num_choices=4, multiple_of=1)
    noise = np.random.default_rng(0)
    lines = ["arch,macs,params,acc1,acc2,acc3"]
    for digits in itertools.product(range(4), repeat=len(space.groups)):
        widths = tuple(group.choices[i] for group, i in zip(space.groups, digits, strict=True))
        cost, accuracies = space.cost(widths), 50 + np.log(widths).sum() + noise.normal(0, 0.2, 3)
        name = "".join(str(i + 1) for i in digits)
        lines.append(",".join([name, str(cost.macs), str(cost.params), *(f"{value:.2f}" for value in accuracies)]))
    path.write_text("\n".join(lines) + "\n")
    return space


@pytest.mark.studies
def test_another_table_and_network_go_through_every_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_model, "DRAWS", 2)
    monkeypatch.setattr(score_model, "TRAINED", (32,))
    table = tmp_path / "resnet.csv"
    space = made_up_table(table)
    chosen = {"table": table, "network": "resnet"}
    assert channel_bench_macro.Table.read(table, "resnet").space == space
    with pytest.raises(SystemExit, match="differ from those traced: not the table of mobilenet"):
        channel_bench_macro.Table.read(table)
    two = ["complementary", "unilateral"]  # a step of the benchmark's ResNet takes seconds
    ranking.main(quick=True, out=tmp_path / "ranking.csv", runs=tmp_path / "runs", only=two, threads=1, **chosen)
    scores = tmp_path / "quick_ranking_scores.csv"
    score_model.main(scores, out=tmp_path / "model.csv", **chosen)
    kinds = {row["kind"] for row in rows(tmp_path / "model.csv")}
    assert {"macs", "scores", "model", "model and closed form", "closed form, p = 0"} <= kinds
    differences.main(quick=True, out=tmp_path / "differences.csv", **chosen)
    found = [row["search"] for row in rows(tmp_path / "quick_differences.csv")]
    assert found[: -len(differences.FINAL_CHOICES) : 2] == list(differences.SEARCHES)
    assert found[-len(differences.FINAL_CHOICES) :] == list(differences.FINAL_CHOICES)
    usual = ranking.OUT
    assert channel_bench_macro.of_network(usual, usual, "resnet").name == "ranking_resnet.csv"
    assert channel_bench_macro.of_network(usual, usual, "mobilenet") == usual


def test_a_supernet_is_fair_with_a_smallest_width_but_by_the_complement_that_keeps_to_it() -> None:
    space = WidthSpace.trace(channel_bench_macro.network_called("mobilenet"), torch.zeros(2, 3, 16, 16), num_choices=4)
    drawn = {name: smallest.at_least_half(space) if arm.smallest else space for name, arm in smallest.ARMS.items()}
    assert all(min(group.choices) * 2 == group.max_width for group in drawn[smallest.FAIR].groups)
    found = {name: smallest.least_trained(arm, drawn[name], 0, 1000) for name, arm in smallest.ARMS.items()}
    assert found.pop("l + c_min - c") == pytest.approx(0.8, abs=0.02)
    assert set(found.values()) == {1.0}


@pytest.mark.studies
@pytest.mark.skipif(
    not channel_bench_macro.DATA.is_file(), reason="needs Channel-Bench-Macro's table in ../shared/data"
)
def test_smallest_widths_in_the_quick_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"runs": tmp_path / "runs", "out": tmp_path / "out.csv"}
    with pytest.raises(SystemExit, match=r"--only takes l - c, .*got l$"):
        smallest.main(quick=True, only=["l"], **places)
    smallest.main(quick=True, only=["l + c_min - c"], **places)
    assert not places["out"].exists()
    trained = []
    train = Cell.train

    def counted(cell: Cell, workload: Workload) -> object:
        trained.append(cell)
        return train(cell, workload)

    monkeypatch.setattr(Cell, "train", counted)
    smallest.main(quick=True, only=["l - c", "l + c_min - c"], **places)
    assert len(trained) == 1, "what was trained before is not trained again"
    assert [row["supernet"] for row in rows(places["out"])] == ["l - c"] * 2 + ["l + c_min - c"] * 2 + ["macs"]
    smallest.main(quick=True, **places)
    assert len(trained) == 2
    written = rows(places["out"])
    found = {(row["supernet"], row["score"]) for row in written}
    assert found == {*((name, metric) for name in smallest.ARMS for metric in METRICS), ("macs", "")}
    assert len(written) == len(found)
    assert {row["tau_difference"] for row in written if row["supernet"] == smallest.FAIR} == {"0.0"}
    assert len({row["tau"] for row in written}) > 3
    smallest.main(quick=True, **places)
    assert len(trained) == 2
    assert rows(places["out"]) == written
