"""Methods that score candidates by short trainings of their own: the default search, and random widths.

Candidates are networks that are trained for a share of the final epochs, and a model of their scores proposes them.
From trained weights a twentieth of the epochs tells them apart. From scratch it takes a tenth to three tenths, and is
biased (`docs/score_model.md`): the best of them that differ, the balanced and the Uniform widths among them, are then
trained for as long as the final networks, which decides.

Notation: a training of a network of `r` times the multiply-adds takes about `sqrt(r)` of the original's time, since
what it reads and writes goes as its widths do; so `n` networks of `e` epochs and `k` of `E` epochs, on a share `s` of
the images, cost, in trainings of the original of `E` epochs,

    (n e / E + k) s sqrt(r).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from bcnet.errors import RecipeError
from bcnet.methods.base import Context, Method, Request, Seed
from bcnet.searchers.base import Searcher
from bcnet.space import Widths
from bcnet.train.recipe import Count, Recipe

EffortName = Literal["small", "medium", "large"]
FEWEST = 8  # networks: what a model of the scores learns anything from
_SHARE_OF_TUNING = 0.05  # of a final training, for candidates that start from trained weights
_USUAL_RANDOM_EPOCHS = 50  # of the paper
SEARCHERS = ("model", "greedy", "random")


def _score(value: Any) -> Any:
    """Return a score that candidates can be ranked by; ValueError for anything else."""
    if callable(value) or value in ("accuracy", "loss", "custom"):
        return value
    raise ValueError("'accuracy', 'loss', or a function of outputs and targets")


def _epochs(value: Any) -> Any:
    """Return a number of epochs, or a part of one; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(_EPOCHS)
    whole = int(value) if value == int(value) else value
    if not (isinstance(whole, int) and 0 < whole < 2**31) and not 0 < value < 1:
        raise ValueError(_EPOCHS)
    return whole


_EPOCHS = "an int of at least 1, or a part of one epoch, as 0.25"
Epochs = Annotated[Any, AfterValidator(_epochs)]
"""A field of whole epochs, or of a part of one."""

Score = Annotated[Any, AfterValidator(_score)]
"""A field that says what ranks candidates."""


@dataclass(frozen=True)
class Effort:
    """About so many `trainings` of the original.

    From scratch each candidate gets a `share` of a final one, and `finalists` are how many of the best get a whole one;
    of one alone there is nothing to tell apart. From trained weights all is spent on candidates.
    """

    trainings: float
    share: float
    finalists: int


EFFORTS: Mapping[str, Effort] = MappingProxyType(
    {"small": Effort(1, 0.1, 1), "medium": Effort(3, 0.2, 3), "large": Effort(10, 0.3, 4)}
)


class TrainingsMethod(Method):
    """Base of the methods whose candidates are trained by themselves, from the start of the final networks."""

    scores_candidates: ClassVar[bool] = True
    trains_candidates: ClassVar[bool] = True

    networks: Count | None = None
    """Networks that are trained to be scored."""
    epochs: Epochs | None = None
    """Epochs of each of them; 0.25 is a quarter of the batches of one."""

    @property
    def goes_on(self) -> bool:
        """Return whether the best network's own training is continued as the final one."""
        return False

    def stages(self) -> tuple[str, ...]:
        """Short trainings, how reliable their scores are, and the choice among the best."""
        return ("trials", "reliability", "finalists")

    def widths(self, context: Context) -> Widths:
        """Return the widths of the best candidate."""
        widths: Widths = context.output("finalists").widths
        return widths

    def trial(self, training: Recipe) -> Recipe:
        """Return how candidates are trained: as final networks, for fewer epochs, on a part of one at least."""
        return for_epochs(training, self.length)

    @property
    def length(self) -> float:
        """Return the epochs of a candidate's training, or the part of one."""
        assert self.epochs is not None, "a run completes its method before it starts"
        length: float = self.epochs
        return length


class Trainings(TrainingsMethod):
    """The default search: short trainings that a model of their scores proposes.

    `effort` says what it may cost, in trainings of the original: "small" about 1, "medium" 3 and "large" 10. It decides
    the fields that are left open; `networks`, `epochs`, `finalists` and `finalist_epochs` can be given instead.
    """

    name: ClassVar[str] = "trainings"

    effort: EffortName = "medium"
    """What to spend: small, medium or large, about 1, 3 or 10 trainings of the original."""
    finalists: Count | None = None
    """How many of the best are scored again after a longer training."""
    finalist_epochs: Count | None = None
    """Epochs of that longer training; none where candidates start from trained weights."""
    score: Score = "loss"
    """What ranks candidates: loss (negative cross-entropy, nats), accuracy (top-1, percent), or a custom function."""
    searcher: Any = "model"
    """What proposes candidates: model, greedy or random, or a custom bcnet.Searcher."""
    reach: float = Field(default=1.4, ge=0)
    """Factor by which candidates of the score model may differ from the best, group by group; 0 for any."""
    seed: Seed | None = None
    """Seed of the proposals, where not that of the run."""

    @field_validator("reach")
    @classmethod
    def _a_factor(cls, value: float) -> float:
        if 0 < value <= 1:
            raise ValueError("a factor above 1, or 0 for any")
        return value

    @field_validator("searcher")
    @classmethod
    def _a_searcher(cls, value: Any) -> Any:
        return check_searcher(value, SEARCHERS)

    def complete(self, request: Request) -> Self:
        """Return the method with the number of networks and their epochs as the effort comes to.

        Raises:
            BudgetError: the narrowest network of the space costs more than the budget.
            RecipeError: finalists that are trained no longer than all candidates.
        """
        training = request.training
        from_scratch = request.start == "scratch"
        effort = EFFORTS[self.effort]
        share, usual_finalists = (effort.share, effort.finalists) if from_scratch else (_SHARE_OF_TUNING, 1)
        epochs = self.epochs or max(1, round(share * training.epochs))
        finalists = self.finalists or usual_finalists
        longer = self.finalist_epochs
        if longer is None and finalists > 1 and epochs < training.epochs:
            longer = training.epochs
        if longer is not None and not epochs < longer <= training.epochs:
            raise RecipeError(
                f"finalist_epochs is more than the {epochs} epochs of all candidates, and at most the "
                f"{training.epochs} of final networks; got {longer}: leave it out"
            )
        networks = self.networks
        if networks is None:
            ratio = _macs_ratio(request)
            whole = request.trained_share * math.sqrt(ratio)  # what a whole training costs, in those of the original
            left = effort.trainings - (finalists * whole if longer is not None else 0)
            networks = max(FEWEST, int(left / (whole * epochs / training.epochs)))
        values = {"networks": networks, "epochs": epochs, "finalists": finalists, "finalist_epochs": longer}
        return self.model_copy(update=values)


class Random(TrainingsMethod):
    """The best of random widths near the budget, each trained for a while.

    With `continued`, as in the paper, the best network's own training goes on to the end of the final schedule, whose
    first epochs the short trainings then are.
    """

    name: ClassVar[str] = "random"
    narrowed: ClassVar[str] = "narrowed to the best of some random widths"

    networks: Count | None = 20
    """Networks that are trained to be scored."""
    epochs: Epochs | None = None
    """Epochs of each of them, or a part of one (50, but no more than the final networks')."""
    continued: bool = False
    """Continue the best random network's own training (as the paper does), instead of training its widths anew."""
    score: Score = "accuracy"
    """What ranks candidates: accuracy (top-1, percent), loss (negative cross-entropy, nats), or a custom function."""

    def __init__(self, networks: int = 20, **fields: Any) -> None:
        super().__init__(networks=networks, **fields)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.continued and isinstance(self.epochs, float):
            raise ValueError(f"'continued' goes on after whole epochs; got {self.epochs}")
        return self

    @property
    def goes_on(self) -> bool:
        """Return whether the best network's own training is continued as the final one."""
        return self.continued

    def complete(self, request: Request) -> Self:
        """Return the method with the epochs of its networks."""
        epochs = self.epochs or min(_USUAL_RANDOM_EPOCHS, request.training.epochs)
        return self.model_copy(update={"epochs": epochs})


def for_epochs(training: Recipe, epochs: float) -> Recipe:
    """Return the recipe for another number of epochs, one for a part of one, without a teacher."""
    return training.model_copy(update={"epochs": max(1, int(epochs)), "distillation": None})


def check_searcher(value: Any, names: tuple[str, ...]) -> Any:
    """Return a searcher by name, a custom one, or the description of one; ValueError for anything else."""
    if isinstance(value, Searcher) or value in names or (isinstance(value, str) and " " in value):
        return value
    raise ValueError(f"one of {', '.join(names)}, or a bcnet.Searcher of your own")


def _macs_ratio(request: Request) -> float:
    """Return the multiply-adds of the Uniform network, over the original's; 1 under a limit not yet measured."""
    if not all(measure.countable for measure in request.budget.limits):
        return 1.0
    space = request.space
    uniform: float = space.cost(space.uniform(request.budget)).macs / space.reference.macs
    return uniform
