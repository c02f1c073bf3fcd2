"""Training step: the paths that see a batch, and one update from all of them (Eq. 10-11).

Notation: `c` are the widths drawn from the space, `c~ = l - c` their complement (full width is its own), `L(c, side)`
the loss of a path on the batch. The complementary step minimises

    (L(c, LEFT) + L(c, RIGHT)) / 2 + (L(c~, LEFT) + L(c~, RIGHT)) / 2

and trains every channel of a group equally often. A strategy returns such terms. A term is the mean over its paths;
the loss is the sum of the terms.
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
    """A sub-network of a supernet: widths and the side they are counted from."""

    widths: Widths
    side: Side


@dataclass(frozen=True)
class Term:
    """Paths whose mean loss is one summand of the step, recorded under the widths `recorded`."""

    recorded: Widths
    paths: tuple[Path, ...]


class Strategy(ABC):
    """Selects the paths of each step. `draws` widths are drawn per step, each with its own terms.

    `sides` are the sides it trains; only these may score widths. Terms are summed, so more draws give larger steps
    unless the learning rate is divided by their number.

    Example: `Unilateral(draws=4)` trains as many paths a step as `Complementary()`.

    Raises:
        TrainingError: `draws` is not a positive int.
    """

    sides: tuple[Side, ...] = (Side.LEFT, Side.RIGHT)

    def __init__(self, draws: int = 1) -> None:
        if isinstance(draws, bool) or not isinstance(draws, int) or draws < 1:
            raise TrainingError(f"the draws of a strategy must be an int of at least 1; got {draws!r}")
        self.draws = draws

    @abstractmethod
    def terms(self, space: WidthSpace, widths: Widths) -> tuple[Term, ...]:
        """Return the terms for widths drawn from the space."""

    def teacher(self, space: WidthSpace) -> Path | None:
        """Return the first path of a step, alone in its pass, whose outputs replace the labels for the others.

        Or None.
        """
        return None

    def plan(self, space: WidthSpace, generator: torch.Generator) -> tuple[Term, ...]:
        """Draw this step's widths uniformly and return all terms."""
        drawn = [space.sample(generator) for _ in range(self.draws)]
        return tuple(term for widths in drawn for term in self.terms(space, widths))


class Complementary(Strategy):
    """BCNet: the widths and their complement, each from both sides (four paths, Eq. 11)."""

    bounded: ClassVar[bool] = False

    def terms(self, space: WidthSpace, widths: Widths) -> tuple[Term, ...]:
        """Return `c` and `c~`, each LEFT and RIGHT."""
        complement = space.complement(widths, bounded=self.bounded)
        return (
            Term(widths, _both_sides(widths)),
            Term(space.nearest(complement), _both_sides(complement)),
        )


class BoundedComplementary(Complementary):
    """BCNetV2's complement, `l + c_min - c`: no path is narrower than a group's smallest choice `c_min`.

    The two paths of a side overlap in `c_min` channels, so channels in the middle are trained more often than those at
    the ends: with a smallest ratio of 0.2 the least and most trained differ as 0.8 to 1, about as without a complement.
    Without a smallest width it equals `Complementary`, except for the widths that `c_min` adds.
    """

    bounded: ClassVar[bool] = True


class Bilateral(Strategy):
    """BCNet without the complementary strategy: the widths from both sides (two paths, Eq. 10)."""

    def terms(self, space: WidthSpace, widths: Widths) -> tuple[Term, ...]:
        """Return `c`, LEFT and RIGHT."""
        return (Term(widths, _both_sides(widths)),)


class Unilateral(Strategy):
    """A unilaterally augmented supernet: LEFT paths of random widths only."""

    sides = (Side.LEFT,)

    def terms(self, space: WidthSpace, widths: Widths) -> tuple[Term, ...]:
        """Return `c`, LEFT."""
        return (Term(widths, (Path(widths, Side.LEFT),)),)


class Sandwich(Unilateral):
    """AutoSlim's supernet: full width, the narrowest choices, and two random widths in every step.

    Only the full width learns from labels; the other paths imitate its outputs (in-place distillation).


    Sources: "Universally Slimmable Networks and Improved Training Techniques" and "AutoSlim" (Yu and Huang, 2019).
    """

    def __init__(self, draws: int = 2) -> None:
        super().__init__(draws)

    def plan(self, space: WidthSpace, generator: torch.Generator) -> tuple[Term, ...]:
        """Return the full width, which teaches the others, then the narrowest and the random widths."""
        ends = (*self.terms(space, space.full), *self.terms(space, space.narrowest))
        return (*ends, *super().plan(space, generator))

    def teacher(self, space: WidthSpace) -> Path | None:
        """Return the path at full width."""
        return Path(space.full, Side.LEFT)


class UnilateralComplementary(Strategy):
    """The complementary strategy on a unilateral supernet, which performs worse (Fig. 2b)."""

    sides = (Side.LEFT,)

    def terms(self, space: WidthSpace, widths: Widths) -> tuple[Term, ...]:
        """Return `c` and `c~`, each LEFT."""
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


def separate_passes(paths: Sequence[Path]) -> list[tuple[int, ...]]:
    """Return every path in its own pass."""
    return [(i,) for i in range(len(paths))]


def accumulate_gradients(
    terms: Sequence[Term],
    losses_of: Callable[[Pass], Sequence[torch.Tensor]],
    backward: Callable[[torch.Tensor], object] = torch.Tensor.backward,
    passes: Callable[[Sequence[Path]], Sequence[tuple[int, ...]]] = separate_passes,
) -> torch.Tensor:
    """Add the gradient of `sum over terms of mean over paths of their losses` to the parameters, without an update.

    Every pass runs backward before the next runs forward, so peak memory is that of one pass.

    Args:
        terms: the step.
        losses_of: returns the losses, scalars, of paths that share a pass.
        backward: adds a loss's gradient to the parameters.
        passes: groups all paths into passes, by index.

    Returns:
        The mean loss of every term, shape `(terms,)`, on the device, without synchronisation.
    """
    paths = [path for term in terms for path in term.paths]
    # A path's weight in the total is its share of its term, whichever pass computes it.
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
