"""Candidates that are fine-tuned before they are scored: what is scored, what stays as it is, and what is refused."""

import numpy as np
import pytest
import torch
from rich.console import Console
from tiny_job import RECIPE, SMALL, Recorder, StoppedError, TinyNetwork, tiny_data, tiny_search, traces

from bcnet import DataSet, evolve
from bcnet.cli.show import show_result
from bcnet.distributed import ProcessGroup
from bcnet.errors import RecipeError
from bcnet.files.documents import read_document
from bcnet.progress.base import Reporter
from bcnet.run.directory import RunDirectory
from bcnet.run.score import fresh_score_text
from bcnet.run.settings import make_settings
from bcnet.run.status import read_status
from bcnet.run.workload import open_source, prepare
from bcnet.stages import tuning
from bcnet.stages.base import Context
from bcnet.stages.plan import stages_of
from bcnet.stages.running import planned
from bcnet.stages.starting import first_channels, recalibrated
from bcnet.stages.tuning import _Steps, scorer_of
from bcnet.supernet import Supernet

STEPS = 3
TUNED = {"tune_steps": STEPS, "finalist_steps": 8 * STEPS}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return tiny_search(tmp_path_factory.mktemp("runs") / "tuned", **TUNED)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return tiny_search(tmp_path_factory.mktemp("runs") / "shared")


def context(tmp_path, **changes):
    values = {
        "limits": {"macs": 0.5},
        "supernet": RECIPE,
        "final": RECIPE,
        "num_choices": 4,
        "score": "loss",
        "threads": 1,
    }
    source = open_source(TinyNetwork, changes.pop("data", None) or tiny_data(), image_size=None, seed=0)
    named = {"model": source.model_name, "data": source.data_name}
    settings = make_settings(**named, **(values | {"tune_steps": STEPS} | changes)).resolved()
    return Context(settings, prepare(source, settings), RunDirectory(tmp_path, settings), Reporter(), ProcessGroup())


def test_a_candidate_is_scored_by_the_network_that_so_many_steps_make_of_its_first_channels(tmp_path):
    here = context(tmp_path)
    supernet = Supernet(here.workload.model, here.workload.space)
    before = {name: tensor.clone() for name, tensor in supernet.state_dict().items()}
    scores = {}
    for steps in (1, STEPS, 40):
        scorer = scorer_of(context(tmp_path, tune_steps=steps), supernet)
        scores[steps] = scorer.score((3, 5))
        assert scorer.score((3, 5)) == scores[steps], "the same candidate, the same score"
        assert -scorer.again.per_image((3, 5)).mean() > 0
    assert scores[40] > scores[STEPS] > scores[1], "more steps teach more"
    assert all(torch.equal(tensor, before[name]) for name, tensor in supernet.state_dict().items())


def test_without_learning_it_is_the_score_of_the_calibrated_first_channels(tmp_path):
    here = context(tmp_path, tune_lr_share=1e-12)
    supernet = Supernet(here.workload.model, here.workload.space)
    network = first_channels(here.settings, here.workload, supernet, (3, 5))
    recalibrated(network, here.workload.all_training, here.settings.seed).eval()
    with torch.no_grad():
        losses = [torch.nn.functional.cross_entropy(network(x), y) for x, y in here.workload.validation]
    assert scorer_of(here, supernet).score((3, 5)) == pytest.approx(-float(torch.stack(losses).mean()), abs=0.02)


def test_the_share_of_the_learning_rate_says_how_far_a_candidate_leaves_the_shared_weights(tmp_path):
    supernet = Supernet(context(tmp_path).workload.model, context(tmp_path).workload.space)
    rates = (1e-12, 1e-6, 0.2, 1.0)
    scores = [scorer_of(context(tmp_path, tune_lr_share=rate), supernet).score((3, 5)) for rate in rates]
    moved = [abs(score - scores[0]) for score in scores]
    assert moved[1] < 1e-3 < moved[2] != moved[3] > 1e-3
    assert scorer_of(context(tmp_path), supernet).score((3, 5)) == scores[3], "by default it is the supernet's own"


@pytest.mark.parametrize("steps", [1, 4, 9, 23])
def test_steps_pass_over_the_images_as_often_as_they_must(tmp_path, steps):
    whole = context(tmp_path).workload.training
    batches = _Steps(whole, steps)
    drawn = list(batches.epoch(torch.Generator().manual_seed(1)))
    assert len(drawn) == len(batches) == steps
    generator = torch.Generator().manual_seed(1)
    once = list(whole.epoch(generator))
    for (x, y), (first_x, first_y) in zip(drawn, once, strict=False):
        assert torch.equal(x, first_x)
        assert torch.equal(y, first_y)
    if steps > len(whole):
        assert not torch.equal(drawn[len(whole)][0], once[0][0]), "another pass is in another order"


def test_no_image_that_scores_is_learnt_from(tmp_path):
    """Images are told by their brightest pixel, which no augmentation of this data changes."""
    count = 120
    pixels = torch.zeros(count, 1, 8, 8, dtype=torch.uint8)
    pixels[:, 0, 2:6, 2:6] = torch.arange(1, count + 1, dtype=torch.uint8).view(-1, 1, 1)
    labels = torch.arange(count) % 3
    workload = context(tmp_path, data=DataSet.from_tensors((pixels, labels), (pixels[:9], labels[:9]))).workload

    def marks(batches):
        return {round(float(image.max()), 4) for x, _ in batches for image in x}

    learnt = marks(_Steps(workload.training, 20).epoch(torch.Generator().manual_seed(0)))
    scored = marks(workload.validation) | marks(workload.fresh)
    assert learnt
    assert scored
    assert not learnt & scored


def test_a_search_ranks_by_tuned_scores_and_trains_what_it_found(finished, shared):
    tuned = {c.widths: c.score for c in finished.found.evaluations}
    raw = {c.widths: c.score for c in shared.found.evaluations}
    assert any(tuned[widths] != raw[widths] for widths in tuned.keys() & raw.keys())
    assert finished.result["search"]["fresh_images"] > 0
    assert finished.result["networks"]["searched"]["macs_ratio"] <= 0.5
    page = (finished.run_dir / "report.html").read_text()
    assert f"after {STEPS} steps of fine-tuning" in page
    assert f"after {STEPS} steps" not in (shared.run_dir / "report.html").read_text()


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(("evolution", 1), marks=pytest.mark.slow),
        ("evolution", 5),
        ("finalists", 1),
        pytest.param(("finalists", 3), marks=pytest.mark.slow),
    ],
)
def test_stopped_within_the_search_it_ends_like_one_that_never_stopped(finished, tmp_path, at):
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, **TUNED, reporter=Recorder(at))
    begun = tmp_path / "finalists.json"
    assert begun.exists() == (at[0] == "finalists")
    tiny_search(tmp_path, **TUNED)
    assert traces(tmp_path) == traces(finished.run_dir)
    assert not begun.exists()


def test_a_finalist_that_is_scored_is_not_scored_again(tmp_path, monkeypatch):
    tuned = []
    train = tuning.train

    def counted(learner, batches, *args, **kwargs):
        tuned.append(len(batches))
        return train(learner, batches, *args, **kwargs)

    monkeypatch.setattr(tuning, "train", counted)
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, **TUNED, reporter=Recorder(("finalists", 2)))
    tiny_search(tmp_path, **TUNED)
    found = read_document(tmp_path / "rescored.json")["rescored"]
    assert tuned.count(TUNED["finalist_steps"]) == len(found) > 2


def test_the_best_after_longer_tuning_is_trained(finished, tmp_path):
    search = finished.result["search"]
    assert search["fresh_score"] == max(r["fresh_score"] for r in search["rescored"])
    here = context(tmp_path, **TUNED)
    supernet = Supernet(here.workload.model, here.workload.space)
    longer = context(tmp_path, tune_steps=TUNED["finalist_steps"])
    again = [scorer_of(c, supernet).again.per_image((3, 5)) for c in (here, longer, context(tmp_path))]
    assert (again[0] == again[1]).all(), "the same network"
    assert again[0].mean() > again[2].mean()


def test_the_last_words_say_what_the_second_score_follows_on(finished, shared):
    def words(outcome):
        console = Console(record=True, width=200)
        show_result(console, outcome.result, str(outcome.run_dir))
        return console.export_text()

    assert f") after {TUNED['finalist_steps']} steps of fine-tuning; " in words(finished)
    assert "of fine-tuning" not in words(shared)
    earlier = {key: value for key, value in finished.result["search"].items() if key != "finalist_steps"}
    assert fresh_score_text(earlier) + " after" in fresh_score_text(finished.result["search"]), "of an earlier version"


def test_candidates_may_share_weights_and_the_best_be_tuned(shared, tmp_path):
    found = tiny_search(tmp_path, finalist_steps=STEPS)
    assert found.found.evaluations == shared.found.evaluations
    assert found.result["search"]["fresh_score"] != shared.result["search"]["fresh_score"]
    page = (tmp_path / "report.html").read_text()
    assert f"after {STEPS} steps of fine-tuning on" in page
    assert "by the shared weights of the supernet" in page


def test_a_tuned_search_takes_over_the_supernet_and_nothing_of_another_search(finished, shared, tmp_path):
    recorder = Recorder()
    found = evolve(shared.run_dir, run_dir=tmp_path, **TUNED, model=TinyNetwork, data=tiny_data(), reporter=recorder)
    assert recorder.stages == ["evolution", "finalists"]
    assert found.found.evaluations == finished.found.evaluations


def test_other_finalists_need_no_other_search(shared, tmp_path):
    class Counting(Recorder):
        scored = 0

        def evaluation(self, candidate, done):
            self.scored += 1

    def again(name, **options):
        reporter = Counting()
        objects = {"model": TinyNetwork, "data": tiny_data(), "reporter": reporter}
        return evolve(shared.run_dir, run_dir=tmp_path / name, **objects, **options), reporter.scored

    found, scored = again("tuned", finalist_steps=STEPS)
    alone = tiny_search(tmp_path / "alone", finalist_steps=STEPS)
    assert scored == 0
    assert found.widths == alone.widths
    rescored = [read_document(folder / "rescored.json")["rescored"] for folder in (found.run_dir, alone.run_dir)]
    assert rescored[0] == rescored[1]
    other, scored = again("other", tune_steps=STEPS)
    assert scored == len(other.found.evaluations)


def test_its_work_is_forecast(tmp_path):
    def ahead(here):
        return {s.name: s for s in planned(stages_of(here.settings), here.settings, here.workload, set())}

    def work(steps):
        return ahead(context(tmp_path, tune_steps=steps))["evolution"].work

    step = (work(70) - work(20)) / 50
    assert step > 0
    assert work(20) == pytest.approx(20 * step + work(0) / 2)
    here = context(tmp_path, tune_steps=2, finalist_steps=20)
    finalist = ahead(here)["finalists"]
    assert finalist.total == here.settings.rescored
    assert finalist.work == pytest.approx(20 * step + work(0) / 2)


@pytest.mark.parametrize("searcher", ["evolution", "greedy-evolution", "greedy"])
def test_its_stages_are_those_that_it_goes_through(tmp_path, searcher):
    recorder = Recorder()
    tiny_search(tmp_path, **TUNED, searcher=searcher, reporter=recorder)
    assert tuple(recorder.stages) == tuple(stage.record.name for stage in read_status(tmp_path).stages)


def test_finalists_that_are_tuned_for_longer_are_a_choice_of_width_apart(tmp_path):
    def closest(name, **options):
        """Of the finalists, in the mean difference of the groups' width ratios; and the widths of the best two."""
        found = tiny_search(tmp_path / name, **options, generations=5).result["search"]["rescored"]
        ratios = np.array([r["widths"] for r in found]) / (8, 12)
        assert len(found) > 2
        between = np.abs(ratios[:, None] - ratios).mean(axis=2)
        best = max(found, key=lambda r: r["score"])
        return between[~np.eye(len(found), dtype=bool)].min(), best["widths"]

    anyhow, best = closest("shared")
    apart, best_apart = closest("tuned", finalist_steps=STEPS)
    assert anyhow < 1 / SMALL["num_choices"] <= apart
    assert best_apart == best


def test_what_cannot_be_tuned_is_refused_before_anything_is_trained(tmp_path):
    with pytest.raises(RecipeError, match=r"early_stop=on spares passes of the supernet.*; got tune_steps 3: leave"):
        tiny_search(tmp_path / "raced", tune_steps=STEPS, early_stop="on")
    with pytest.raises(RecipeError, match=r"of which a score of widths alone makes no use; got 3: leave it out"):
        tiny_search(tmp_path / "own", tune_steps=STEPS, score_of_widths=lambda widths: 1.0, tags={"score": "mine"})
    with pytest.raises(RecipeError, match=r"of which the baseline 'random' makes no use; got 3: leave it out"):
        tiny_search(tmp_path / "random", tune_steps=STEPS, baseline="random")
    with pytest.raises(RecipeError, match="tune_steps"):
        tiny_search(tmp_path / "negative", tune_steps=-1)
    with pytest.raises(RecipeError, match="tune_steps"):
        tiny_search(tmp_path / "part", tune_steps=0.5)
    with pytest.raises(RecipeError, match=r"finalist_steps fine-tunes .* the baseline 'random' makes no use; got 3"):
        tiny_search(tmp_path / "last", finalist_steps=STEPS, baseline="random")
    with pytest.raises(RecipeError, match=r"finalist_steps is more than tune_steps, 3, or 0 .*; got 3"):
        tiny_search(tmp_path / "equal", tune_steps=STEPS, finalist_steps=STEPS)
    with pytest.raises(RecipeError, match="finalist_steps"):
        tiny_search(tmp_path / "below", finalist_steps=-1)
    with pytest.raises(RecipeError, match=r"tune_lr_share is of candidates that are fine-tuned; got 0.5 and none"):
        tiny_search(tmp_path / "untuned", tune_lr_share=0.5)
    for share in (0, -1, 1.5, "much"):
        with pytest.raises(RecipeError, match="tune_lr_share"):
            tiny_search(tmp_path / "beyond", tune_steps=STEPS, tune_lr_share=share)
    assert list(tmp_path.iterdir()) == []
