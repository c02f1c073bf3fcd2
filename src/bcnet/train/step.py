"""One training step: which paths meet a batch, and one update from all of them (Eq. 10-11).

Notation: `c` the widths drawn from the space, `c~ = l - c` their complement (the full width its own), `L(c, side)` the
loss of a path on the batch. The complementary step minimises

    (L(c, LEFT) + L(c, RIGHT)) / 2 + (L(c~, LEFT) + L(c~, RIGHT)) / 2

and trains every channel of a group equally often. A strategy lists such terms; each term is the mean of its paths,
the terms are added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from bcnet.errors import TrainingError
from bcnet.space import Side, Widths, WidthSpace


@dataclass(frozen=True)
class Path:
    """One sub-network of a supernet: widths counted from one side."""

    widths: Widths
    side: Side


@dataclass(frozen=True)
class Term:
    """Paths whose mean loss is one summand of the step, recorded under the widths `recorded`."""

    recorded: Widths
    paths: tuple[Path, ...]


class Strategy(ABC):
    """The paths that a step trains. `draws` widths are drawn per step, each giving its own terms.

    `sides` are those it trains: only these may score widths. The terms are added, so that more draws are longer steps
    unless the learning rate is divided by their number.

    Example: `Unilateral(draws=4)` trains as many paths a step as `Complementary()`.

    Raises:
        TrainingError: draws that are no int of at least 1.
    """

    sides: tuple[Side, ...] = (Side.LEFT, Side.RIGHT)

    def __init__(self, draws: int = 1) -> None:
        if isinstance(draws, bool) or not isinstance(draws, int) or draws < 1:
            raise TrainingError(f"the draws of a strategy are an int of at least 1; got {draws!r}")
        self.draws = draws

    @abstractmethod
    def terms(self, space: WidthSpace, widths: Widths) -> tuple[Term, ...]:
        """The terms for widths drawn from the space."""

    def teacher(self, space: WidthSpace) -> Path | None:
        """The path, first of a step and alone in its pass, whose outputs the others learn in place of the labels."""
        return None

    def plan(self, space: WidthSpace, generator: torch.Generator) -> tuple[Term, ...]:
        """Draw this step's widths uniformly and list all terms."""
        drawn = [space.sample(generator) for _ in range(self.draws)]
        return tuple(term for widths in drawn for term in self.terms(space, widths))


class Complementary(Strategy):
    """BCNet: the widths and their complement, both from both sides (four paths, Eq. 11)."""

    bounded: ClassVar[bool] = False

    def terms(self, space: WidthSpace, widths: Widths) -> tuple[Term, ...]:
        """`c` and `c~`, LEFT and RIGHT each."""
        complement = space.complement(widths, bounded=self.bounded)
        return (
            Term(widths, _both_sides(widths)),
            Term(space.nearest(complement), _both_sides(complement)),
        )


class BoundedComplementary(Complementary):
    """BCNetV2's complement, `l + c_min - c`: no path is narrower than the smallest choice `c_min` of a group.

    The two paths of a side overlap in `c_min` channels, so that those in the middle are trained more often than those
    at the ends: with a smallest ratio of 0.2 the least and the most trained differ as 0.8 to 1, about as without a
    complement. Without a smallest width it trains as `Complementary` does, but for the widths that `c_min` adds.
    """

    bounded: ClassVar[bool] = True


class Bilateral(Strategy):
    """BCNet without the complementary strategy: the widths from both sides (two paths, Eq. 10)."""

    def terms(self, space: WidthSpace, widths: Widths) -> tuple[Term, ...]:
        """`c` LEFT and RIGHT."""
        return (Term(widths, _both_sides(widths)),)


class Unilateral(Strategy):
    """A unilaterally augmented supernet: LEFT paths of random widths only."""

    sides = (Side.LEFT,)

    def terms(self, space: WidthSpace, widths: Widths) -> tuple[Term, ...]:
        """`c` LEFT."""
        return (Term(widths, (Path(widths, Side.LEFT),)),)


class Sandwich(Unilateral):
    """AutoSlim's supernet: the full width and the narrowest choices in every step, beside two random widths.

    By the labels only the full width is trained; its outputs are what the others learn (in-place distillation).

    Sources: "Universally Slimmable Networks and Improved Training Techniques" and "AutoSlim" (Yu and Huang, 2019).
    """

    def __init__(self, draws: int = 2) -> None:
        super().__init__(draws)

    def plan(self, space: WidthSpace, generator: torch.Generator) -> tuple[Term, ...]:
        """The full width, which the others learn from, then the narrowest and the random ones."""
        ends = (*self.terms(space, space.full), *self.terms(space, space.narrowest))
        return (*ends, *super().plan(space, generator))

    def teacher(self, space: WidthSpace) -> Path | None:
        """The path at full width."""
        return Path(space.full, Side.LEFT)


class UnilateralComplementary(Strategy):
    """The complementary strategy on a unilateral supernet, which makes it worse (Fig. 2b)."""

    sides = (Side.LEFT,)

    def terms(self, space: WidthSpace, widths: Widths) -> tuple[Term, ...]:
        """`c` and `c~`, LEFT each."""
        complement = space.complement(widths)
        return (
            Term(widths, (Path(widths, Side.LEFT),)),
            Term(space.nearest(complement), (Path(complement, Side.LEFT),)),
        )


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "complementary": Complementary,
    "complementary-bounded": BoundedComplementary,
    "bilateral": Bilateral,
    "unilateral": Unilateral,
    "unilateral-complementary": UnilateralComplementary,
    "sandwich": Sandwich,
}


Pass = tuple[Path, ...]  # paths that run forward and backward together


def alone(paths: Sequence[Path]) -> list[tuple[int, ...]]:
    """Every path in a pass of its own."""
    return [(i,) for i in range(len(paths))]


def accumulate_gradients(
    terms: Sequence[Term],
    losses_of: Callable[[Pass], Sequence[torch.Tensor]],
    backward: Callable[[torch.Tensor], object] = torch.Tensor.backward,
    passes: Callable[[Sequence[Path]], Sequence[tuple[int, ...]]] = alone,
) -> torch.Tensor:
    """Add the gradient of `sum over terms of mean over paths of their losses` to the parameters; nothing is updated.

    Every pass runs backward before the next runs forward, so that the peak memory is that of one pass.

    Args:
        terms: the step.
        losses_of: the losses, scalars, of paths that share a pass.
        backward: what adds a loss's gradient to the parameters.
        passes: divides all paths into passes, by their positions.

    Returns:
        The mean loss of every term, shape `(terms,)`, on the device: no synchronisation yet.
    """
    paths = [path for term in terms for path in term.paths]
    shares = [1 / len(term.paths) for term in terms for _ in term.paths]
    losses: dict[int, torch.Tensor] = {}
    for together in passes(paths):
        found = losses_of(tuple(paths[i] for i in together))
        backward(torch.stack([loss * shares[i] for i, loss in zip(together, found, strict=True)]).sum())
        losses |= {i: loss.detach().float() for i, loss in zip(together, found, strict=True)}
    ordered = iter([losses[i] for i in range(len(paths))])
    return torch.stack([torch.stack([next(ordered) for _ in term.paths]).mean() for term in terms])


def _both_sides(widths: Widths) -> tuple[Path, Path]:
    return Path(widths, Side.LEFT), Path(widths, Side.RIGHT)
