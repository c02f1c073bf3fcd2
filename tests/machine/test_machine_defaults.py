import ctypes
import os
import subprocess
import sys

import pytest
import torch
from tiny_job import Recorder, StoppedError, TinyNetwork, supernet_method
from tiny_job import tiny_supernet_search as tiny_search
from torch import nn
from typer.testing import CliRunner

from bcnet.cli.app import app
from bcnet.errors import RecipeError, RunError
from bcnet.machine import defaults as machine
from bcnet.machine.allocator import keep_memory
from bcnet.machine.defaults import _learns as learns
from bcnet.machine.defaults import computes_in, layout_of, lives_on, place, precision_of, score_batch, usual_threads
from bcnet.machine.devices import autocast
from bcnet.machine.memory import largest_activation
from bcnet.pytree import channels_last
from bcnet.run.directory import read_settings

MIB = 2**20


@pytest.mark.parametrize(
    ("quota", "threads"),
    [("max 100000", 8), ("150000 100000", 2), ("50000 100000", 1), ("3200000 100000", 8), ("nonsense", 8), (None, 8)],
)
def test_threads_are_no_more_than_a_container_lets_run(tmp_path, monkeypatch, quota, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    if quota is not None:
        (tmp_path / "cpu.max").write_text(quota)
    assert usual_threads(tmp_path) == threads


@pytest.mark.parametrize(
    ("wish", "device", "layout"),
    [
        ("auto", "cpu", "contiguous"),
        ("auto", "cuda", "channels_last"),
        ("channels_last", "cpu", "channels_last"),
        ("contiguous", "cuda", "contiguous"),
    ],
)
def test_layout_follows_the_device_unless_it_is_given(wish, device, layout):
    assert layout_of(wish, torch.device(device)) == layout


@pytest.mark.parametrize(
    ("device", "free", "lives"),
    [("cuda", 4 * MIB, True), ("cuda", 4 * MIB - 1, False), ("cuda", None, True), ("cpu", 0, True)],
)
def test_data_lives_on_the_device_where_it_takes_a_quarter_of_it(device, free, lives):
    assert lives_on(torch.device(device), MIB, free) == lives


@pytest.mark.parametrize(
    ("wish", "largest", "avx512", "amx", "precision"),
    [
        ("auto", 16384, True, False, "bf16"),
        ("auto", 16383, True, False, "fp32"),
        ("auto", 16384, False, False, "fp32"),
        ("auto", 0, False, True, "bf16"),
        ("fp32", 16384, True, True, "fp32"),
        ("bf16", 0, False, False, "bf16"),
    ],
)
def test_cpus_take_bf16_where_it_pays(monkeypatch, wish, largest, avx512, amx, precision):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert precision_of(wish, torch.device("cpu"), largest) == precision


class Complex(TinyNetwork):
    """A network with an operator that has no form in bf16."""

    def forward(self, x):
        kept = self.first(x)
        return self.head(self.second(torch.complex(kept, kept).abs()).mean((2, 3)))


class Broken(TinyNetwork):
    def forward(self, x):
        raise ValueError("never")


def test_a_network_that_does_not_run_in_bf16_is_found():
    x, cpu = torch.randn(2, 1, 8, 8), torch.device("cpu")
    network = Complex()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    assert not computes_in("bf16", network, x, cpu)
    assert computes_in("fp32", network, x, cpu)
    assert computes_in("bf16", TinyNetwork(), x, cpu)
    assert computes_in("bf16", Broken(), x, cpu)  # tracing says what is wrong with it
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


CONVOLUTIONS = [  # a layer, the size of its input, and whether it is one of those that bf16 gets wrong
    (lambda: nn.Conv2d(8, 8, 3, 2, 1), (8, 1, 1), True),
    (lambda: nn.Conv2d(8, 8, 3, 2, 1), (8, 2, 2), False),
    (lambda: nn.Conv2d(8, 8, 3, 2, 1), (8, 16, 3), False),
    (lambda: nn.Conv2d(8, 8, 3, 2, 1), (8, 16, 2), True),
    (lambda: nn.Conv2d(8, 8, (3, 1), (2, 1)), (8, 16, 1), False),
    (lambda: nn.Conv2d(8, 8, 3, 1, 1), (8, 1, 1), False),
    (lambda: nn.Conv2d(8, 8, 3, 3, 1), (8, 2, 2), True),
    (lambda: nn.Conv1d(8, 8, 9, 4, 4), (8, 3), True),
    (lambda: nn.Conv1d(8, 8, 9, 4, 4), (8, 4), False),
    (lambda: nn.Conv3d(8, 8, 3, 2, 1), (8, 4, 4, 4), True),
    (lambda: nn.Conv3d(8, 8, 3, 1, 1), (8, 4, 4, 4), False),
    (lambda: nn.ConvTranspose2d(8, 8, 3, 2, 1), (8, 1, 1), True),
    (lambda: nn.ConvTranspose2d(8, 8, 2, 2), (8, 1, 1), False),
    (lambda: nn.ConvTranspose2d(8, 8, 2, 2), (8, 6, 1), True),
    (lambda: nn.Conv2d(8, 8, 3, 1, 2, dilation=2, groups=8), (8, 8, 29), True),
    (lambda: nn.Conv2d(8, 8, 3, 1, 2, dilation=2, groups=8), (8, 8, 28), False),
    (lambda: nn.Conv2d(8, 8, 3, 1, (1, 2), dilation=(1, 2), groups=8), (8, 8, 40), False),
    (lambda: nn.Conv2d(8, 8, 3, 1, 2, dilation=2, groups=4), (8, 8, 29), True),
    (lambda: nn.Conv2d(8, 8, 3, 1, 2, dilation=2, groups=4), (8, 8, 28), False),
    (lambda: nn.Conv2d(8, 8, 3, 1, 2, dilation=2), (8, 8, 40), False),
    (lambda: nn.ConvTranspose2d(8, 8, 3, 1, 2, dilation=2, groups=2), (8, 8, 40), True),
    (lambda: nn.Conv2d(8, 8, 3, 1, 1, groups=8), (8, 8, 40), False),
]


@pytest.mark.parametrize(("make", "size", "wrong"), CONVOLUTIONS)
def test_convolutions_that_bf16_gets_wrong_are_found_without_computing_in_it(monkeypatch, make, size, wrong):
    x, cpu = torch.randn(4, *size), torch.device("cpu")
    computed = []
    monkeypatch.setattr(
        machine, "_learns", lambda precision, *rest: computed.append(precision) or learns("fp32", *rest)
    )
    monkeypatch.setattr(torch.cpu, "_is_avx512_supported", lambda: True)
    assert computes_in("bf16", make(), x, cpu) is not wrong
    assert computed == (["fp32"] if wrong else ["fp32", "bf16"])
    assert computes_in("fp32", make(), x, cpu)
    monkeypatch.setattr(torch.cpu, "_is_avx512_supported", lambda: False)
    assert computes_in("bf16", make(), x, cpu)


@pytest.mark.parametrize(("make", "size", "wrong"), [case for case in CONVOLUTIONS if not case[2]])
def test_what_is_computed_in_bf16_is_right(make, size, wrong):
    torch.manual_seed(0)
    layer, x, cpu = place(make(), None, "channels_last"), channels_last(torch.randn(4, *size)), torch.device("cpu")
    back = torch.randn_like(layer(x))
    found = []
    for precision in ("fp32", "bf16"):
        layer.zero_grad()
        with autocast(precision, cpu):
            output = layer(x)
        output.float().backward(back)
        found.append((output.float(), layer.weight.grad.clone()))
    for exact, lower in zip(*found, strict=True):
        assert (exact - lower).norm() < 0.02 * exact.norm()


def test_bf16_that_was_asked_for_is_refused_where_the_network_does_not_compute_in_it(tmp_path):
    with pytest.raises(RecipeError, match=r"precision bf16 is for networks that compute in it.*take fp32 or auto"):
        tiny_search(tmp_path / "run", model=Complex, method="uniform", training={"precision": "bf16"})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("model", "precision"), [(Complex, "fp32"), (TinyNetwork, "bf16")])
def test_such_a_network_is_searched_in_fp32_where_others_take_bf16(tmp_path, monkeypatch, model, precision):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    tiny_search(tmp_path, model=model, method="uniform", training={"precision": "auto"})
    assert read_settings(tmp_path).training.precision == precision


@pytest.mark.parametrize(("largest", "batch"), [(0, 2048), (65536, 2048), (3211264, 256), (1 << 40, 64)])
def test_scores_come_in_batches_that_fit(largest, batch):
    assert score_batch(largest) == batch


def test_the_largest_activation_is_found_and_the_hooks_are_gone():
    model = TinyNetwork()
    assert largest_activation(model, torch.zeros(2, 1, 8, 8)) == 8 * 8 * 8 * 4
    assert not any(part._forward_hooks for part in model.modules())


def test_the_environment_decides_how_many_operators_are_kept(monkeypatch):
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    assert machine.set_primitive_cache_capacity() == machine.PRIMITIVES
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == str(machine.PRIMITIVES)
    assert machine.set_primitive_cache_capacity(5) == 5
    assert machine.set_primitive_cache_capacity() == 5


# ---------------------------------------------------------------- allocator


@pytest.fixture
def no_choice(monkeypatch):
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)


class Library:
    """A C library that remembers what it is told; the large threshold is one it may refuse."""

    def __init__(self, refuses=()):
        self.told = []
        self.gnu_get_libc_version = object()
        self.mallopt = lambda option, value: self.told.append((option, value)) or int((option, value) not in refuses)


@pytest.mark.parametrize(
    ("refuses", "told"),
    [((), [(-3, 1 << 30), (-1, 1 << 30)]), (((-3, 1 << 30),), [(-3, 1 << 30), (-3, 32 << 20), (-1, 1 << 30)])],
)
def test_glibc_is_told_to_keep_memory(monkeypatch, no_choice, refuses, told):
    library = Library(refuses)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    assert keep_memory()
    assert library.told == told


def test_another_c_library_is_left_alone(monkeypatch, no_choice):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not keep_memory()


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "LD_PRELOAD"])
def test_what_the_environment_chose_is_left_alone(monkeypatch, no_choice, name):
    monkeypatch.setenv(name, "1000")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("the allocator was touched"))
    assert not keep_memory()


@pytest.mark.slow
def test_importing_the_package_leaves_the_allocator_alone():
    script = """
import ctypes
class Forbidden:
    def __getattr__(self, name):
        raise AssertionError(name)
real = ctypes.CDLL
ctypes.CDLL = lambda name, *a, **k: Forbidden() if name is None else real(name, *a, **k)
import bcnet.machine.allocator, bcnet.machine.defaults
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


# ---------------------------------------------------------------- in a run


class Notes(Recorder):
    def __init__(self, stop=None):
        super().__init__(stop)
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def test_what_was_left_open_is_stored_told_and_kept(tmp_path, monkeypatch):
    recorder = Notes(("supernet", 1))
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, reporter=recorder)
    settings = read_settings(tmp_path)
    assert (settings.options.layout, settings.options.score_batch_size, settings.options.threads) == (
        "contiguous",
        2048,
        1,
    )
    (line,) = [note for note in recorder.notes if note.startswith("Machine:")]
    assert "cpu, 1 CPU thread, fp32, supernet weights contiguous, scores in batches of 2,048, " in line
    monkeypatch.setattr("bcnet.run.settings.score_batch", lambda largest: 64)
    monkeypatch.setattr("bcnet.run.settings.usual_threads", lambda: 64)
    tiny_search(tmp_path)
    assert read_settings(tmp_path) == settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layout": "channels_last"}, "options.layout is 'contiguous' there and 'channels_last' here"),
        ({"score_batch_size": 8}, "options.score_batch_size is 2048 there and 8 here"),
    ],
)
def test_choices_of_a_run_are_part_of_it(tmp_path, changes, message):
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, reporter=Notes(("supernet", 1)))
    with pytest.raises(RunError, match=message):
        tiny_search(tmp_path, options=changes)


def test_layouts_give_the_same_scores_up_to_rounding(tmp_path):
    first, second = (
        tiny_search(tmp_path / layout, method=supernet_method(score="loss"), options={"layout": layout})
        for layout in ("contiguous", "channels_last")
    )
    one, two = (outcome.found.evaluations[0] for outcome in (first, second))
    assert one.widths == two.widths
    assert one.score == pytest.approx(two.score, rel=1e-3)


def test_an_unknown_allocator_is_refused(tmp_path):
    search = ["search", "--model", "resnet_digits", "--data", "digits", "--budget", "0.5", "--allocator", "jemalloc"]
    outcome = CliRunner().invoke(app, [*search, "--out", str(tmp_path / "run")])
    assert outcome.exit_code == 2
    assert "--allocator must be keep or system; got 'jemalloc'" in outcome.stderr
    assert list(tmp_path.iterdir()) == []
