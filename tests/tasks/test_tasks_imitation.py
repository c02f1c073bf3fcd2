"""Imitation: the original's outputs are the targets, and it stays as it is."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file
from tiny_job import RECIPE, Notes, Recorder, StoppedError, TinyNetwork, tiny_data, tiny_search
from torch import nn
from torch.nn.functional import kl_div, log_softmax, normalize, softmax
from torch.utils.data import DataLoader, Subset, TensorDataset

import bcnet
from bcnet import BCNet, Budget
from bcnet.data.decoding import decode_all
from bcnet.data.images import IMAGENET
from bcnet.data.unlabelled import PIXELS, input_loaders, load_inputs, read_inputs
from bcnet.errors import DataError, ModelError, RecipeError
from bcnet.run.imitation import ImitatedBatches, Teacher
from bcnet.tasks import Imitation, task_described, task_named
from bcnet.tasks.imitation import names_of
from bcnet.train import NetworkLearner, train

MEAN, STD = IMAGENET
OPTIONS = {"training": RECIPE.with_changes({"epochs": 2}), "progress": False, "space": {"num_choices": 4}}
SMALL = bcnet.Trainings(networks=8, epochs=1)


def trained():
    """A tiny network that has learnt the stripes."""
    torch.manual_seed(0)
    network = TinyNetwork()
    data = tiny_data()
    pairs = DataLoader(TensorDataset(data.normaliser(data.train.pixels), data.train.labels), 16)

    class Batches:
        def __len__(self):
            return len(pairs)

        def epoch(self, generator):
            return iter(pairs)

    train(NetworkLearner(network), Batches(), RECIPE.with_changes({"epochs": 12}), seed=0)
    return network.eval()


@pytest.fixture(scope="module")
def original():
    return trained()


def inputs(count=80, seed=1):
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def search(model, data, folder, **changes):
    return bcnet.search(
        model, data, Budget(macs=0.5), folder, **({"task": "imitation", "method": SMALL} | OPTIONS | changes)
    )


@pytest.mark.slow
def test_inputs_alone_narrow_a_trained_network(original, tmp_path):
    before = {name: tensor.clone() for name, tensor in original.state_dict().items()}
    notes = Notes()
    result = search(original, inputs(200), tmp_path / "run", reporter=notes)
    networks = result.result.networks
    assert networks["original"].test["agreement"] == 100, "it agrees with itself"
    for name, tensor in original.state_dict().items():
        assert torch.equal(tensor, before[name]), "the user's network stays as it is"
    assert 0 <= result.test.figures["agreement"] <= 100
    assert "top1" not in result.test.figures, "nothing is known of labels"
    kept = load_file(tmp_path / "run" / "original.safetensors")
    assert all(torch.equal(kept[name], tensor) for name, tensor in before.items()), "the original is never trained"
    assert "imitated as logits" in " ".join(notes.notes)


@pytest.mark.slow
def test_labels_are_for_the_test_alone(original, tmp_path):
    """Other labels change what is measured, and nothing that is trained."""
    data = tiny_data()
    other = bcnet.DataSet.from_tensors(
        (data.train.pixels, (data.train.labels + 1) % 3), (data.test.pixels, (data.test.labels + 1) % 3), name="other"
    )
    plain = bcnet.DataSet.from_tensors(
        (data.train.pixels, data.train.labels), (data.test.pixels, data.test.labels), name="other"
    )
    # Held-out images are cut class by class: a permutation of the classes leaves every cut as it is.
    results = [search(original, d, tmp_path / str(n)) for n, d in enumerate((plain, other))]
    mine, theirs = results
    assert mine.test.figures["top1"] != theirs.test.figures["top1"]
    assert mine.test.figures["agreement"] == theirs.test.figures["agreement"]
    assert all(torch.equal(a, b) for a, b in zip(mine.network.parameters(), theirs.network.parameters(), strict=True))


def test_a_stopped_imitation_ends_as_one_that_never_stopped(original, tmp_path):
    whole = search(original, inputs(120), tmp_path / "whole")
    with pytest.raises(StoppedError):
        search(original, inputs(120), tmp_path / "stopped", reporter=Recorder(("trials", 3)))
    again = search(original, inputs(120), tmp_path / "stopped")
    assert again.widths == whole.widths
    for a, b in zip(again.network.parameters(), whole.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_supernet_imitates_too(original, tmp_path):
    method = BCNet(population=4, generations=2, parents=2)
    assert search(original, inputs(200), tmp_path / "run", method=method).network is not None


class Several(nn.Module):
    """A nest of outputs: a map, an embedding, probabilities, and integers that nobody can learn."""

    def __init__(self):
        super().__init__()
        self.body = TinyNetwork()
        self.map = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        features = self.body.first(x)
        logits = self.body.head(self.body.second(features).mean((2, 3)))
        return {"map": self.map(features), "rest": (normalize(logits), softmax(logits, 1), logits.argmax(1))}


def test_every_output_of_a_nest_is_imitated_by_its_kind(tmp_path):
    torch.manual_seed(0)
    notes = Notes()
    result = search(Several(), inputs(120), tmp_path / "run", reporter=notes)
    assert "values and embedding and probabilities" in " ".join(notes.notes)
    assert result.result.networks["original"].test["agreement"] == pytest.approx(100, abs=1e-3)


def task(kind, temperature=2.0):
    return Imitation(kind, temperature)


def targets(*outputs):
    return names_of(outputs)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["logits", "probabilities", "values", "embedding"]))
def test_the_original_has_no_loss_and_agrees_and_others_lose(seed, kind):
    generator = torch.Generator().manual_seed(seed)
    y, z = (torch.randn(6, 5, generator=generator) for _ in range(2))
    if kind == "probabilities":
        y, z = y.softmax(1), z.softmax(1)
    if kind == "embedding":
        y, z = normalize(y), normalize(z)
    known = task(kind)
    assert known.loss(y, targets(y)) == pytest.approx(0, abs=1e-5)
    assert known.summarize(known.figures(y, targets(y)))[0]["agreement"] == pytest.approx(100, abs=1e-4)
    assert known.loss(z, targets(y)) > 0
    assert known.score(z, targets(y)).shape == (6,)
    assert known.score(z, targets(y)).mean() == pytest.approx(-known.loss(z, targets(y)))


def test_losses_are_those_of_their_equations():
    generator = torch.Generator().manual_seed(0)
    y, z = (torch.randn(6, 5, generator=generator) for _ in range(2))
    softened = 9 * kl_div(log_softmax(z / 3, 1), softmax(y / 3, 1), reduction="batchmean")
    assert task("logits", 3.0).loss(z, targets(y)) == pytest.approx(float(softened), rel=1e-5)
    expected = kl_div(log_softmax(z, 1), softmax(y, 1), reduction="batchmean")
    assert task("probabilities").loss(softmax(z, 1), targets(softmax(y, 1))) == pytest.approx(float(expected), rel=1e-4)
    off = (z - y).square().mean() / (y - y.mean(0)).square().mean()
    assert task("values").loss(z, targets(y)) == pytest.approx(float(off), rel=1e-5)
    assert task("embedding").loss(z, targets(y)) == pytest.approx(1 - float(torch.cosine_similarity(z, y).mean()))


def test_agreement_of_values_is_the_share_of_variance():
    generator = torch.Generator().manual_seed(0)
    y, z = (torch.randn(40, 3, generator=generator) for _ in range(2))
    value, error = (part["agreement"] for part in task("values").summarize(task("values").figures(z, targets(y))))
    expected = 1 - (z - y).square().sum() / (y - y.mean(0)).square().sum()
    assert value == pytest.approx(100 * float(expected), rel=1e-4)
    assert 0 < float(error) < 100


def test_loaders_keep_what_they_say_and_are_checked_as_ever():
    """Names of classes stay; a test loader that shuffles is refused, of inputs alone too."""
    plain = DataLoader(TensorDataset(inputs(), torch.arange(80) % 3), 16)
    given = bcnet.Loaders(plain, plain, plain, class_names=("a", "b", "c"), name="mine")
    found = input_loaders(given)
    assert (found.class_names, found.name) == (given.class_names, "mine")
    assert torch.equal(found.held_out[1], torch.arange(80) % 3)
    batches = [inputs(8, seed) for seed in range(3)]
    assert input_loaders(bcnet.Loaders(batches, batches, batches)).held_out[0].shape == (24, 1, 8, 8)
    shuffled = DataLoader(TensorDataset(inputs()), 16, shuffle=True)
    with pytest.raises(DataError, match="the test loader must give its images in one order"):
        input_loaders((plain, plain, shuffled))


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        (torch.tensor([[0.2, 0.8], [1.0, 0.0]]), "probabilities"),
        (torch.tensor([[0.6, 0.8], [-1.0, 0.0]]), "embedding"),
        (torch.tensor([[0.2, 0.9], [0.5, 0.1]]), "values"),
        (torch.tensor([[-2.0, 3.0], [0.5, 0.1]]), "logits"),
        (torch.tensor([[-2.0], [0.5]]), "values"),
        (torch.zeros(2, 3, 4, 4), "values"),
    ],
)
def test_kinds_are_read_off_the_outputs(output, kind):
    assert Imitation().of(nn.Identity(), output, output, output[:1]).kinds == (kind,)


def test_tasks_are_told_by_name_and_by_their_description():
    known = task_named("imitation:outputs_are=logits+values,temperature=3")
    assert known == Imitation("logits+values", 3.0)
    assert task_described(known.description) == known


class Drawing(TinyNetwork):
    def forward(self, x):
        return super().forward(x) + torch.rand(())


class Counting(TinyNetwork):
    def forward(self, x):
        return super().forward(x).argmax(1)


class Broken(TinyNetwork):
    def forward(self, x):
        return super().forward(x) * math.nan


class WithItsLoss(TinyNetwork):
    """Returns one number for the batch beside its output, as networks with a loss of their own."""

    def forward(self, x):
        logits = super().forward(x)
        return logits, logits.square().mean()


@pytest.mark.parametrize(
    ("model", "data", "changes", "error", "message"),
    [
        (WithItsLoss(), inputs(), {}, ModelError, r"returns \(\) as output 1 .*wrap it in a module"),
        (Drawing(), inputs(), {}, ModelError, "two in eval mode"),
        (Counting(), inputs(), {}, ModelError, "returns float tensors"),
        (Broken(), inputs(), {}, ModelError, "gave NaN or infinity"),
        (TinyNetwork(), inputs(39), {}, DataError, "at least 40 inputs; got 39"),
        (TinyNetwork(), inputs()[:, :, :2, :2], {}, bcnet.errors.TraceError, "shape"),
        (TinyNetwork(), inputs(), {"start": "scratch"}, RecipeError, "starts from the weights"),
        (TinyNetwork(), inputs(), {"task": "imitation:outputs_are=maps"}, RecipeError, "an output must be one of"),
        (TinyNetwork(), inputs(), {"task": Imitation("values+values")}, ModelError, "1 output tensors; got 2"),
        ("resnet20", inputs(), {}, RecipeError, "comes without weights"),
        (TinyNetwork(), inputs(), {"method": bcnet.Pruned("taylor")}, RecipeError, "gradient.*criterion=magnitude"),
        (TinyNetwork(), DataLoader(TensorDataset(inputs()), 8, shuffle=True), {}, DataError, "shuffle=False"),
    ],
)
def test_what_cannot_be_imitated_is_refused_in_one_sentence(model, data, changes, error, message, tmp_path):
    with pytest.raises(error, match=message):
        bcnet.search(model, data, Budget(macs=0.5), tmp_path / "run", **({"task": "imitation"} | OPTIONS | changes))
    assert not (tmp_path / "run").exists()


class Peaks(nn.Module):
    """Sigmoids near 0 with one higher place, as networks of pitch or key points give them: their variance is small."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU())
        self.head = nn.Linear(16 * 16, 40)

    def forward(self, x):
        scores = self.head(self.body(x).flatten(1))
        return torch.sigmoid(8 * (scores - scores.amax(1, keepdim=True)) - 1)


def test_outputs_of_small_variance_are_imitated_by_default(tmp_path):
    torch.manual_seed(0)
    teacher = Peaks().eval()
    changes = {"epochs": 8, "precision": "fp32"}
    found = search(teacher, inputs(600), tmp_path, training=changes, method=bcnet.Uniform())
    recipe = bcnet.Run.open(tmp_path).settings.training
    assert (recipe.optimizer, recipe.lr) == ("adamw", 3e-3)
    assert found.test.figures["agreement"] > 30  # R^2; at a rate that trains from scratch it is far below 0


def test_a_network_that_a_training_has_ruined_is_named(tmp_path):
    torch.manual_seed(0)
    ruinous = {"epochs": 2, "precision": "fp32", "optimizer": "sgd-nesterov", "lr": 0.1}
    found = search(Peaks().eval(), inputs(200), tmp_path, training=ruinous, method=bcnet.Uniform())
    assert found.test.figures["agreement"] < 0
    said = "No better than a constant output: uniform, searched; lower the learning rate, or train for longer."
    assert said in (tmp_path / "report.html").read_text()


def test_inputs_of_any_form_are_the_same_inputs(tmp_path):
    x = inputs(90)
    np.save(tmp_path / "x.npy", x.numpy())
    np.savez(tmp_path / "x.npz", inputs=x.numpy())
    forms = [x, x.numpy(), read_inputs(str(tmp_path / "x.npy")), read_inputs(str(tmp_path / "x.npz"))]
    forms += [DataLoader(TensorDataset(x, torch.arange(90)), 7), list(x), list(x.numpy()), TensorDataset(x)]
    forms += [Subset(list(x), range(90)), [(part,) for part in x]]
    held = [input_loaders(form).held_out[0] for form in forms]
    assert held[0].shape == (9, 1, 8, 8)
    assert all(torch.equal(part, held[0]) for part in held)


def test_an_array_of_another_byte_order_has_the_same_values(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(200.0).reshape(50, 4).astype(">f4"))
    found = input_loaders(read_inputs(str(tmp_path / "x.npy")))
    assert sorted(torch.cat([x for x, _ in found.train])[:, 0].tolist())[0] % 4 == 0


def test_files_that_hold_no_one_array_are_refused(tmp_path):
    np.savez(tmp_path / "two.npz", a=np.zeros(3), b=np.zeros(3))
    np.save(tmp_path / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "text.npy").write_text("no array")
    for name, message in (("two.npz", "one array; got 2"), ("object.npy", "is neither"), ("text.npy", "is neither")):
        with pytest.raises(DataError, match=message):
            read_inputs(str(tmp_path / name))
    np.save(tmp_path / "dates.npy", np.zeros((50, 4), "M8[s]"))
    np.save(tmp_path / "words.npy", np.zeros((50, 4), "U3"))
    np.save(tmp_path / "one.npy", np.zeros(()))
    for name in ("dates", "words", "one"):
        with pytest.raises(DataError, match=rf"inputs must be an array of numbers \(inputs, ...\); .*{name}.npy' has"):
            read_inputs(str(tmp_path / f"{name}.npy"))
    whole = (tmp_path / "two.npz").read_bytes()
    for name, content in (("cut", whole[:-30]), ("changed", whole.replace(b"NUMPY", b"NUMPX"))):
        (tmp_path / f"{name}.npz").write_bytes(content)
        with pytest.raises(DataError, match=rf"{name}.npz"):
            read_inputs(str(tmp_path / f"{name}.npz"))
    with pytest.raises(DataError, match=r"or a folder of images; .* is neither: .* No such file"):
        read_inputs(str(tmp_path / "missing.npy"))


def draw_pictures(folder, count, mode="RGB"):
    """Images of 12 by 10 pixels, a third of them in a folder below."""
    generator = np.random.default_rng(0)
    (folder / "more").mkdir(parents=True)
    for number in range(count):
        place = folder / "more" if number % 3 == 0 else folder
        pixels = generator.integers(0, 256, (10, 12, 3) if mode == "RGB" else (10, 12), dtype=np.uint8)
        Image.fromarray(pixels, mode).save(place / f"{number:03}.png")
    (folder / "notes.txt").write_text("no image")


@pytest.mark.parametrize("pixels", [*PIXELS])
def test_a_folder_of_images_needs_no_classes(pixels, tmp_path):
    draw_pictures(tmp_path / "pictures", 60)
    found = load_inputs(str(tmp_path / "pictures"), 8, pixels)
    every = torch.cat([x for loader in (found.train, found.validation, found.test) for x, _ in loader])
    assert every.shape == (60, 3, 8, 8)
    scale = {"imagenet": lambda x: (x - torch.tensor(MEAN)) / torch.tensor(STD), "0..1": lambda x: x}
    scale |= {"-1..1": lambda x: 2 * x - 1, "0..255": lambda x: 255 * x}
    whole = [decode_all([("", file)], 8)[0] for file in (tmp_path / "pictures").rglob("*.png")]
    wanted = torch.stack([scale[pixels](image.permute(1, 2, 0) / 255).permute(2, 0, 1) for image in whole])
    orders = [x[x.flatten(1).sum(1).argsort()] for x in (every, wanted)]
    torch.testing.assert_close(*orders, rtol=1e-4, atol=1e-4)
    assert f"60 images in {tmp_path}" in found.notes[0]
    assert "resized to 8 pixels" in found.notes[0]


def test_grey_images_have_one_channel_unless_they_are_scaled_as_imagenets(tmp_path):
    draw_pictures(tmp_path / "pictures", 40, "L")
    shapes = [load_inputs(str(tmp_path / "pictures"), None, p).held_out[0].shape for p in ("0..1", "imagenet")]
    assert shapes == [(4, 1, 10, 12), (4, 3, 10, 12)]


def test_a_search_with_a_folder_of_images_says_how_they_become_inputs(original, tmp_path):
    draw_pictures(tmp_path / "pictures", 80, "L")
    data, task = f"inputs:{tmp_path / 'pictures'}", "imitation:pixels=0..1"
    outcome = search(original, data, tmp_path / "run", task=task, options={"image_size": 8})
    assert outcome.network is not None
    finished = bcnet.run.finished.FinishedRun.read(tmp_path / "run", TinyNetwork)
    assert finished.input.shape == (1, 8, 8)
    assert finished.input.preparation.startswith("the shorter side resized to 8 pixels")
    pixels = torch.randint(256, (2, 1, 8, 8))
    takes_bytes = finished.input.normalise(outcome.network, of_bytes=True)
    torch.testing.assert_close(takes_bytes(pixels), outcome.network.eval()(pixels / 255))
    next((tmp_path / "pictures").glob("*.png")).unlink()
    with pytest.raises(bcnet.errors.RunError, match="data"):
        search(original, data, tmp_path / "run", task=task, options={"image_size": 8})


def test_folders_that_hold_no_inputs_are_refused(tmp_path):
    draw_pictures(tmp_path / "few", 9)
    with pytest.raises(DataError, match="at least 40 inputs; got 9 images in"):
        load_inputs(str(tmp_path / "few"), 8, "0..1")
    with pytest.raises(RecipeError, match=r"^pixels must be one of imagenet, .*; got '0..2'$"):
        task_named("imitation:pixels=0..2")


def test_a_network_that_lacks_some_of_its_weights_is_not_imitated(tmp_path):
    draw_pictures(tmp_path / "pictures", 60)
    grey = bcnet.models.create("resnet_digits", num_classes=10, in_channels=1, image_size=8).build()
    save_file(grey.state_dict(), tmp_path / "grey.safetensors")
    arguments = {"pretrained": tmp_path / "grey.safetensors", "options": {"image_size": 8}}
    message = r"has all its weights; features.0.weight has shape \(16, 1, 3, 3\) in the file and \(16, 3, 3, 3\) in the"
    with pytest.raises(ModelError, match=message):
        search("resnet_digits", f"inputs:{tmp_path / 'pictures'}", tmp_path / "run", **arguments)
    assert not (tmp_path / "run").exists()


def test_loaders_of_inputs_alone_need_no_labels(original, tmp_path):
    parts = [DataLoader(TensorDataset(inputs(64, seed)), 16) for seed in range(3)]
    assert search(original, tuple(parts), tmp_path / "run").network is not None


def test_the_teacher_answers_the_very_inputs_that_are_trained_on(original):
    class Augmented:
        def __len__(self):
            return 2

        def epoch(self, generator):
            return ((torch.randn(4, 1, 8, 8, generator=generator), torch.zeros(4)) for _ in range(2))

    for x, y in ImitatedBatches(Augmented(), Teacher(original, Imitation())).epoch(torch.Generator().manual_seed(3)):
        torch.testing.assert_close(y["output 0"], original(x))


class Counted(nn.Module):
    """Counts the inputs that a network has answered."""

    def __init__(self, network):
        super().__init__()
        self.network = network
        self.register_buffer("answered", torch.zeros(()))

    def forward(self, x):
        self.answered += len(x)
        return self.network(x)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = TinyNetwork()
        self.right = TinyNetwork()

    def forward(self, a, b):
        return self.left(a) + self.right(b)


def test_several_inputs_have_names_as_a_whole_or_item_by_item(tmp_path):
    torch.manual_seed(0)
    a, b = inputs(90), inputs(90).flip(0)
    whole, items = {"a": a, "b": b.numpy()}, [{"a": x, "b": y} for x, y in zip(a, b, strict=True)]
    first, second = (input_loaders(form).held_out[0] for form in (whole, items))
    assert torch.equal(first["a"], second["a"])
    assert torch.equal(first["b"], second["b"])
    loaders = input_loaders(whole)
    assert ImitatedBatches(loaders.training_batches(8), Teacher(Pair(), Imitation())).answers_once
    found = search(Pair(), whole, tmp_path / "run")
    assert found.network(a, b).shape == (90, 3)


def test_pictures_are_no_inputs_before_they_are_prepared():
    with pytest.raises(DataError, match="got Image for item 0: convert them, or give their folder, inputs:PATH"):
        input_loaders([Image.new("L", (8, 8))] * 50)


def test_inputs_and_labels_in_a_list_are_no_two_inputs():
    assert input_loaders([inputs(90), torch.arange(90)]) is None
    assert input_loaders([{"image": x, "label": 0} for x in inputs(90)]) is None
    assert input_loaders({"image": inputs(90), "label": torch.arange(90)}) is None
    assert input_loaders({"train": inputs(90), "test": inputs(90)}) is None


@pytest.mark.parametrize("layout", [True, False])
def test_inputs_that_stay_the_same_are_answered_once(original, layout):
    loaders = input_loaders(inputs(200))
    teacher = Teacher(Counted(original), Imitation())
    batches = ImitatedBatches(replace(loaders, channels_last=layout).training_batches(16), teacher)
    generator = torch.Generator().manual_seed(3)
    assert batches.answers_once
    counted = teacher._network.answered.item()  # to look at what it gives
    for _ in range(3):
        answered = [(x, y["output 0"]) for x, y in batches.epoch(generator)]
        assert sum(len(x) for x, _ in answered) == 160
        for x, y in answered:
            torch.testing.assert_close(y, original(x))
    assert teacher._network.answered.item() - counted == 160


def test_answers_that_take_too_much_memory_are_given_every_time(original, monkeypatch):
    loaders = input_loaders(inputs(200))
    batches = loaders.training_batches(16)
    room = 160 * original(inputs(1)).nbytes
    for most, once in ((room, True), (room - 1, False)):
        monkeypatch.setattr(bcnet.run.imitation, "_MOST_BYTES", most)
        imitated = ImitatedBatches(batches, Teacher(original, Imitation()))
        assert imitated.answers_once is once
        for x, y in imitated.epoch(torch.Generator()):
            torch.testing.assert_close(y["output 0"], original(x))


def test_answers_that_are_no_row_for_each_input_are_given_every_time(original):
    class Transposed(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = original

        def forward(self, x):
            return self.network(x).T

    batches = ImitatedBatches(input_loaders(inputs(200)).training_batches(16), Teacher(Transposed(), Imitation()))
    assert not batches.answers_once
    for x, y in batches.epoch(torch.Generator()):
        torch.testing.assert_close(y["output 0"], original(x).T)


def test_images_that_a_folder_holds_are_answered_once(tmp_path):
    draw_pictures(tmp_path / "pictures", 60)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).eval()
    loaders = load_inputs(str(tmp_path / "pictures"), 8, "0..1")
    batches = ImitatedBatches(loaders.training_batches(16), Teacher(network, Imitation()))
    assert batches.answers_once
    for x, y in batches.epoch(torch.Generator()):
        torch.testing.assert_close(y["output 0"], network(x))


def test_inputs_by_name_are_for_this_task(tmp_path):
    np.save(tmp_path / "x.npy", inputs().numpy())
    with pytest.raises(DataError, match="task='imitation'"):
        tiny_search(tmp_path / "run", data=f"inputs:{tmp_path / 'x.npy'}")


def test_a_function_that_loads_weights_gives_a_trained_network(original, tmp_path):
    def loaded():
        network = TinyNetwork()
        for norm in network.modules():
            if isinstance(norm, nn.BatchNorm2d):
                norm.num_batches_tracked.zero_()  # as converters leave them: they look untrained
        network.load_state_dict({k: v for k, v in original.state_dict().items() if "batches" not in k}, strict=False)
        return network

    outcome = search(loaded, inputs(80), tmp_path / "loaded", method=bcnet.Uniform())
    kept = load_file(tmp_path / "loaded" / "original.safetensors")
    assert torch.equal(kept["head.weight"], original.head.weight)
    assert outcome.network is not None
    with pytest.raises(RecipeError, match="comes without weights: give pretrained="):
        search(TinyNetwork, inputs(80), tmp_path / "drawn", method=bcnet.Uniform())


class Reader(nn.Module):
    """A network that reads columns one by one, as for text in pictures: `(columns, batch, symbols)`, and a summary."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 8, 1))
        self.cells = nn.LSTM(8, 6, bidirectional=True)
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        columns = self.body(x).mean(2).permute(2, 0, 1)
        read, _ = self.cells(columns)
        return self.head(read), columns.mean(0)


@given(st.integers(2, 12))
@settings(max_examples=8)
def test_outputs_whose_batch_is_not_their_first_dimension_are_imitated(size):
    torch.manual_seed(0)
    network = Reader().eval()
    x = inputs(size)  # of 8 columns: with 8 inputs no shape tells which is which
    task = Imitation().of(network, network(x[:2]), network(x[:2]), network(x[:1]))
    assert (task.batch_dims, task.kinds[0]) == ("1+0", "values")
    read, summary = network(x)
    targets = Teacher(network, task)(x)
    torch.testing.assert_close(targets["output 0"], read.transpose(0, 1))
    torch.testing.assert_close(targets["output 1"], summary)
    assert task.score((read, summary), targets).shape == (size,)
    other = read.clone()
    other[:, 1] += 1  # worse for the second input alone
    worse = task.score((other, summary), targets) < task.score((read, summary), targets)
    assert worse.tolist() == [number == 1 for number in range(size)]
    assert ImitatedBatches(input_loaders(inputs(100)).training_batches(8), Teacher(network, task)).answers_once


def test_a_reader_of_columns_is_narrowed_by_imitation(tmp_path):
    torch.manual_seed(0)
    outcome = bcnet.search(
        Reader().eval(),
        inputs(100),
        Budget(macs=0.7),
        tmp_path,
        method=SMALL,
        task="imitation",
        **OPTIONS | {"training": RECIPE.with_changes({"epochs": 2, "clip_norm": 0.5, "lr": 0.005})},
    )
    assert outcome.network.eval()(inputs(3))[0].shape == (8, 3, 5)
