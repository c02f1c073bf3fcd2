"""Steps that a GPU may take faster: tried beside ours, of which the package takes what pays.

A pair of complementary paths is one pass of full width with block-diagonal weights (`bcnet.supernet.pairs`). Where no
channel is on both paths, its shapes are the same for all widths, and which path each channel is on can be an input of
the graph rather than an index: then one graph does for every step. It is run

- as it is, which says what the masks cost;
- compiled, with the sides as inputs, so that no widths are compiled again;
- captured in a CUDA graph, forward and backward of both passes, which takes the host out of the step.

And our step as a run takes it, but with a fused update. All take the same widths, none of them full, and both passes of
a step see the batch that stays on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from bcnet.machine.defaults import memory_format
from bcnet.machine.devices import autocast
from bcnet.machine.timing import prepare_nothing
from bcnet.space import Widths
from bcnet.space.narrowing import tensors_of
from bcnet.supernet import Supernet
from bcnet.supernet.pairs import Pairs, UnpairableError
from bcnet.train import Complementary, Recipe
from bcnet.train.optimizer import make_optimizer
from bcnet.train.step import Term
from benchmarks.speed_turns import Call, Figure, Pace, in_turns
from benchmarks.speed_workloads import Steps, Variant, Workload

OURS = "ours"
FUSED = "fused update"
FIXED = "sides as inputs"
COMPILED = "sides as inputs, compiled"
CAPTURED = "sides as inputs, in a CUDA graph"
_BEFORE_CAPTURE = 3  # steps on a stream of their own: what is made once is made then


class FixedPairs(Pairs):
    """Pairs of widths of which none is full: one graph for all of them."""

    def sides(self, left: Widths) -> Tensor:
        """Which channels are on the RIGHT path, of all groups one after the other: bools `(channels,)`."""
        pairs = zip(left, self._space.groups, strict=True)
        return torch.cat([torch.arange(group.max_width) >= width for width, group in pairs])

    def by_sides(self, x: Tensor, sides: Tensor) -> tuple[Tensor, Tensor]:
        """What `forward` gives for the widths of `sides`."""
        of_groups = sides.split([group.max_width for group in self._space.groups])
        tensors = tensors_of(self._network)
        weights = {name: self._masked(name, tensors[name], of_groups) for name in self._layouts if name in tensors}
        output: Tensor = torch.func.functional_call(self._network, weights, (x,))
        left, right = output.chunk(2, dim=1)
        return left, right

    def _masked(self, name: str, tensor: Tensor, of_groups: Sequence[Tensor]) -> Tensor:
        sided: list[Tensor] = []
        for d, dim in enumerate(self._layouts[name]):
            if self._outputs.get(name) == d:
                along = torch.arange(2 * tensor.shape[d], device=tensor.device) >= tensor.shape[d]
                tensor = torch.cat([tensor, tensor], dim=d)
            elif dim[0].group is None:
                continue
            else:
                parts = [
                    of_groups[s.group].repeat_interleave(s.per_channel)  # type: ignore[index]
                    for s in dim
                ]
                along = torch.cat(parts)
            sided.append(along.view([-1 if e == d else 1 for e in range(tensor.ndim)]))
        return tensor if len(sided) < 2 else tensor * (sided[0] == sided[1])


class FixedSteps:
    """Training steps of four paths in two passes of one graph each, and an update."""

    def __init__(self, work: Workload, variant: Variant) -> None:
        network = Supernet(work.fresh(variant), work.space).network
        self.network: nn.Module = network.train()
        self._pairs = FixedPairs(network, work.space)
        self._precision = variant.precision
        self._images = work.images.contiguous(memory_format=memory_format(variant.images))
        self._labels = work.labels
        self._sides = torch.stack([self._pairs.sides(work.space.narrowest)] * 2).to(work.device)  # (passes, channels)
        recipe = Recipe(lr=1e-3, batch_size=work.batch, epochs=1, precision=variant.precision)
        self._optimizer = make_optimizer(network, recipe)
        self._loss: Callable[[Tensor], Tensor] = self._loss_of
        self._graph: torch.cuda.CUDAGraph | None = None

    def compiled(self, backend: str = "inductor") -> FixedSteps:
        """The same, its passes compiled once for all widths."""
        self._loss = torch.compile(self._loss_of, fullgraph=True, dynamic=False, backend=backend)
        return self

    def captured(self) -> FixedSteps:
        """The same, its gradients from a CUDA graph."""
        other = torch.cuda.Stream()
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            for _ in range(_BEFORE_CAPTURE):
                self._add_gradients()
        torch.cuda.current_stream().wait_stream(other)
        self._optimizer.zero_grad(set_to_none=True)  # the graph makes them, and fills them anew each time
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._add_gradients()
        return self

    def take(self, terms: Sequence[Term]) -> None:
        """One step on the widths of complementary terms."""
        for row, term in zip(self._sides, terms, strict=True):
            row.copy_(self._pairs.sides(term.paths[0].widths), non_blocking=True)
        if self._graph is not None:
            self._graph.replay()
        else:
            self._optimizer.zero_grad(set_to_none=True)
            self._add_gradients()
        self._optimizer.step()

    def _add_gradients(self) -> None:
        for sides in self._sides:
            self._loss(sides).backward()

    def _loss_of(self, sides: Tensor) -> Tensor:
        """Half of the losses of both paths, as in a term of two paths."""
        with autocast(self._precision, self._images.device):
            found = self._pairs.by_sides(self._images, sides)
        return torch.stack([functional.cross_entropy(f.float(), self._labels) for f in found]).sum() / 2


def figures(work: Workload, pace: Pace, *, compile_with: str = "inductor") -> Iterator[Figure]:
    """How long each takes in units of our step, and which part of a training's steps it could take."""
    try:
        arms = Arms(work, compile_with)
    except UnpairableError as error:
        print(f"{work.network}: {error}", flush=True)
        return
    turns = in_turns(arms, pace, device=work.device)
    yield turns.figure("step, none of the groups full", OURS)
    for name in arms.names:
        yield turns.ratio(f"step, {name} / step", name, OURS)
    groups = [group.choices for group in work.space.groups]
    yield Figure.single("steps in which no group is full", _share_without_full(groups), "ratio")


def _share_without_full(groups: Sequence[Sequence[int]]) -> float:
    """Widths are drawn uniformly, and neither they nor their complements may be full: the complement never is."""
    share = 1.0
    for choices in groups:
        share *= 1 - 1 / len(choices)
    return share


class Arms:
    """What a round compares."""

    def __init__(self, work: Workload, compile_with: str) -> None:
        self._work = work
        own = work.chosen
        recipe = Recipe(lr=1e-3, batch_size=work.batch, epochs=1, precision=own.precision)
        learner = work.supernet_learner(own, pairs=True)
        if learner.pairs is None:
            raise UnpairableError("its own code couples channels")
        self._ours = Steps(learner, work, own)
        fused = work.supernet_learner(own, pairs=True)
        update = torch.optim.SGD(
            fused.module.parameters(), lr=recipe.lr, momentum=recipe.momentum, nesterov=True, fused=True
        )
        self._fused = Steps(fused, work, own, optimizer=update)
        self._fixed = {FIXED: FixedSteps(work, own), COMPILED: FixedSteps(work, own).compiled(compile_with)}
        if work.device != "cpu":
            self._fixed[CAPTURED] = FixedSteps(work, own).captured()

    @property
    def names(self) -> tuple[str, ...]:
        """Those beside ours."""
        return (FUSED, *self._fixed)

    def __call__(self, number: int) -> dict[str, tuple[Call, Call]]:
        """The things of a round."""
        terms = terms_without_full(self._work, number)
        return {
            OURS: (prepare_nothing, lambda: self._ours.take(terms)),
            FUSED: (prepare_nothing, lambda: self._fused.take(terms)),
            **{name: (prepare_nothing, lambda steps=steps: steps.take(terms)) for name, steps in self._fixed.items()},  # type: ignore[misc]
        }


def terms_without_full(work: Workload, number: int) -> tuple[Term, ...]:
    """The terms of a step whose widths are drawn from all choices but the widest."""
    generator = torch.Generator().manual_seed(30_000 + number)
    groups = work.space.groups
    drawn = tuple(g.choices[int(torch.randint(len(g.choices) - 1, (), generator=generator))] for g in groups)
    return Complementary().terms(work.space, drawn)
