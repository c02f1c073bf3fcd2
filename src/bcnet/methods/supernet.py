"""Methods that score the paths of a supernet: BCNet, the paper's method, and AutoSlim's greedy slimming."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from bcnet.methods.base import Context, Method, Request, Seed, Start
from bcnet.methods.trainings import Score, check_searcher
from bcnet.prior.prior import DEFAULT_EFFECTIVE_WIDTHS
from bcnet.prior.records import DEFAULT_SINCE
from bcnet.searchers.base import Tournament
from bcnet.searchers.evolution import Evolution
from bcnet.space import Widths
from bcnet.train.recipe import Count, Recipe

StrategyName = Literal[
    "complementary", "complementary-bounded", "bilateral", "unilateral", "unilateral-complementary", "sandwich"
]
FirstGeneration = Literal["balanced", "prior"]
FROM_PRIOR = ("evolution", "prior-only")
"""Searchers that sample their first candidates from the prior."""
TAKES_PRIOR = '"prior": "learnt"'  # appears in the description of a custom searcher
SEARCHERS = (*FROM_PRIOR, "evolution-without-prior", "greedy", "model", "random")
_OF_EVOLUTION = ("population", "generations", "parents", "macs_from", "tournament")


class SupernetMethod(Method):
    """Base of the methods that train a supernet and score its paths."""

    scores_candidates: ClassVar[bool] = True
    trains_supernet: ClassVar[bool] = True

    start: Literal["scratch", "trained"] = "scratch"
    """Initial weights of the supernet: random (scratch, as in the paper), or those of the trained original (trained),
    with channels ordered so that both ends of a group are equally important where paths are taken from both ends.
    """
    epochs: Count | None = None
    """Epochs of the supernet; default: those of the final networks."""
    training: Recipe | dict[str, Any] = Field(default_factory=dict)
    """Recipe of the supernet, or changes to the recipe of the final networks."""
    strategy: StrategyName = "complementary"
    """Paths of a step: complementary (BCNet, fair), complementary-bounded (BCNetV2: with a smallest width the middle
    channels are trained more often), bilateral, unilateral, unilateral-complementary or sandwich (AutoSlim).
    """
    pairs: Literal["auto", "on", "off"] = "auto"
    """Run two complementary paths in one pass: on, off, or auto (where it should be faster)."""
    score: Score = "accuracy"
    """Score of a candidate: accuracy (top-1, percent), loss (negative cross-entropy, nats), or a custom function."""
    searcher: Any = "evolution"
    """Searcher that proposes candidates."""
    population: Count = 40
    """Candidates per generation."""
    generations: Count = 50
    """Number of generations; at most population times generations candidates are scored."""
    rescored: Count = 10
    """Number of best candidates that are scored again on images not used in the search."""
    seed: Seed | None = None
    """Seed of the search; default: that of the run."""

    @property
    def inherits(self) -> bool:
        """Return whether the supernet starts from the weights of the trained original."""
        return self.start == "trained"

    @property
    def usual_start(self) -> Start:
        """Trained weights if the supernet starts from them, else random ones."""
        return "original" if self.inherits else "scratch"

    @property
    def needs_prior(self) -> bool:
        """Return whether the searcher uses a prior fitted to the supernet's training losses."""
        return False

    @property
    def recipe(self) -> Recipe:
        """Recipe of the supernet, available once a run has completed it."""
        assert isinstance(self.training, Recipe), "a run completes its method before it starts"
        return self.training

    def stages(self) -> tuple[str, ...]:
        """Stages: supernet, prior if the searcher uses it, search, and choice among the best candidates."""
        prior = ("prior",) if self.needs_prior else ()
        return ("supernet", *prior, "evolution", "reliability", "finalists")

    def widths(self, context: Context) -> Widths:
        """Return the widths of the best candidate."""
        widths: Widths = context.output("finalists").widths
        return widths

    def complete(self, request: Request) -> Self:
        """Return the method with the complete recipe of its supernet.

        A supernet is never distilled, since every path would need its own teacher.
        """
        recipe = self.training
        if isinstance(recipe, Mapping):
            recipe = request.training.with_changes(recipe) if recipe else request.training
        epochs = self.epochs or recipe.epochs
        recipe = recipe.model_copy(update={"distillation": None, "epochs": epochs})
        return self.model_copy(update={"training": recipe, "epochs": epochs})


class BCNet(SupernetMethod):
    """BCNet: a supernet whose paths are scored from both sides, a prior fitted to its losses, and evolution.

    Source: "BCNet: Searching for Network Width with Bilaterally Coupled Network", CVPR 2021. `BCNet.paper()` has the
    paper's settings; docs/differences.md lists where the defaults differ.
    """

    name: ClassVar[str] = "bcnet"

    searcher: Any = "evolution"
    """Searcher: evolution, evolution-without-prior, greedy, model, prior-only, random, a bcnet.Evolution, or a custom
    bcnet.Searcher.
    """
    parents: Count = 10
    """Candidates that survive a generation of evolution."""
    macs_from: float = Field(default=0.9, ge=0, le=1)
    """Share of the budget below which evolution sees no benefit in cheaper candidates (0 in the paper)."""
    first_generation: FirstGeneration = "balanced"
    """Start evolution from the balanced and Uniform widths too (balanced), or from the prior only (prior)."""
    tournament: Tournament = "score"
    """Tournament criterion of evolution: score, or rank and crowding (rank) as in the paper."""
    keep_records: Count | None = None
    """Number of lowest-loss records that the prior is fitted to; default: all (100 in the paper)."""
    records_since: float = Field(default=DEFAULT_SINCE, ge=0, lt=1)
    """Share of the training whose first records are discarded (0 in the paper)."""
    effective_widths: float = Field(default=DEFAULT_EFFECTIVE_WIDTHS, ge=1)
    """Effective number of widths per group in the prior, the exponential of its entropy; 1 is the optimum itself."""
    tightened: bool = True
    """Tighten the prior's budget until nearly half of its samples satisfy it (off in the paper)."""

    @model_validator(mode="before")
    @classmethod
    def _with_evolution(cls, values: Any) -> Any:
        """Accept the settings of a `bcnet.Evolution`."""
        searcher = values.get("searcher") if isinstance(values, dict) else None
        if type(searcher) is not Evolution:
            return values
        settings = {name: getattr(searcher, name) for name in _OF_EVOLUTION}
        return {**settings, **values, "searcher": "evolution"}

    @field_validator("searcher")
    @classmethod
    def _a_searcher(cls, value: Any) -> Any:
        return check_searcher(value, SEARCHERS)

    @classmethod
    def paper(cls, **fields: Any) -> Self:
        """Return the method with the paper's settings, changed by `fields`."""
        return cls(**{**PAPER, **fields})

    @property
    def needs_prior(self) -> bool:
        """Return whether the searcher uses a prior fitted to the supernet's training losses."""
        return isinstance(self.searcher, str) and (self.searcher in FROM_PRIOR or TAKES_PRIOR in self.searcher)


PAPER: dict[str, Any] = {
    "keep_records": 100,
    "records_since": 0.0,
    "tightened": False,
    "first_generation": "prior",
    "macs_from": 0.0,
    "tournament": "rank",
    "rescored": 1,
}
"""Fields of BCNet for which the paper's value differs from the default (docs/differences.md)."""


class AutoSlim(SupernetMethod):
    """AutoSlim: greedy slimming on a supernet trained by the sandwich rule with in-place distillation.

    `strategy="unilateral"` trains random left paths on the labels instead.
    Source: Yu and Huang, "AutoSlim", 2019.
    """

    name: ClassVar[str] = "autoslim"
    narrowed: ClassVar[str] = "narrowed by AutoSlim's greedy slimming"

    strategy: Literal["sandwich", "unilateral"] = "sandwich"
    """Paths of a step: the sandwich rule, or random left paths."""
    searcher: Literal["greedy"] = "greedy"
    """Greedy slimming, starting at full width."""

    @property
    def usual_start(self) -> Start:
        """Trained weights, as for every method that narrows a trained network."""
        return "original"
