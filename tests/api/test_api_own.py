import random
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_job import RECIPE, Recorder, StoppedError, TinyNetwork, supernet_method, tiny_data
from tiny_job import tiny_supernet_search as tiny_search
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

import bcnet
from bcnet import Reporter
from bcnet.distributed import ProcessGroup
from bcnet.errors import DataError, ModelError, RecipeError, RunError, TraceError
from bcnet.files.tensors import read_tensors
from bcnet.pruners import Pruned
from bcnet.run.directory import RunDirectory, read_settings
from bcnet.run.parts import cut_data
from bcnet.run.settings import make_settings
from bcnet.run.workload import open_source, prepare
from bcnet.stages.base import Context
from bcnet.stages.final import SearchedStage, UniformStage
from bcnet.stages.plan import stages_of
from bcnet.stages.pruning import PruningStage
from bcnet.stages.starting import starting_network
from bcnet.supernet import by_importance
from bcnet.train import derived_generator


class Noisy(Dataset):
    """Images as floats, each with noise of its own at every look, from the seeds of torch and of `random`."""

    def __init__(self, images, noise: bool) -> None:
        self.x, self.y, self.noise = (images.pixels / 255.0), images.labels, noise

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        noise = 0.1 * torch.rand(()) + 0.1 * random.random() if self.noise else 0.0
        return self.x[index] + noise, int(self.y[index])


def tiny_loaders(**changes):
    data = tiny_data()
    parts = (data.train.subset(range(60)), data.train.subset(range(60, 90)), data.test)
    train, validation, test = (Noisy(part, noise=part is parts[0]) for part in parts)
    loaders = {
        "train": DataLoader(train, batch_size=12, shuffle=True),
        "validation": DataLoader(validation, batch_size=10),
        "test": DataLoader(test, batch_size=7),
    } | changes
    return bcnet.Loaders(**loaders)


WEIGHTS = ("supernet", "original", "uniform", "final")


def weights(folder):
    return {name: (folder / f"{name}.safetensors").read_bytes() for name in WEIGHTS}


@pytest.mark.slow
def test_loaders_give_their_own_batches_and_a_stopped_run_ends_like_a_whole_one(tmp_path):
    before = random.getstate(), torch.get_rng_state()
    whole = tiny_search(tmp_path / "whole", data=tiny_loaders())
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    for stop in (("supernet", 3), ("evolution", 2), ("original", 7)):
        with pytest.raises(StoppedError):
            tiny_search(tmp_path / "stopped", data=tiny_loaders(), reporter=Recorder(stop), checkpoint_seconds=0)
    again = tiny_search(tmp_path / "stopped", data=tiny_loaders())
    assert again.widths == whole.widths
    assert weights(tmp_path / "stopped") == weights(tmp_path / "whole")
    settings = read_settings(tmp_path / "whole")
    assert settings.training.batch_size == 12
    assert settings.data.startswith("loaders ")
    assert whole.result.networks["searched"].test_images == 30
    assert whole.result.search.fresh_images == 15
    assert bcnet.run.finished.FinishedRun.read(whole.run_dir, TinyNetwork).input.normaliser is None
    with pytest.raises(RunError, match="their normalisation is not known"):
        bcnet.load(whole.run_dir, TinyNetwork, with_normalisation=True)


class Broken(Noisy):
    """Its item 25 cannot be read until somebody mends it."""

    mended = False

    def __getitem__(self, index):
        if index == 25 and not self.mended:
            raise OSError("no picture in 25.png")
        return super().__getitem__(index)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_an_item_that_cannot_be_read_is_told_and_nothing_is_lost(tmp_path, workers):
    items = Broken(tiny_data().train.subset(range(60)), noise=False)
    broken = DataLoader(items, batch_size=10, num_workers=workers)
    for part, name in (("train", "training"), ("validation", "validation")):
        message = rf"the {name} loader failed at batch 2 \(from 0\): OSError: no picture in 25.png: fix"
        with pytest.raises(DataError, match=message) as caught:
            tiny_search(tmp_path / part, data=tiny_loaders(**{part: broken}), checkpoint_seconds=0)
        assert isinstance(caught.value.__cause__, OSError)
    assert any((tmp_path / "train" / "checkpoints").rglob("*.safetensors"))
    items.mended = True
    tiny_search(tmp_path / "train", data=tiny_loaders(train=broken))


def test_two_torch_datasets_are_read_like_any_data_set(tmp_path):
    data = tiny_data()
    train, test = (TensorDataset(part.pixels, part.labels) for part in (data.train, data.test))
    train.classes = ["none", "rows", "columns"]
    outcome = tiny_search(tmp_path, data=(train, test))
    assert bcnet.run.finished.FinishedRun.read(tmp_path, TinyNetwork).input.class_names == ("none", "rows", "columns")
    assert outcome.result.networks["original"].test_images == 30


def test_validation_images_score_candidates_and_all_training_images_train(tmp_path):
    data = tiny_data()
    held = data.train.subset(range(40))
    source = open_source(TinyNetwork, replace(data, validation=held), image_size=None, seed=0)
    settings = make_settings(model="x", data="y", method=bcnet.Uniform(), training=RECIPE).resolve()
    parts = cut_data(source.data, settings)
    assert not source.data.holds_out
    assert len(parts.training.images) == len(parts.all_training.images) == len(data.train)
    scored = torch.cat([x for part in (parts.validation, parts.fresh) for x, _ in part])
    wanted = source.data.normaliser(held.pixels)
    order, expected = (rows.flatten(1).sum(1).sort().values for rows in (scored, wanted))
    torch.testing.assert_close(order, expected)
    changed = replace(data, validation=data.train.subset(range(1, 41)))
    other = open_source(TinyNetwork, changed, image_size=None, seed=0)
    assert other.data_digest != source.data_digest


@pytest.mark.slow
def test_a_search_with_validation_images_and_batches_in_dicts(tmp_path):
    data = tiny_data()
    train, test = (TensorDataset(part.pixels, part.labels) for part in (data.train, data.test))
    method = bcnet.Trainings(effort="medium")
    outcome = tiny_search(tmp_path / "images", data=(train, test, test), method=method)
    assert outcome.result.networks["searched"].test_images == 30
    finished = read_settings(tmp_path / "images").method
    tiny_search(tmp_path / "held", data=(train, test), method=method)
    assert finished.networks < read_settings(tmp_path / "held").method.networks, "longer trainings, so fewer of them"

    def named(batch):
        x, y = torch.utils.data.default_collate(batch)
        return {"pixel_values": x, "labels": y}

    loaders = tiny_loaders()
    parts = (loaders.train, loaders.validation, loaders.test)
    same = [DataLoader(p.dataset, p.batch_size, shuffle=p is loaders.train, collate_fn=named) for p in parts]
    runs = [
        tiny_search(tmp_path / name, data=tuple(d), method=method) for name, d in (("pairs", parts), ("dicts", same))
    ]
    assert runs[0].result.networks == runs[1].result.networks
    assert read_settings(tmp_path / "pairs").method.networks == finished.networks, "all training images are trained on"
    broken = DataLoader(loaders.train.dataset, 12, collate_fn=lambda batch: {"x": torch.zeros(12, 1, 8, 8)})
    with pytest.raises(DataError, match=r"a dict of inputs and of targets called label or .*; got a dict of x: give"):
        tiny_search(tmp_path / "broken", data=(broken, *parts[1:]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda d: (d.train, d.test), "same images every time.*or give items for validation"),
        (lambda d: (1, 2, 3), r"data must be a name, .*; got \(int, int, int\)"),
        (lambda d: 3, "data must be a name, a bcnet.DataSet, a datasets.DatasetDict, or .*; got int"),
        (lambda d: tiny_loaders(validation=d.train), "the validation loader must give its images in one order"),
        (lambda d: tiny_loaders(validation=DataLoader(d.train.dataset)), "got others on a second reading"),
        (lambda d: tiny_loaders(test=3), "the test loader must be a DataLoader, or batches with a length; got int"),
        (lambda d: tiny_loaders(validation=[(torch.zeros(2, 1, 8, 8), torch.zeros(2))]), "got torch.float32"),
        (lambda d: tiny_loaders(validation=[torch.zeros(2, 1, 8, 8)]), "pairs of float images"),
        (lambda d: tiny_loaders(validation=[]), "must give at least one batch an epoch"),
    ],
)
def test_data_that_cannot_be_used_is_refused(tmp_path, data, message):
    with pytest.raises(DataError, match=message):
        tiny_search(tmp_path / "run", data=data(tiny_loaders()))
    assert not (tmp_path / "run").exists()


def half_loss(outputs, targets):
    return 0.5 * functional.cross_entropy(outputs, targets)


def confidence(outputs, targets):
    return outputs.softmax(dim=1).gather(1, targets[:, None])[:, 0]


@pytest.mark.slow
def test_a_teacher_of_ones_own_teaches_all_but_the_original(tmp_path):
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 3))
    plain = tiny_search(tmp_path / "plain", method=bcnet.Uniform())
    taught = tiny_search(tmp_path / "taught", method=bcnet.Uniform(), teacher=teacher)
    files = {name: [(tmp_path / run / f"{name}.safetensors") for run in ("plain", "taught")] for name in WEIGHTS[1:]}
    same = {name: torch.equal(*(load_file(file)["head.weight"] for file in pair)) for name, pair in files.items()}
    assert same == {"original": True, "uniform": False, "final": False}
    by_original = tiny_search(
        tmp_path / "by the original", method=bcnet.Uniform(), training={"distillation": bcnet.train.Distillation()}
    )
    ends = [load_file(run.run_dir / "uniform.safetensors")["head.weight"] for run in (taught, by_original)]
    assert not torch.equal(*ends), "another teacher teaches something else"
    settings = read_settings(tmp_path / "taught")
    assert settings.training.distillation == bcnet.train.Distillation()
    assert settings.teacher.startswith("torch.nn.modules.container.Sequential ")
    assert tiny_search(tmp_path / "taught", method=bcnet.Uniform(), teacher=teacher).result == taught.result
    assert plain.result.networks["original"] == taught.result.networks["original"]
    with torch.no_grad():
        teacher[0].weight += 1
    with pytest.raises(RunError, match="teacher"):
        tiny_search(tmp_path / "taught", method=bcnet.Uniform(), teacher=teacher)


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        (3, "a teacher must be a trained nn.Module; got int"),
        (nn.Flatten(), r"must give logits of the model's shape, \(2, 3\); got \(2, 64\)"),
        (nn.Conv2d(3, 4, 1), "runs on the inputs of the model; Conv2d failed with RuntimeError"),
    ],
)
def test_teachers_that_do_not_do(tmp_path, teacher, message):
    with pytest.raises(RecipeError, match=message):
        tiny_search(tmp_path / "run", teacher=teacher)
    assert not (tmp_path / "run").exists()


def test_a_teacher_is_for_classification(tmp_path):
    some = TensorDataset(torch.rand(48, 1, 8, 8), (torch.rand(48, 3) > 0.5).float())
    loaders = tuple(DataLoader(some, 12) for _ in range(3))
    with pytest.raises(RecipeError, match=r"is for classification; got the task 'multi-label.*': leave it out"):
        tiny_search(tmp_path / "run", data=loaders, task=bcnet.tasks.MultiLabel(3), teacher=TinyNetwork())
    assert not (tmp_path / "run").exists()


def width_sum(widths):
    return float(sum(widths))


@pytest.mark.slow
def test_a_loss_of_ones_own_trains_and_is_part_of_the_run(tmp_path):
    plain = tiny_search(tmp_path / "plain")
    own = tiny_search(tmp_path / "own", loss=half_loss)
    assert (own.result.own.loss, own.result.own.score) == (f"{__name__}.half_loss", None)
    assert weights(tmp_path / "own") != weights(tmp_path / "plain")
    with pytest.raises(RunError, match=r"loss is 'test_api_own.half_loss' there and None here"):
        tiny_search(tmp_path / "own")
    same = tiny_search(tmp_path / "same", loss=nn.CrossEntropyLoss())
    torch.testing.assert_close(same.network.state_dict(), plain.network.state_dict())
    with pytest.raises(RunError, match="another configuration: loss is"):
        tiny_search(tmp_path / "same", loss=nn.CrossEntropyLoss(label_smoothing=0.1))


def test_a_score_for_each_image_is_averaged_and_scored_again(tmp_path):
    found = tiny_search(tmp_path, method=supernet_method(score=confidence)).result.search
    assert found.metric == "own"
    assert 0 < found.score < 1
    low, high = found.fresh_interval
    assert low < found.fresh_score < high


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": nn.CrossEntropyLoss}, r"got the class CrossEntropyLoss: make a value of it, CrossEntropyLoss\(\)"),
        ({"reporter": print}, "reporter must be a value of a subclass of bcnet.Reporter; got <built-in"),
        ({"reporter": Reporter}, "reporter must be a value of a subclass of bcnet.Reporter; got <class"),
        ({"loss": lambda outputs, targets: outputs.sum()}, r"loss needs a name .* or give tags=\{'loss':"),
        ({"loss": 3}, r"loss must be a function of \(outputs, targets\); got int"),
        ({"loss": width_sum}, r"loss must be a function of \(outputs, targets\); got one of \(widths\)"),
        ({"method": bcnet.BCNet(score=lambda a, b, c: 0)}, r"score must be a function of .*; got one of \(a, b, c\)"),
        ({"loss": half_loss, "tags": {"loss": ""}}, "the tag of loss must be some text"),
        ({"tags": {"metric": "x"}}, r"tags are for loss and score; got \['metric'\]"),
        ({"start": "scrap"}, "start must be one of scratch, original, pretrained, supernet; got 'scrap'"),
    ],
)
def test_functions_that_cannot_be_used_are_refused(tmp_path, options, message):
    with pytest.raises(RecipeError, match=message):
        tiny_search(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_tag_names_what_has_no_name(tmp_path):
    lines = tiny_search(tmp_path, loss=lambda o, t: half_loss(o, t), tags={"loss": "half"}).result.own
    assert lines.loss == "half"


def test_progress_can_be_asked_for(tmp_path, capsys):
    tiny_search(tmp_path, progress=True)
    shown = capsys.readouterr().out
    assert "supernet: 8 steps" in shown
    assert "searched: done in" in shown


def prepared(model=TinyNetwork, **options):
    source = open_source(model, tiny_data(), image_size=None, seed=0, pretrained=options.pop("pretrained", None))
    method = supernet_method(training=RECIPE, epochs=RECIPE.epochs)
    values = {"model": source.model_name, "data": "d", "limits": {"macs": 0.5}, "method": method, "training": RECIPE}
    settings = make_settings(**values | options).resolve()
    return settings, prepare(source, settings)


def context_of(folder, model, **options):
    settings, workload = prepared(model, **options)
    folder.mkdir(exist_ok=True)
    directory = RunDirectory(folder, settings)
    return Context(settings, workload, directory, Reporter(), ProcessGroup(), stages=stages_of(settings))


def test_fine_tuning_from_a_supernet_starts_from_the_first_channels(tmp_path):
    here = context_of(tmp_path, TinyNetwork(), start="supernet")
    supernet = here.output("supernet")[0]
    with torch.no_grad():
        for parameter in supernet.parameters():
            parameter.add_(1)
    network = starting_network(here, (3, 5))
    torch.testing.assert_close(network.second[0].weight, supernet.network.second[0].weight[:5, :3])
    batches = here.workload.all_training.epoch(derived_generator(0, "calibration"))
    means = torch.stack([network.first[0](x).mean((0, 2, 3)) for x, _ in batches])
    torch.testing.assert_close(network.first[1].running_mean, means.mean(0))


def test_fine_tuning_from_trained_weights_starts_from_the_most_important_channels(tmp_path):
    given = TinyNetwork()
    for start in ("pretrained", "original"):
        here = context_of(tmp_path / start, given, start=start)
        owner = given if start == "pretrained" else here.output("original").network
        first, second = by_importance(owner, here.workload.space)
        expected = owner.second[0].weight[list(second[:5])][:, list(first[:3])]
        network = starting_network(here, (3, 5))
        torch.testing.assert_close(network.second[0].weight, expected)
        assert torch.equal(network.head.bias, owner.head.bias)
        assert network.first[1].num_batches_tracked > 0, "with statistics"


@pytest.mark.slow
def test_candidates_and_networks_from_the_original_share_its_one_training(tmp_path):
    first = tiny_search(tmp_path / "scratch", method=bcnet.Trainings(searcher="random", networks=2), start="scratch")
    recorder = Recorder()
    options = {"method": bcnet.Trainings(searcher="random", networks=3), "start": "original"}
    tuned = tiny_search(tmp_path / "tuned", reuse=[tmp_path / "scratch"], reporter=recorder, **options)
    assert "original" not in recorder.stages, "what it starts from is nothing to the original"
    assert first.result.networks["original"].test == tuned.result.networks["original"].test
    alone = tiny_search(tmp_path / "alone", **options)
    assert alone.found.evaluations == tuned.found.evaluations
    assert alone.result.model_copy(update={"seconds": tuned.result.seconds}) == tuned.result
    for stop in (("original", 3), ("trials", 2), ("Uniform", 3), ("searched", 7)):
        with pytest.raises(StoppedError):
            tiny_search(tmp_path / "stopped", reporter=Recorder(stop), **options)
    tiny_search(tmp_path / "stopped", **options)
    for name in ("original", "uniform", "final"):
        mine, theirs = ((tmp_path / run / f"{name}.safetensors").read_bytes() for run in ("stopped", "alone"))
        assert mine == theirs, name


@pytest.mark.slow
def test_parts_of_a_run_train_the_original_that_they_start_from(tmp_path):
    options = {"method": bcnet.Trainings(effort="small")}
    found = tiny_search(tmp_path / "run", until="widths", **options)
    assert (tmp_path / "run" / "original.safetensors").exists()
    recorder = Recorder()
    outcome = tiny_search(tmp_path / "run", reporter=recorder, **options)
    assert outcome.widths == found.widths
    assert {"original", "trials"} & set(recorder.stages) == {"trials"}, "replayed, and no original trained again"
    given = {"method": bcnet.Given(found.widths), "budget": None, "start": "original", "until": "network"}
    trained = tiny_search(tmp_path / "one", **given)
    assert (tmp_path / "one" / "original.safetensors").exists()
    for name, tensor in trained.network.state_dict().items():
        torch.testing.assert_close(tensor, outcome.network.state_dict()[name])


@pytest.mark.slow
def test_what_final_networks_start_from_is_reported(tmp_path):
    scratch = tiny_search(tmp_path / "scratch")
    tuned = tiny_search(tmp_path / "tuned", start="supernet")
    assert (scratch.result.start, tuned.result.start) == ("scratch", "supernet")
    assert tuned.widths == scratch.widths
    assert weights(tmp_path / "tuned")["supernet"] != weights(tmp_path / "scratch")["supernet"]  # of another run
    identity = [read_tensors(tmp_path / name / "supernet.safetensors", o) for name, o in _supernets(tmp_path)]
    torch.testing.assert_close(identity[0][0], identity[1][0])
    with pytest.raises(RunError, match="start is 'supernet' there and 'scratch' here"):
        tiny_search(tmp_path / "tuned")


def _supernets(folder):
    for name in ("scratch", "tuned"):
        yield name, {"run": read_settings(folder / name).fingerprint(), "stage": "supernet"}


@pytest.mark.slow
def test_pretrained_weights_are_where_the_supernet_starts(tmp_path):
    torch.manual_seed(5)
    given = TinyNetwork()
    save_file(given.state_dict(), tmp_path / "given.safetensors")
    for source in (given.state_dict(), tmp_path / "given.safetensors", str(tmp_path / "given.safetensors")):
        _, workload = prepared(pretrained=source)
        torch.testing.assert_close(workload.model.state_dict(), given.state_dict())
    outcome = tiny_search(tmp_path / "run", pretrained=given.state_dict(), start="pretrained")
    assert outcome.result.start == "pretrained"
    with pytest.raises(RunError, match="pretrained is"):
        tiny_search(tmp_path / "run", pretrained=TinyNetwork().state_dict(), start="pretrained")


def test_a_last_layer_for_other_classes_is_left_out_and_said(tmp_path):
    given = TinyNetwork()
    given.head = nn.Linear(12, 1000)
    source = open_source(TinyNetwork, tiny_data(), image_size=None, seed=0, pretrained=given.state_dict())
    assert source.notes == ("pretrained weights of another shape are left out: head.weight, head.bias",)
    assert torch.equal(source.model.first[0].weight, given.first[0].weight)
    assert source.model.head.out_features == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s | {"neck.weight": torch.zeros(1)}, "has no tensor 'neck.weight'"),
        (lambda s: {k: v for k, v in s.items() if k != "head.bias"}, "there is none named 'head.bias'"),
        (lambda s: {k: torch.zeros(7) for k in s}, "tensors have another shape"),
        (lambda s: "nowhere.safetensors", "a file or a state dict; got nowhere.safetensors, which is not there"),
    ],
)
def test_weights_of_another_network_are_refused(change, message):
    with pytest.raises(ModelError, match=message):
        open_source(TinyNetwork, tiny_data(), image_size=None, seed=0, pretrained=change(TinyNetwork().state_dict()))


@pytest.mark.slow
def test_a_pruned_network_starts_from_the_channels_that_the_pruner_kept(tmp_path, monkeypatch):
    pytest.importorskip("torch_pruning", reason="the extra 'magnitude' is not installed")
    here = context_of(tmp_path, TinyNetwork, method=bcnet.Pruned(), start="original")
    owner, widths = here.output("original").network, here.output("pruning").widths
    first = tuple(reversed(range(8)))[: widths[0]]  # no order that importance would give
    second = tuple(reversed(range(12)))[: widths[1]]
    monkeypatch.setitem(here._outputs, "pruning", Pruned(widths, (first, second)))
    network = SearchedStage()._start(here, widths)
    torch.testing.assert_close(network.second[0].weight, owner.second[0].weight[list(second)][:, list(first)])
    usual = context_of(tmp_path / "usual", TinyNetwork, method=bcnet.Balanced(), start="original")
    uniform, same = (UniformStage()._start(context, widths).state_dict() for context in (here, usual))
    for name, tensor in uniform.items():
        assert torch.equal(tensor, same[name]), name
    document = here.directory.read("pruned.json")
    here.directory.write("pruned.json", {"widths": list(widths), "kept": [[0, 8], [0]]})  # of eight channels
    with pytest.raises(RunError, match="holds no widths of this network: start a new run"):
        PruningStage().load(here)
    here.directory.write("pruned.json", {"widths": document["widths"], "kept": document["kept"]})
    assert PruningStage().load(here).widths == widths


class Lazily(TinyNetwork):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.LazyLinear(3)


@pytest.mark.parametrize("model", [Lazily, Lazily()])
def test_a_network_that_cannot_be_copied_is_refused_before_anything_is_written(tmp_path, model):
    with pytest.raises(TraceError, match="head has none yet: run it once on an example"):
        tiny_search(tmp_path / "run", model=model)
    assert not (tmp_path / "run").exists()
