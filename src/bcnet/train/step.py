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
    """Which paths a step trains. `draws` widths are drawn per step, each giving its own terms.

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

    def plan(self, space: WidthSpace, generator: torch.Generator) -> tuple[Term, ...]:
        """Draw this step's widths uniformly and list all terms."""
        drawn = [space.sample(generator) for _ in range(self.draws)]
        return tuple(term for widths in drawn for term in self.terms(space, widths))


class Complementary(Strategy):
    """BCNet: the widths and their complement, both from both sides (four paths, Eq. 11)."""

    def terms(self, space: WidthSpace, widths: Widths) -> tuple[Term, ...]:
        """`c` and `c~`, LEFT and RIGHT each."""
        complement = space.complement(widths)
        return (
            Term(widths, _both_sides(widths)),
            Term(space.nearest(complement), _both_sides(complement)),
        )


class Bilateral(Strategy):
    """BCNet without the complementary strategy: the widths from both sides (two paths, Eq. 10)."""

    def terms(self, space: WidthSpace, widths: Widths) -> tuple[Term, ...]:
        """`c` LEFT and RIGHT."""
        return (Term(widths, _both_sides(widths)),)


class Unilateral(Strategy):
    """The unilaterally augmented supernet of AutoSlim: LEFT paths only."""

    sides = (Side.LEFT,)

    def terms(self, space: WidthSpace, widths: Widths) -> tuple[Term, ...]:
        """`c` LEFT."""
        return (Term(widths, (Path(widths, Side.LEFT),)),)


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
    "bilateral": Bilateral,
    "unilateral": Unilateral,
    "unilateral-complementary": UnilateralComplementary,
}


def accumulate_gradients(
    terms: Sequence[Term],
    path_loss: Callable[[Path], torch.Tensor],
    backward: Callable[[torch.Tensor], object] = torch.Tensor.backward,
) -> torch.Tensor:
    """Add the gradient of `sum over terms of mean over paths of path_loss` to the parameters; nothing is updated.

    Every path runs backward before the next runs forward, so that the peak memory is that of one path.

    Returns:
        The mean loss of every term, shape `(terms,)`, on the device: no synchronisation yet.
    """
    means = []
    for term in terms:
        losses = []
        for path in term.paths:
            loss = path_loss(path)
            backward(loss / len(term.paths))
            losses.append(loss.detach().float())
        means.append(torch.stack(losses).mean())
    return torch.stack(means)


def _both_sides(widths: Widths) -> tuple[Path, Path]:
    return Path(widths, Side.LEFT), Path(widths, Side.RIGHT)
