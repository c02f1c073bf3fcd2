"""Bytes: the peak of activations against a real run's allocations, the size of weights, and budgets on both."""

from itertools import count

import numpy as np
import pytest
import torch
from tiny_job import tiny_data, tiny_search
from torch import nn
from torch.fx import Interpreter
from torch.nn import functional

import bcnet
from bcnet.costs import MEMORY, SIZE, Memory, Size, measure_called, measure_named
from bcnet.errors import BudgetError
from bcnet.models import create
from bcnet.prior.expected_cost import expected_costs
from bcnet.run.status import read_status
from bcnet.space import WidthSpace
from bcnet.supernet import build

LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in ("resnet20", "mobilenetv2")]
FOLDED = ("batch_norm", "relu", "hardtanh", "silu", "sigmoid", "hardswish", "hardsigmoid", "clamp", "gelu")


class Allocations(Interpreter):
    """Runs an exported graph operator by operator, dropping what is not read again, and notes the bytes at each.

    A first run finds the last operator that reads each piece of memory; in a second one, batch norm and activations
    that are the last to read their input write over it. Kernels, memory and its ends are torch's own.
    """

    def __init__(self, program):
        super().__init__(program.graph_module)
        self._program = program
        self._weights = {t.untyped_storage().data_ptr() for t in (*program.state_dict.values(), *self._constants())}
        self._made_by, self._last, self._folding = {}, {}, False

    def peak(self, example):
        """The most bytes at once, without anything folded and folded."""
        found = []
        for self._folding in (False, True):
            self._clock, self._peak, self._maker = count(), 0, {}
            with torch.no_grad():
                self.run(*self._arguments(example), enable_io_processing=False)
            found.append(self._peak)
        return found

    def _constants(self):
        return [t for t in self._program.constants.values() if isinstance(t, torch.Tensor)]

    def _arguments(self, example):
        inputs = {**self._program.state_dict, **self._program.constants}
        return [inputs.get(spec.target, example) for spec in self._program.graph_signature.input_specs]

    def run_node(self, node):
        result = super().run_node(node)
        sources = [n for n in node.all_input_nodes if isinstance(self.env[n], torch.Tensor)]
        now = next(self._clock)
        if node.op == "call_function" and not self._folding:
            for source in sources:
                self._last[self._made_by[source]] = now
        elif operator_of(node) in FOLDED and self._last[self._made_by[sources[0]]] == now:
            result = self.env[sources[0]].copy_(result)
        if isinstance(result, torch.Tensor) and not self._folding:
            there = {address(part) for part in tensors(list(self.env.values()))}
            if address(result) not in there:
                self._maker[address(result)] = node
            self._made_by[node] = self._maker.get(address(result), node)
        live = {address(p): p.untyped_storage().nbytes() for p in tensors([*self.env.values(), result])}
        self._peak = max(self._peak, sum(size for at, size in live.items() if at not in self._weights))
        return result


def address(tensor):
    return tensor.untyped_storage().data_ptr()


def operator_of(node):
    return node.target._schema.name.split("::")[-1] if hasattr(node.target, "_schema") else ""


def tensors(item):
    if isinstance(item, (list, tuple)):
        return [tensor for part in item for tensor in tensors(part)]
    return [item] if isinstance(item, torch.Tensor) else []


def measured(network, example):
    return Allocations(torch.export.export(network.eval(), (example,), strict=False)).peak(example)


class Branches(nn.Module):
    """Views, parts, a branch that is read late, activations that others read too, two outputs."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.third = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        early = functional.relu(self.norm(self.first(x)))
        swished = early * torch.sigmoid(early)
        left, right = self.second(functional.max_pool2d(swished, 2)).chunk(2, dim=1)
        joined = torch.cat([functional.silu(left), self.third(right)], dim=1)
        pooled = torch.cat([early.mean((2, 3)), joined.flatten(2).mean(2)], dim=1)
        return self.head(functional.dropout(pooled, training=self.training)), joined


def narrow(model, example, seed, **options):
    space = WidthSpace.trace(model, example, **options)
    widths = space.sample(torch.Generator().manual_seed(seed))
    return space, widths, build(model, space, widths)


def check_peak(model, example, **options):
    for seed in (0, 1):
        space, widths, network = narrow(model, example, seed, **options)
        apart, folded = measured(network, example)
        expected = Memory(batch=len(example)).values(space, np.array([widths]))[0]
        assert expected == folded, (seed, expected, folded)
        assert folded <= apart


@pytest.mark.parametrize("name", ["resnet_digits", *LARGE])
def test_the_peak_is_that_of_a_real_run(name):
    spec = create(name, 10)
    check_peak(spec.build(), torch.rand(2, *spec.input_size), num_choices=5)


def test_the_peak_of_branches_views_and_late_readers_is_that_of_a_real_run():
    check_peak(Branches(), torch.rand(2, 3, 8, 8), vary_outputs=True)


class Converting(nn.Module):
    """There and back between two kinds of numbers, beside what is converted."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = functional.relu(self.first(x))
        return self.head((x + x.double().to(torch.float32)).mean((2, 3)))


def test_a_conversion_to_other_numbers_takes_memory_of_its_own():
    space = WidthSpace.trace(Converting(), torch.rand(2, 3, 8, 8))
    elements = 8 * 8 * 8
    # The largest moment has what is converted, the copy in other numbers, and the copy back.
    assert MEMORY.values(space, np.array([space.full]))[0] == 4 * 3 * elements


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["squeezenet1_1", "mobilenet_v3_small"],
)
def test_the_peak_of_torchvisions_networks_is_that_of_a_real_run(name):
    spec = create(f"torchvision:{name}", 10)
    check_peak(spec.build(), torch.rand(2, 3, 64, 64), num_choices=4)


def test_no_moment_is_left_out_that_may_be_the_largest():
    space = WidthSpace.trace(create("resnet20", 10).build(), torch.zeros(2, 3, 32, 32))
    assert len(space.live_terms) > 3
    rng = np.random.default_rng(0)
    widths = np.array([[rng.choice(g.choices) for g in space.groups] for _ in range(500)])
    moments = np.stack([terms(widths) for terms in space.live_terms])
    assert (4 * moments.max(axis=0) == MEMORY.values(space, widths)).all()
    assert len(set(moments.argmax(axis=0))) > 2  # which is the largest depends on the widths


def test_bytes_are_those_of_the_element_and_the_batch():
    space = WidthSpace.trace(create("resnet_digits").build(), torch.zeros(2, 1, 8, 8))
    widths = np.array([space.full, space.narrowest])
    fp32 = MEMORY.values(space, widths)
    assert (Memory("int8", 3).values(space, widths) * 4 == 3 * fp32).all()
    assert (Size("fp16").values(space, widths) == 2 * space.cost(widths).params).all()
    assert (SIZE.values(space, widths) == 4 * space.cost(widths).params).all()


@pytest.mark.parametrize(
    ("text", "measure"),
    [
        ("memory", Memory()),
        ("memory:int8", Memory("int8")),
        ("memory:fp32:8", Memory(batch=8)),
        ("size:int8", Size("int8")),
    ],
)
def test_a_measure_with_settings_has_a_name_for_files_and_commands(text, measure):
    assert measure_named(text) == measure_called(measure.description) == measure
    assert measure.description == text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"memory": "3 parsecs"},
            "a limit on memory must be a ratio such as 0.5 or a count such as 320 KiB; got '3 parsecs'",
        ),
        ({"size": 0}, "budget size must be a ratio"),
        ({"memory": b"1"}, "budget memory must be a ratio"),
    ],
)
def test_limits_that_are_none_are_refused(wrong, message):
    with pytest.raises(BudgetError, match=message):
        bcnet.Budget(**wrong)


@pytest.mark.parametrize("text", ["memory:int4", "memory:int8:0", "size:fp32:1", "macs:int8"])
def test_settings_that_a_measure_does_not_take_are_refused(text):
    with pytest.raises(BudgetError):
        measure_named(text)


def test_one_measure_is_limited_once_and_keeps_its_name():
    with pytest.raises(BudgetError, match="limits each measure once; got memory, memory"):
        bcnet.Budget({Memory("int8"): 0.5}, memory=0.5)

    class Mine(bcnet.Measure):
        name, unit = "memory", "bytes"

        def values(self, space, widths):
            return widths.sum(axis=1)

        def constraints(self, space):
            return ()

    with pytest.raises(BudgetError, match="'memory' is a measure of the library; got another one"):
        bcnet.Budget({Mine(): 0.5})


def test_what_is_limited_is_held_by_all_who_choose_widths():
    space = WidthSpace.trace(create("resnet20", 10).build(), torch.zeros(2, 3, 32, 32), num_choices=8)
    budget = bcnet.Budget({Memory("int8"): "32 KiB"}, macs=0.7, size=0.6)
    limits = budget.resolve(space.with_measures(budget).reference)
    assert limits.limits[Memory("int8")] == 32 * 1024
    for widths in (space.uniform(budget), space.balanced(budget)):
        assert limits.admits(space.with_measures(budget).cost(widths))
    wider = space.nearest([1.2 * w for w in space.uniform(budget)])
    assert not limits.admits(space.with_measures(budget).cost(wider))
    found = bcnet.searchers.search_widths(
        space, lambda w: float(sum(w)), budget, searcher=bcnet.searchers.Random(30), seed=1
    )
    assert all(limits.admits(c.cost) for c in found.evaluations)
    assert found.best.cost["memory"] <= 32 * 1024


def test_only_moments_that_may_break_the_limit_are_constraints_of_the_prior():
    space = WidthSpace.trace(create("resnet20", 10).build(), torch.zeros(2, 3, 32, 32))
    full = int(MEMORY.values(space, np.array([space.full]))[0])
    for limit, expected in ((full, 1), (full // 2, 6), (1, len(space.live_terms))):
        assert len(expected_costs(space, bcnet.Budget(memory=limit))) == expected


def test_a_budget_below_the_narrowest_network_says_what_binds():
    space = WidthSpace.trace(create("resnet20", 10).build(), torch.zeros(2, 3, 32, 32))
    advice = r"48 KiB of activations .*raise the limit on memory, or lower min_ratio or multiple_of"
    with pytest.raises(BudgetError, match=advice):
        space.feasible(bcnet.Budget(memory="8 KiB", macs=0.5))


def test_a_search_under_bytes_from_end_to_end(tmp_path):
    outcome = tiny_search(tmp_path, budget=bcnet.Budget(memory=0.6, size="2 KiB"), report=True)
    networks = outcome.result.networks
    most = outcome.found.budget.limits
    assert most[SIZE] == 2048
    for name in ("uniform", "searched"):
        assert networks[name].others["memory"] <= most[MEMORY] < networks["original"].others["memory"]
        assert networks[name].others["size"] == 4 * networks[name].params <= 2048
    example = next(iter(tiny_data().test.pixels.split(2))).float()
    assert measured(outcome.network, example)[1] == 2 * networks["searched"].others["memory"]
    page = (tmp_path / "report.html").read_text()
    assert "0.6x bytes of activations and 2 KiB of weights" in page
    assert "Activations for one input at their peak and weights" in page
    again = tiny_search(tmp_path, budget=bcnet.Budget(memory=0.6, size="2 KiB"))
    assert again.result.networks == networks
    assert bcnet.Run.open(tmp_path).networks["searched"].cost["size"] == networks["searched"].others["size"]
    assert read_status(tmp_path).best is not None
