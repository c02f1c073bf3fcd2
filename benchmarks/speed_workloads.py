"""What the speed benchmarks run: networks with random images, and steps on them as training takes them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from bcnet.machine.defaults import Layout, layout_of, memory_format, precision_of
from bcnet.machine.devices import Precision
from bcnet.machine.memory import largest_activation
from bcnet.models import create
from bcnet.space import WidthSpace
from bcnet.supernet import Supernet
from bcnet.supernet.pairs import Pairs, UnpairableError, are_worthwhile
from bcnet.train import Complementary, Recipe, SupernetLearner
from bcnet.train.learner import Learner
from bcnet.train.objective import Objective
from bcnet.train.optimizer import make_optimizer
from bcnet.train.step import Term, accumulate_gradients


@dataclass(frozen=True)
class Variant:
    """Memory formats of weights and images, and a precision."""

    weights: Layout
    images: Layout
    precision: Precision

    def __str__(self) -> str:
        layout = "channels-last" if self.weights == "channels_last" else "contiguous"
        return f"{layout} {self.precision}"


VARIANTS = tuple(
    Variant(layout, layout, precision) for layout in ("channels_last", "contiguous") for precision in ("fp32", "bf16")
)


@dataclass(frozen=True)
class Workload:
    """A network by its name, the side of its square images, how many of them make a batch, and where it runs."""

    network: str
    pixels: int
    batch: int
    device: str = "cpu"

    def __str__(self) -> str:
        return f"batch {self.batch} of {self.pixels}x{self.pixels}"

    @cached_property
    def model(self) -> nn.Module:
        """The network, freshly initialised, the same each time."""
        torch.manual_seed(0)
        return create(self.network, in_channels=3, image_size=self.pixels).build()

    @cached_property
    def space(self) -> WidthSpace:
        """Its width space."""
        return WidthSpace.trace(self.model, torch.zeros(2, 3, self.pixels, self.pixels), multiple_of=1)

    @cached_property
    def images(self) -> torch.Tensor:
        """Images `(batch, 3, pixels, pixels)`."""
        generator = torch.Generator().manual_seed(0)
        return torch.randn(self.batch, 3, self.pixels, self.pixels, generator=generator).to(self.device)

    @cached_property
    def labels(self) -> torch.Tensor:
        """Labels `(batch,)`."""
        return torch.randint(10, (self.batch,), generator=torch.Generator().manual_seed(1)).to(self.device)

    @cached_property
    def chosen(self) -> Variant:
        """What a run takes on this machine where its settings leave it open."""
        device = torch.device(self.device)
        largest = largest_activation(copy.deepcopy(self.model).eval(), torch.zeros(2, 3, self.pixels, self.pixels))
        return Variant(layout_of("auto", device), "channels_last", precision_of("auto", device, largest))

    def terms(self, number: int) -> tuple[Term, ...]:
        """The terms of a step, by its number."""
        return Complementary().plan(self.space, torch.Generator().manual_seed(10_000 + number))

    def fresh(self, variant: Variant) -> nn.Module:
        """A copy of the network with weights of that layout."""
        return copy.deepcopy(self.model).to(self.device, memory_format=memory_format(variant.weights))  # type: ignore[call-overload, no-any-return]

    def supernet_learner(self, variant: Variant, *, pairs: bool | None = None) -> SupernetLearner:
        """The supernet, its paths in pairs or not, or as a run trains it: in pairs where that is the faster way."""
        supernet = Supernet(self.fresh(variant), self.space)
        together = None
        if are_worthwhile(self.space, self.batch) if pairs is None else pairs:
            try:
                together = Pairs.verify(supernet.network, self.space, self.images[:2])
            except UnpairableError:
                together = None
        return SupernetLearner(supernet, Complementary(), together)


class Steps:
    """Training steps of one learner on the batch of a workload: gradients of all terms, and one update."""

    def __init__(
        self, learner: Learner, work: Workload, variant: Variant, *, optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        recipe = Recipe(lr=1e-3, batch_size=work.batch, epochs=1, precision=variant.precision)
        images = work.images.contiguous(memory_format=memory_format(variant.images))
        self._learner = learner
        self._optimizer = optimizer or make_optimizer(learner.module.train(), recipe)
        self._objective = Objective(learner, recipe, variant.precision, images, work.labels)

    def take(self, terms: Sequence[Term] | None = None) -> None:
        """One step; a learner that draws nothing needs no terms."""
        terms = self._learner.plan(torch.Generator()) if terms is None else terms
        self._optimizer.zero_grad(set_to_none=True)
        accumulate_gradients(terms, self._objective, passes=self._learner.passes)
        self._optimizer.step()
