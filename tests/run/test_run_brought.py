"""Data, losses and weights as people bring them: nothing is silent, and mistakes end with one message."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_job import RECIPE, Notes, Recorder, TinyNetwork, tiny_data, tiny_search
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

import bcnet
from bcnet.data.decoding import decode
from bcnet.data.digits import digits, scattered_digits
from bcnet.data.images import Normaliser
from bcnet.data.loaders import tensors_behind
from bcnet.data.named import load
from bcnet.errors import DataError, ModelError, RunError
from bcnet.run.callables import name_of
from bcnet.run.pretrained import load_pretrained
from bcnet.run.workload import _check_batch


class Focal(nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha
        self.inner = nn.Module()
        self.inner.gamma = 2.0

    def forward(self, outputs, targets):
        return (torch.as_tensor(self.alpha)[targets] * nn.functional.cross_entropy(outputs, targets)).mean()


@pytest.mark.parametrize("kind", [list, tuple, torch.tensor, np.array, lambda alpha: {"of": alpha}])
def test_losses_are_told_apart_by_all_they_keep(kind):
    same = [name_of("loss", Focal(kind([1.0, 1.0])), None) for _ in range(2)]
    assert same[0] == same[1] != name_of("loss", Focal(kind([2.0, 1.0])), None)
    other = Focal(kind([1.0, 1.0]))
    other.inner.gamma = 3.0
    assert name_of("loss", other, None) != same[0]


def loaders(train, batch=16, **options):
    def loader(count, seed):
        x = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
        return DataLoader(TensorDataset(x, torch.arange(count) % 3), 16)

    return DataLoader(TensorDataset(*train), batch, **options), loader(48, 1), loader(24, 2)


def training(count=48, low=0, classes=3):
    x = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return x, torch.arange(count) % classes + low


class AfterPooling(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.head = nn.Conv2d(1, 8, 3), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.a(x).mean((2, 3)))))


class WithAuxiliary(AfterPooling):
    """Returns a second head's logits in training mode."""

    def forward(self, x):
        logits = super().forward(x)
        return (logits, logits) if self.training else logits


def test_labels_are_compared_with_the_logits_before_those_of_auxiliary_heads(tmp_path):
    with pytest.raises(DataError, match=r"labels must be classes of the network, from 0 to 2; got 0 to 3"):
        tiny_search(tmp_path / "run", model=WithAuxiliary, data=loaders(training(classes=4)))


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (training(classes=4), r"labels must be classes of the network, from 0 to 2; got 0 to 3 in one batch"),
        (training(low=-1), r"from 0 to 2; got -1 to 1 in one batch"),
        (training(count=49), r"more than one value for each channel in training; got a batch of 1: .*drop_last=True"),
    ],
)
def test_mistakes_of_the_training_loader_are_told(tmp_path, train, message):
    with pytest.raises(DataError, match=message):
        tiny_search(tmp_path / "run", model=AfterPooling, data=loaders(train))


@pytest.mark.parametrize("part", ["validation", "test"])
def test_what_is_no_number_is_told_with_its_place(tmp_path, part):
    parts = dict(zip(("train", "validation", "test"), loaders(training()), strict=True))
    parts[part].dataset.tensors[0][19, 0, 3, 3] = torch.nan
    with pytest.raises(DataError, match=rf"number 3 of batch 1 of the {part} loader .* holds NaN or infinity"):
        tiny_search(tmp_path / "run", data=tuple(parts.values()))


def test_other_labels_behind_a_loader_are_another_run(tmp_path):
    tiny_search(tmp_path / "run", data=loaders(training()))
    x, labels = training()
    with pytest.raises(RunError, match=r"data is .* there and .* here"):
        tiny_search(tmp_path / "run", data=loaders((x, labels.roll(1))))


class Hidden(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        return training()[0][index], index % 3


def test_what_a_loader_hides_is_said(tmp_path):
    data = (DataLoader(Hidden(), 16), *loaders(training())[1:])
    notes = Notes()
    tiny_search(tmp_path / "run", data=data, method=bcnet.Uniform(), reporter=notes)
    assert any("the train loader's are not visible" in note for note in notes.notes)
    assert tensors_behind(data[0]) is None
    whole = TensorDataset(*training())
    assert not torch.equal(tensors_behind(DataLoader(Subset(whole, [1, 2])))[0], tensors_behind(whole)[0][:2])


WRAPPED = {
    "DataParallel": lambda state: {f"module.{name}": value for name, value in state.items()},
    "compiled in DataParallel": lambda state: {f"module._orig_mod.{name}": value for name, value in state.items()},
    "a training checkpoint": lambda state: {"epoch": 3, "state_dict": {f"model.{n}": v for n, v in state.items()}},
    "counters of thop": lambda state: state | {"total_ops": torch.zeros(1), "first.total_params": torch.zeros(1)},
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_checkpoints_are_read_as_trainers_leave_them(kind, tmp_path):
    torch.manual_seed(0)
    source = TinyNetwork()
    checkpoint = WRAPPED[kind](source.state_dict())
    torch.save(checkpoint, tmp_path / "weights.pth")
    for given in (checkpoint, tmp_path / "weights.pth"):
        network = TinyNetwork()
        load_pretrained(network, given)
        for name, value in network.state_dict().items():
            assert torch.equal(value, source.state_dict()[name]), name


def test_a_module_is_a_source_of_weights_and_a_pickle_of_anything_is_none(tmp_path):
    source, network = TinyNetwork(), TinyNetwork()
    load_pretrained(network, source)
    assert torch.equal(network.head.weight, source.head.weight)
    torch.save(source, tmp_path / "whole.pt")
    with pytest.raises(ModelError, match=r"must be tensors alone; .* load it where you trust it"):
        load_pretrained(network, tmp_path / "whole.pt")
    with pytest.raises(ModelError, match="got int for 'epoch': give one of its entries 'optimizer'"):
        load_pretrained(network, {"epoch": 3, "optimizer": {"lr": 0.1}})
    with pytest.raises(ModelError, match="pretrained weights must have names; got 0 for one"):
        load_pretrained(network, dict(enumerate(source.state_dict().values())))
    with pytest.raises(ModelError, match=r"must be plain tensors; got a sparse one for 'head\.weight': make it dense"):
        load_pretrained(network, source.state_dict() | {"head.weight": source.head.weight.detach().to_sparse()})
    state = source.state_dict() | {"head.bias": torch.full((3,), torch.nan)}
    with pytest.raises(ModelError, match=r"finite numbers in every tensor; got NaN or infinity in head\.bias"):
        load_pretrained(network, state)


@pytest.mark.parametrize("kind", [torch.float16, torch.float64])
def test_weights_of_another_precision_are_refused_by_name(tmp_path, kind):
    with pytest.raises(ModelError, match=rf"weights in float32; got {kind} in first\.0\.weight: call model\.float"):
        tiny_search(tmp_path / "run", model=TinyNetwork().to(kind))
    assert not (tmp_path / "run").exists()


def frozen():
    return TinyNetwork().requires_grad_(False)


def without_data():
    with torch.device("meta"):
        return TinyNetwork()


def for_inference():
    with torch.inference_mode():
        return TinyNetwork()


class OfTwo(TinyNetwork):
    def forward(self, x):
        return super().forward(x.view(2, *x.shape[1:]))


def exported():
    return torch.export.export(TinyNetwork(), (torch.zeros(2, 1, 8, 8),)).module()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (frozen, r"none of whose weights requires gradients: call model\.requires_grad_"),
        (without_data, r"first\.0\.weight is on the meta device, which has none: make it on the CPU"),
        (for_inference, r"first\.0\.weight was made under torch\.inference_mode\(\)"),
        (OfTwo, r"any number of inputs at once; OfTwo took 2 and failed on 3 .*x\.size\(0\)"),
        (exported, r"took 2 and failed on 3 .*pass the module that it was exported from"),
    ],
)
@pytest.mark.parametrize("given", ["module", "function"])
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's own, of copies of exported programs
def test_networks_that_no_search_can_train_are_refused(tmp_path, make, message, given):
    with pytest.raises(ModelError, match=message):
        tiny_search(tmp_path / "run", model=make() if given == "module" else make)
    assert not (tmp_path / "run").exists()


def test_a_network_of_pairs_takes_any_number_of_them():
    class OfPairs(TinyNetwork):
        def forward(self, x):
            return super().forward(x.view(-1, 2, *x.shape[1:]).flatten(0, 1))

    _check_batch(OfPairs(), torch.zeros(2, 1, 8, 8))


def test_gradients_that_are_switched_off_do_not_matter(tmp_path):
    with torch.no_grad():
        off = tiny_search(tmp_path / "off")
    on = tiny_search(tmp_path / "on")
    assert (off.widths, off.result.networks) == (on.widths, on.result.networks)
    assert torch.is_grad_enabled()


class StartsAnother(Recorder):
    """Starts a second search in a thread while the first is at work, and looks whether it begins."""

    def __init__(self, folder):
        super().__init__()
        self.thread = threading.Thread(target=tiny_search, args=(folder,), kwargs={"seed": 1})
        self.folder = folder
        self.began = None

    def note(self, text):
        if self.began is None:
            self.thread.start()
            self.thread.join(timeout=5)  # a search that does not wait has its folder by then
            self.began = self.folder.exists()


@pytest.mark.slow
def test_searches_in_threads_wait_for_each_other(tmp_path):
    reporter = StartsAnother(tmp_path / "beside")
    tiny_search(tmp_path / "first", reporter=reporter)
    assert reporter.began is False
    reporter.thread.join()
    beside = bcnet.Run.open(tmp_path / "beside").result
    alone = tiny_search(tmp_path / "alone", seed=1).result
    assert beside.networks == alone.networks


def test_transparent_pixels_show_white(tmp_path):
    drawn = np.zeros((4, 4, 4), np.uint8)
    drawn[:, 2:, 3] = 255
    Image.fromarray(drawn).save(tmp_path / "icon.png")
    found = np.asarray(decode("icon", tmp_path / "icon.png"))
    assert (found[:, :2] == 255).all()
    assert (found[:, 2:] == 0).all()
    assert decode("icon", tmp_path / "icon.png").mode == "RGB"


def test_a_damaged_test_image_is_met_before_training_and_may_be_mended(tmp_path):
    rng = np.random.default_rng(0)
    for part, count in (("train", 16), ("val", 4)):
        for number, name in enumerate("abc"):
            folder = tmp_path / "images" / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = (rng.random((12, 12, 3)) * 80 + 80 * number).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.jpg")
    file = tmp_path / "images" / "val" / "b" / "3.jpg"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"b/3\.jpg is not"):
        load(f"imagenet:{tmp_path / 'images'}", image_size=8)
    file.write_bytes(whole)
    data = load(f"imagenet:{tmp_path / 'images'}", image_size=8)
    assert "shorter side resized to 9 pixels (bilinear), the centre 8x8 cropped" in data.preparation


def image_folder(folder):
    rng = np.random.default_rng(0)
    for number, name in enumerate("abc"):
        (folder / name).mkdir(parents=True)
        for i in range(30):
            pixels = (rng.random((8, 8)) * 80 + 80 * number).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def test_data_may_be_at_another_place_this_time(tmp_path):
    first = image_folder(tmp_path / "one" / "images")
    done = tiny_search(tmp_path / "run", data=f"imagefolder:{first}")
    second = (tmp_path / "two").resolve()
    first.parent.rename(second)
    again = tiny_search(tmp_path / "run", data=f"imagefolder:{second / 'images'}")
    assert again.result == done.result
    notes = Notes()
    tiny_search(
        tmp_path / "other",
        data=f"imagefolder:{second / 'images'}",
        budget=bcnet.Budget(macs=0.4),
        reuse=tmp_path / "run",
        reporter=notes,
    )
    assert any("reused from" in note and "original" in note for note in notes.notes), notes.notes
    tiny_search(
        tmp_path / "third",
        data=f"imagefolder:{second / 'images'}",
        training=RECIPE.with_changes({"epochs": 1}),
        reuse=tmp_path / "run",
        reporter=notes,
    )
    (told,) = [note for note in notes.notes if "Nothing is reused from" in note]
    assert "epochs is 2" in told


def test_statistics_are_those_of_all_pixels_whatever_the_chunks(monkeypatch):
    data = tiny_data()
    whole = Normaliser.of(data.train)
    monkeypatch.setattr("bcnet.data.images._CHUNK_BYTES", 64)
    chunked = Normaliser.of(data.train)
    values = data.train.pixels.double() / 255
    for found in (whole, chunked):
        assert found.mean == pytest.approx((float(values.mean()),))
        assert found.std == pytest.approx((float(values.std(unbiased=False)),))


@pytest.mark.slow
def test_scattered_digits_are_the_digits_drawn_apart():
    plain, scattered = digits(), scattered_digits()
    assert tuple(scattered.image_shape) == (1, 20, 20)
    assert len(scattered.train) == 3 * len(plain.train)
    assert len(scattered.test) == 8 * len(plain.test)
    assert torch.equal(scattered.test.labels[::8], plain.test.labels)
    again = scattered_digits()
    assert torch.equal(scattered.train.pixels, again.train.pixels)
    assert str(scattered) == "scattered_digits: 4,314 training and 2,872 test images (1, 20, 20) of 10 classes"


DECODES = """
import multiprocessing, os, signal, sys, threading
multiprocessing.set_start_method("forkserver")
from bcnet.data import FilePixels
from pathlib import Path
own = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
def stop_workers():  # from their first moment on
    while True:
        for child in own.read_text().split():
            os.kill(int(child), signal.SIGTERM)
threading.Thread(target=stop_workers, daemon=True).start()
pixels = FilePixels(tuple(sorted(Path(sys.argv[1]).rglob("*.png"))), 8, workers=2)
count = 0
for batch in pixels.batches([list(range(i, i + 10)) for i in range(0, 90, 10)]):
    count += len(batch)
print(count)
"""
POOL = """
import multiprocessing, sys
from pathlib import Path
from bcnet.data import FilePixels
def count(folder):
    return len(FilePixels(tuple(sorted(Path(folder).rglob("*.png"))), 8, workers=2)[:])
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(1) as pool:
        print(pool.map(count, [sys.argv[1]])[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
@pytest.mark.parametrize("script", [DECODES, POOL], ids=["forkserver, and SIGTERM to the workers", "in a pool"])
def test_images_are_decoded_however_processes_are_started(tmp_path, script):
    folder = image_folder(tmp_path / "images")
    (tmp_path / "script.py").write_text(script)  # without a main guard, as people write them
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py"), str(folder)], capture_output=True, text=True, timeout=120
    )
    assert (done.stdout.strip(), done.returncode) == ("90", 0), done.stderr
