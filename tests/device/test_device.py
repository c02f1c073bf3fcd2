"""What must hold on a device, on the one that BCNET_DEVICE names: `make test-device DEVICE=cuda`; usually the CPU."""

import copy
import os

import pytest
import torch
from networks import paper_network
from properties import check_path_equals_built, free_widths, tensors
from tiny_job import RECIPE, Recorder, StoppedError, TinyNetwork, tiny_data
from tiny_job import tiny_supernet_search as tiny_search

import bcnet
from bcnet.distributed import ProcessGroup
from bcnet.machine.devices import resolve_precision
from bcnet.models import resnet20
from bcnet.searchers import SupernetEvaluator
from bcnet.space import Side, WidthSpace
from bcnet.supernet import Supernet
from bcnet.supernet.pairs import Pairs
from bcnet.train import Complementary, Recipe, SupernetLearner, accumulate_gradients
from bcnet.train.objective import Objective

DEVICE = os.environ.get("BCNET_DEVICE", "cpu")
ON_GPU = DEVICE != "cpu"
pytestmark = pytest.mark.slow
only_gpu = pytest.mark.skipif(not ON_GPU, reason="of a GPU alone: give BCNET_DEVICE=cuda")


@pytest.fixture(autouse=True)
def _deterministic():
    """Sums in one order, and no TF32: what is compared to the byte is promised with these alone."""
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.backends.cudnn.benchmark = before[1]


def images(count=16, size=32, dtype=torch.float32):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0), dtype=dtype).to(DEVICE)


def labels(count=16):
    return torch.randint(10, (count,), generator=torch.Generator().manual_seed(1)).to(DEVICE)


@pytest.mark.parametrize("name", ["resnet20", "mobilenetv2"])
def test_paths_equal_built_networks_and_costs_an_independent_count(name):
    model, space, x = paper_network(name)
    widths = free_widths(space, torch.Generator().manual_seed(0))
    check_path_equals_built(copy.deepcopy(model).to(DEVICE), space, x.to(DEVICE), widths)


def step_of(device, precision="fp32"):
    torch.manual_seed(0)
    model = resnet20()
    space = WidthSpace.trace(model, torch.zeros(2, 3, 32, 32))
    net = Supernet(model, space).to(device)
    learner = SupernetLearner(net, Complementary())
    recipe = Recipe(lr=0.1, batch_size=16, epochs=1)
    resolved = resolve_precision(precision, torch.device(device))
    objective = Objective(learner, recipe, resolved, images().to(device), labels().to(device))
    terms = learner.plan(torch.Generator().manual_seed(2))
    losses = accumulate_gradients(terms, objective, passes=learner.passes)
    return (
        losses.cpu(),
        {name: p.grad.cpu() for name, p in net.named_parameters() if p.grad is not None},
        learner,
        terms,
    )


def test_a_steps_gradients_are_those_of_the_cpu_and_its_counts_are_level():
    (losses, gradients, learner, terms), (expected, others, *_) = step_of(DEVICE), step_of("cpu")
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-4)
    for name, gradient in gradients.items():
        scale = float(others[name].abs().max()) + 1e-6
        torch.testing.assert_close(gradient / scale, others[name] / scale, rtol=0, atol=5e-3, msg=name)
    learner.count_step(terms)
    assert (learner.counts.spread() == 0).all()


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp16", marks=only_gpu)])
def test_half_precision_comes_near(precision):
    losses, expected = step_of(DEVICE, precision)[0], step_of(DEVICE)[0]
    torch.testing.assert_close(losses, expected, rtol=0.05, atol=0.05)


@only_gpu
def test_tf32_is_near_as_well():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    losses = step_of(DEVICE)[0]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.testing.assert_close(losses, step_of(DEVICE)[0], rtol=0.02, atol=0.02)


def test_pairs_are_their_two_paths():
    torch.manual_seed(0)
    model = resnet20().double()
    x = images(8, dtype=torch.float64)
    space = WidthSpace.trace(model, x.cpu())
    net = Supernet(model, space).to(DEVICE)
    pairs = Pairs.verify(net.network, space, x)
    widths = space.sample(torch.Generator().manual_seed(3))
    complement = space.complement(widths)
    together = pairs.forward(x, widths, complement)
    apart = net(x, widths, Side.LEFT), net(x, complement, Side.RIGHT)
    for one, other in zip(together, apart, strict=True):
        for a, b in zip(tensors(one), tensors(other), strict=True):
            torch.testing.assert_close(a, b)


def test_scores_are_those_of_the_cpu():
    torch.manual_seed(0)
    model = resnet20()
    space = WidthSpace.trace(model, torch.zeros(2, 3, 32, 32))
    net = Supernet(model, space)
    widths = space.sample(torch.Generator().manual_seed(4))
    batches = [(images(64).cpu(), labels(64).cpu())]
    expected = SupernetEvaluator(net, batches, "loss")(widths)
    there = SupernetEvaluator(net.to(DEVICE), [(x.to(DEVICE), y.to(DEVICE)) for x, y in batches], "loss")(widths)
    assert there == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    "precision", ["fp32", pytest.param("bf16", marks=only_gpu), pytest.param("fp16", marks=only_gpu)]
)
def test_a_killed_run_goes_on_bit_identically(tmp_path, precision):
    options = {"options": {"device": DEVICE}, "training": RECIPE.with_changes({"precision": precision})}
    whole = tiny_search(tmp_path / "whole", **options)
    with pytest.raises(StoppedError):
        tiny_search(tmp_path / "killed", reporter=Recorder(("original", 5)), **options)
    resumed = tiny_search(tmp_path / "killed", **options)
    assert resumed.result.networks == whole.result.networks
    for name in ("supernet", "final", "uniform", "original"):
        assert (tmp_path / "killed" / f"{name}.safetensors").read_bytes() == (
            tmp_path / "whole" / f"{name}.safetensors"
        ).read_bytes(), name


def test_what_was_found_there_is_exported_and_loaded_anywhere(tmp_path):
    outcome = tiny_search(tmp_path, report=True, options={"device": DEVICE})
    pytest.importorskip("onnxruntime")
    assert bcnet.export_run(tmp_path, TinyNetwork).difference < 1e-4
    network = bcnet.load(tmp_path, TinyNetwork)
    x = torch.randn(4, 1, 8, 8)
    torch.testing.assert_close(network(x), outcome.network.cpu()(x), rtol=1e-4, atol=1e-4)


def of_two(world: ProcessGroup, folder):
    return tiny_search(folder, data=tiny_data(), options={"device": DEVICE}).widths


def test_two_processes_share_a_device(processes, tmp_path):
    first, second = processes.run(2, of_two, tmp_path / "two")
    assert first == second
