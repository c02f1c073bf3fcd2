"""The method Inherited: the paths of a supernet propose, short trainings of the best of them decide.

A supernet that starts from the trained original ranks widths after an epoch as well as a training of an epoch does for
each (`docs/score_model.md`), and scoring a path costs a small part of that. So many more candidates can be scored, by a
model of their scores as in the default search. What shared weights get wrong the short trainings of a few put right.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator

from bcnet.errors import RecipeError
from bcnet.methods.base import Request
from bcnet.methods.supernet import SupernetMethod
from bcnet.methods.trainings import SHARE_OF_TUNING, Epochs, Score, check_reach, check_searcher
from bcnet.train.recipe import Count

_SHARE_OF_SUPERNET = 0.1
"""Epochs of the supernet, in those of a final network; one of ten where it was measured."""


class Inherited(SupernetMethod):
    """A supernet from the trained original proposes widths, and short trainings of the best of them decide.

    The supernet is BCNet's, its paths are scored from both sides, and a model of the scores proposes them.
    """

    name: ClassVar[str] = "inherited"
    trains_briefly: ClassVar[bool] = True

    start: Literal["trained"] = "trained"
    """Weights that the supernet starts from: those of the trained original."""
    score: Score = "loss"
    """What ranks candidates: loss (negative cross-entropy, nats), accuracy (top-1, percent), or a custom function."""
    searcher: Any = "model"
    """What proposes candidates: model, greedy or random, or a custom bcnet.Searcher."""
    reach: float = Field(default=1.4, ge=0)
    """Factor by which candidates of the score model may differ from the best, group by group; 0 for any."""
    networks: Count = 160
    """Paths that are scored."""
    finalists: Count = 8
    """How many of the best are trained for a while by themselves, which decides."""
    finalist_epochs: Epochs | None = None
    """Epochs of each of them; 0.25 is a quarter of the batches of one."""

    @field_validator("reach")
    @classmethod
    def _a_factor(cls, value: float) -> float:
        return check_reach(value)

    @field_validator("searcher")
    @classmethod
    def _a_searcher(cls, value: Any) -> Any:
        return check_searcher(value)

    @property
    def candidates(self) -> int:
        """Return how many paths are scored, at most."""
        return self.networks

    def complete(self, request: Request) -> Self:
        """Return the method with its recipe and the epochs that were left open.

        Raises:
            RecipeError: final networks start from fresh weights, where short trainings say little.
        """
        if request.start == "scratch":
            raise RecipeError(
                "the method inherited trains from the weights of the original; got start='scratch': take "
                "start='original', and no widen above 1"
            )
        whole = request.training.epochs
        open_ones = {
            "epochs": self.epochs or max(1, round(_SHARE_OF_SUPERNET * whole)),
            "finalist_epochs": self.finalist_epochs or max(1, round(SHARE_OF_TUNING * whole)),
        }
        return super(Inherited, self.model_copy(update=open_ones)).complete(request)
