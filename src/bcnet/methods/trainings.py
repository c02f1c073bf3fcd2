"""Methods that score each candidate by a short training: the default search, and random widths.

Candidates are trained for a share of the final epochs, and a model of their scores proposes the next ones. From trained
weights, a twentieth of the epochs suffices to tell candidates apart. From scratch it takes a tenth to three tenths, and
the order is biased (`docs/score_model.md`). Therefore the best candidates that differ, the balanced and the Uniform
widths among them, are then trained as long as the final networks, and these trainings decide.

Notation: training a network with `r` times the multiply-adds takes about `sqrt(r)` of the original's time, since its
memory traffic is linear in its widths. `n` networks of `e` epochs and `k` networks of `E` epochs, on a share `s` of the
images, therefore cost, in trainings of the original for `E` epochs,

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
FEWEST = 8  # fewest networks that a score model can learn from
_SHARE_OF_TUNING = 0.05  # share of a final training, for candidates that start from trained weights
_USUAL_RANDOM_EPOCHS = 50  # the paper's value
SEARCHERS = ("model", "greedy", "random")


def _score(value: Any) -> Any:
    """Return a valid score; ValueError for anything else."""
    if callable(value) or value in ("accuracy", "loss", "custom"):
        return value
    raise ValueError("'accuracy', 'loss', or a function of outputs and targets")


def _epochs(value: Any) -> Any:
    """Return a positive number of epochs, which may be a fraction; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(_EPOCHS)
    whole = int(value) if value == int(value) else value
    if not (isinstance(whole, int) and 0 < whole < 2**31) and not 0 < value < 1:
        raise ValueError(_EPOCHS)
    return whole


_EPOCHS = "an int of at least 1, or a part of one epoch, as 0.25"
Epochs = Annotated[Any, AfterValidator(_epochs)]
"""Field for epochs, whole or fractional."""

Score = Annotated[Any, AfterValidator(_score)]
"""Field for the score of candidates."""


@dataclass(frozen=True)
class Effort:
    """An effort: about `trainings` trainings of the original.

    From scratch each candidate gets a `share` of a final training, and the `finalists` best ones get a whole one (none
    if there would be only one). From trained weights everything is spent on candidates.
    """

    trainings: float
    share: float
    finalists: int


EFFORTS: Mapping[str, Effort] = MappingProxyType(
    {"small": Effort(1, 0.1, 1), "medium": Effort(3, 0.2, 3), "large": Effort(10, 0.3, 4)}
)


class TrainingsMethod(Method):
    """Base of the methods whose candidates are trained on their own, from the start of the final networks."""

    scores_candidates: ClassVar[bool] = True
    trains_candidates: ClassVar[bool] = True

    networks: Count | None = None
    """Number of networks that are trained to be scored."""
    epochs: Epochs | None = None
    """Epochs of each of them; 0.25 is a quarter of the batches of one epoch."""

    @property
    def continues_best(self) -> bool:
        """Return whether the final training continues the best candidate's own training."""
        return False

    def stages(self) -> tuple[str, ...]:
        """Stages: short trainings, the reliability of their scores, and the choice among the best."""
        return ("trials", "reliability", "finalists")

    def widths(self, context: Context) -> Widths:
        """Return the widths of the best candidate."""
        widths: Widths = context.output("finalists").widths
        return widths

    def trial(self, training: Recipe) -> Recipe:
        """Return the recipe of candidates: that of final networks with fewer epochs."""
        return for_epochs(training, self.length)

    @property
    def length(self) -> float:
        """Return the epochs of a candidate's training, possibly a fraction."""
        assert self.epochs is not None, "a run completes its method before it starts"
        length: float = self.epochs
        return length


class Trainings(TrainingsMethod):
    """Default search: candidates get short trainings, and a model of their scores proposes them.

    `effort` sets the cost, in trainings of the original: about 1 for "small", 3 for "medium" and 10 for "large". It
    determines all fields that are not given among `networks`, `epochs`, `finalists` and `finalist_epochs`.
    """

    name: ClassVar[str] = "trainings"

    effort: EffortName = "medium"
    """Effort of the search: small, medium or large, about 1, 3 or 10 trainings of the original."""
    finalists: Count | None = None
    """Number of best candidates that are scored again after a longer training."""
    finalist_epochs: Count | None = None
    """Epochs of that longer training; none where candidates start from trained weights."""
    score: Score = "loss"
    """Score of a candidate: loss (negative cross-entropy, nats), accuracy (top-1, percent), or a custom function."""
    searcher: Any = "model"
    """Searcher: model, greedy or random, or a custom bcnet.Searcher."""
    reach: float = Field(default=1.4, ge=0)
    """Largest factor by which candidates of the score model differ from the best one in any group; 0 for no limit."""
    seed: Seed | None = None
    """Seed of the proposals; default: that of the run."""

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
        """Return the method with the number of networks and epochs that follow from the effort.

        Raises:
            BudgetError: the narrowest network of the space exceeds the budget.
            RecipeError: finalists would be trained no longer than all candidates.
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
                f"finalist_epochs must be more than the {epochs} epochs of all candidates, and at most the "
                f"{training.epochs} of final networks; got {longer}: leave it out"
            )
        networks = self.networks
        if networks is None:
            ratio = _macs_ratio(request)
            whole = request.trained_share * math.sqrt(ratio)  # cost of a whole training, in trainings of the original
            left = effort.trainings - (finalists * whole if longer is not None else 0)
            networks = max(FEWEST, int(left / (whole * epochs / training.epochs)))
        values = {"networks": networks, "epochs": epochs, "finalists": finalists, "finalist_epochs": longer}
        return self.model_copy(update=values)


class Random(TrainingsMethod):
    """The best of random widths near the budget, each trained for some epochs.

    With `continued`, as in the paper, the best network's training continues to the end of the final schedule, of which
    the short trainings are the first epochs.
    """

    name: ClassVar[str] = "random"
    narrowed: ClassVar[str] = "narrowed to the best of some random widths"

    networks: Count | None = 20
    """Number of networks that are trained to be scored."""
    epochs: Epochs | None = None
    """Epochs of each of them, possibly a fraction; default: 50, or the final networks' epochs if fewer."""
    continued: bool = False
    """Continue the best random network's own training, as in the paper, instead of training its widths again."""
    score: Score = "accuracy"
    """Score of a candidate: accuracy (top-1, percent), loss (negative cross-entropy, nats), or a custom function."""

    def __init__(self, networks: int = 20, **fields: Any) -> None:
        super().__init__(networks=networks, **fields)

    @model_validator(mode="after")
    def _check_whole_epochs(self) -> Self:
        if self.continued and isinstance(self.epochs, float):
            raise ValueError(f"'continued' goes on after whole epochs; got {self.epochs}")
        return self

    @property
    def continues_best(self) -> bool:
        """Return whether the final training continues the best candidate's own training."""
        return self.continued

    def complete(self, request: Request) -> Self:
        """Return the method with the epochs of its networks."""
        epochs = self.epochs or min(_USUAL_RANDOM_EPOCHS, request.training.epochs)
        return self.model_copy(update={"epochs": epochs})


def for_epochs(training: Recipe, epochs: float) -> Recipe:
    """Return the recipe with another number of epochs, rounded up to a whole one, and without a teacher."""
    return training.model_copy(update={"epochs": max(1, int(epochs)), "distillation": None})


def check_searcher(value: Any, names: tuple[str, ...]) -> Any:
    """Return a searcher by name, a custom one, or its description; ValueError for anything else."""
    if isinstance(value, Searcher) or value in names or (isinstance(value, str) and " " in value):
        return value
    raise ValueError(f"one of {', '.join(names)}, or a bcnet.Searcher of your own")


def _macs_ratio(request: Request) -> float:
    """Return the Uniform network's share of the original's multiply-adds; 1 for a limit that is not measured yet."""
    if not all(measure.countable for measure in request.budget.limits):
        return 1.0
    space = request.space
    uniform: float = space.cost(space.uniform(request.budget)).macs / space.reference.macs
    return uniform
