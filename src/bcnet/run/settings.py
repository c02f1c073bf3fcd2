"""Settings of a run: everything that its result depends on, stored in `settings.json` when it starts.

Every setting is said once, here: a field of the section it belongs to, with its unit and its default. The arguments of
`bcnet.search`, the options of the commands, the file `settings.json`, YAML files for `bcnet search FILE` and the page
of the documentation are all made from these fields. Names are unique over all sections, so that Python and the command
line leave the section out; files have it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, ValidationError, field_validator

from bcnet.costs import Budget, measure_called
from bcnet.errors import BudgetError, RecipeError
from bcnet.machine.defaults import Layout, layout_of, precision_of, score_batch, usual_threads
from bcnet.machine.devices import best_device, check_device
from bcnet.machine.memory import free_bytes
from bcnet.prior.prior import DEFAULT_EFFECTIVE_WIDTHS
from bcnet.prior.records import DEFAULT_SINCE
from bcnet.run.baselines import SLIMMING
from bcnet.searchers import Metric
from bcnet.searchers.evolution import Tournament
from bcnet.space.options import BALANCE_EXPONENT
from bcnet.train import Recipe
from bcnet.train.recipe import HEALTH, Count, describe

FinalFrom = Literal["scratch", "supernet", "pretrained", "original"]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
StrategyName = Literal[
    "complementary", "complementary-bounded", "bilateral", "unilateral", "unilateral-complementary", "sandwich"
]
ScorerName = Literal["supernet", "trainings"]
FirstGeneration = Literal["balanced", "prior"]
BaselineName = Literal["uniform", "balanced", "random", "magnitude", "taylor", "fastnas"]
FROM_PRIOR = ("evolution", "prior-only")
"""Searchers that start from the prior."""
TAKES_PRIOR = '"prior": "learnt"'  # in the description of a searcher of the user's own
SEARCHERS = (*FROM_PRIOR, "evolution-without-prior", "greedy", "model", "random")
_USUAL_RANDOM_EPOCHS = 50  # of the paper


class Section(BaseModel):
    """Settings that belong together."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    section: ClassVar[str] = ""
    """The key in files; the settings without one are at the top."""
    title: ClassVar[str] = ""
    """For people."""


class SubjectSettings(Section):
    """What is searched, and under which budget. Where a value is the user's own object, a description of it."""

    title: ClassVar[str] = "Model and data"

    model: str
    """The network: a name, or what describes the object that was passed in."""
    data: str
    """The data set: a name, or what describes the object that was passed in."""
    image_size: Count | None = None
    """Height and width of the images in pixels, where not the model's usual ones."""
    limits: dict[str, StrictInt | StrictFloat] = Field(default_factory=dict)
    """The budget: the most of each measure, a ratio of the original (float) or a count (int)."""
    seed: Seed = 0
    """Seed of every random draw."""
    loss: str | None = None
    """Name of the user's own loss, in place of cross-entropy."""
    pretrained: str | None = None
    """Digest of the weights that the model was given to start from."""
    task: str = "classification"
    """What the network is trained for: classification, or what describes a task of the user's own."""
    own_stages: tuple[str, ...] = ()
    """Names of the user's own stages, which come with the library's."""


class SpaceSettings(Section):
    """Which widths may be chosen."""

    section: ClassVar[str] = "space"
    title: ClassVar[str] = "Width space"

    num_choices: Count = 20
    """Widths each group may take, K of floor(l * k / K)."""
    min_ratio: float = Field(default=0.0, ge=0, le=1)
    """Smallest width that the search may choose, over the full width of its group; training stays fair."""
    multiple_of: int | Literal["auto"] | dict[str, int] = 1
    """Make widths multiples of this, 8 for instance; auto: by group, of what pays on the device of a latency model."""
    ignore: tuple[str, ...] = ()
    """Layers pinned at full width, by pattern (layer4.*)."""
    only: tuple[str, ...] = ()
    """Search only these layers, by pattern."""
    supernet_width: float = Field(default=1.0, ge=1, le=4)
    """Widest widths over the model's own; 1.5 to search at 1.0 of its MACs."""

    @field_validator("multiple_of", mode="before")
    @classmethod
    def _multiples(cls, value: Any) -> Any:
        counts = list(value.values()) if isinstance(value, dict) else [value]
        if value != "auto" and not all(type(count) is int and 0 < count < 2**31 for count in counts):
            raise ValueError("an int of at least 1, 'auto', or an int for each group named")
        return value


class SupernetSettings(Section):
    """How the supernet is trained, and which training images it never sees."""

    section: ClassVar[str] = "supernet"
    title: ClassVar[str] = "Supernet"

    supernet: Recipe
    """The recipe of the supernet."""
    strategy: StrategyName = "complementary"
    """Paths of a step: complementary (BCNet, fair), complementary-bounded (BCNetV2: with a smallest width the middle
    channels are trained more often), bilateral, unilateral, unilateral-complementary or sandwich (AutoSlim)."""
    pairs: Literal["auto", "on", "off"] = "auto"
    """Whether two complementary paths share a pass; auto, where that should be faster."""
    layout: Layout = "auto"
    """Memory format of the supernet's weights: auto, contiguous or channels_last."""
    validation_fraction: float = Field(default=0.1, gt=0, lt=0.5)
    """Share of the training images that scores candidates."""
    fresh_fraction: float = Field(default=0.1, gt=0, lt=0.5)
    """Share of the training images that scores the best candidates again."""


class PriorSettings(Section):
    """Which training records the prior believes, and how it is softened."""

    section: ClassVar[str] = "prior"
    title: ClassVar[str] = "Prior"

    keep_records: Count | None = None
    """How many records of smallest loss to believe; all where left out (100 in the paper)."""
    records_since: float = Field(default=DEFAULT_SINCE, ge=0, lt=1)
    """Share of the training before which records are left out (0 in the paper)."""
    effective_widths: float = Field(default=DEFAULT_EFFECTIVE_WIDTHS, ge=1)
    """Widths per group that the prior weighs, exp of its entropy; 1 is the certified optimum itself."""
    tightened: bool = True
    """Tighten the prior's budget until nearly half of its samples satisfy it (off in the paper)."""


class ScoringSettings(Section):
    """What scores a candidate."""

    section: ClassVar[str] = "scoring"
    title: ClassVar[str] = "Scores"

    score: Metric = "accuracy"
    """What ranks candidates: accuracy (top-1, percent) or loss (negative cross-entropy, nats)."""
    scorer: ScorerName = "supernet"
    """What they are scored as: paths of one supernet, or networks of short trainings, which an effort takes."""
    own_score: str | None = None
    """Name of the user's own score, in place of it."""
    score_batch_size: Count | None = None
    """Images scored at once, whose statistics batch norm uses (2,048, or what fits)."""


class SearchSettings(Section):
    """Which candidates are scored."""

    section: ClassVar[str] = "search"
    title: ClassVar[str] = "Search"

    searcher: str = "evolution"
    """evolution, evolution-without-prior, greedy, model, prior-only, random, or one of your own."""
    population: Count = 40
    """Candidates per generation."""
    generations: Count = 50
    """Generations; population times generations candidates are scored at most."""
    parents: Count = 10
    """Candidates that a generation of evolution keeps."""
    macs_from: float = Field(default=0.9, ge=0, le=1)
    """Share of the budget below which a cheaper candidate is no better to evolution (0 in the paper)."""
    first_generation: FirstGeneration = "balanced"
    """Evolution starts from the balanced and the Uniform widths as well (balanced), or without them (prior)."""
    tournament: Tournament = "score"
    """What wins a tournament of evolution: score, or rank and crowding (rank) as in the paper."""
    reach: float = Field(default=1.4, ge=0)
    """Factor by which candidates of the searcher model may differ from the best, group by group, where candidates are
    trainings; 0 for anywhere."""
    search_seed: Seed | None = None
    """Seed of the search, where not that of the run."""

    @field_validator("reach")
    @classmethod
    def _a_factor(cls, value: float) -> float:
        if 0 < value <= 1:
            raise ValueError("a factor above 1, or 0 for anywhere")
        return value

    @field_validator("searcher")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in SEARCHERS and " " not in name:
            raise ValueError(f"one of {', '.join(SEARCHERS)}, or a bcnet.Searcher of your own")
        return name


class FinalistSettings(Section):
    """How the best candidates are told apart."""

    section: ClassVar[str] = "finalists"
    title: ClassVar[str] = "Finalists"

    rescored: Count = 10
    """The best candidates that are scored again, on images that took no part in the search."""
    finalist_epochs: Count | None = None
    """Epochs that each of these is trained before its second score, of the scorer trainings (none)."""


class BaselineSettings(Section):
    """Other ways to find widths, without a supernet."""

    section: ClassVar[str] = "baseline"
    title: ClassVar[str] = "Baselines"

    baseline: BaselineName | None = None
    """uniform, balanced, random, magnitude, taylor or fastnas (`bcnet.baseline`)."""
    balance_exponent: float = Field(default=BALANCE_EXPONENT, ge=0, le=2)
    """Share of a layer's multiply-adds in `balanced`: its positions to this power."""
    random_networks: Count = 20
    """Networks that are trained to be scored, by the baseline random and the scorer trainings."""
    random_epochs: Count | None = None
    """Epochs of each of them (50, but no more than the final networks')."""
    random_continued: bool = False
    """Go on with the best random network's own training (on in the paper), and do not train its widths anew."""


class FinalSettings(Section):
    """How the final networks are trained."""

    section: ClassVar[str] = "final"
    title: ClassVar[str] = "Final networks"

    final: Recipe
    """The recipe of all final networks."""
    final_from: FinalFrom = "scratch"
    """What they start from: scratch, or for fine-tuning the supernet, pretrained weights, or the trained original."""
    final_seed: Seed | None = None
    """Seed of their training, where not that of the run."""
    widths: tuple[Count, ...] | None = None
    """Widths to train instead of searching for some."""
    examples: int = Field(default=4, ge=0, le=24)
    """Test images that the report shows, with what each network gives."""


class MachineSettings(Section):
    """What the run computes on; where left open, what is best here when it starts."""

    section: ClassVar[str] = "machine"
    title: ClassVar[str] = "Machine"

    threads: int | None = Field(default=None, gt=0, le=4096)
    """CPU threads (torch's own number, or a container's quota)."""
    device: str | None = None
    """cpu or cuda (the best there is)."""
    processes: Count = 1
    """Processes that share every batch, as torchrun started them."""


SECTIONS: tuple[type[Section], ...] = (
    SubjectSettings,
    SpaceSettings,
    SupernetSettings,
    PriorSettings,
    ScoringSettings,
    SearchSettings,
    FinalistSettings,
    BaselineSettings,
    FinalSettings,
    MachineSettings,
)
SECTION_OF = {name: part for part in SECTIONS for name in part.model_fields}


def in_sections(*names: str) -> frozenset[str]:
    """The names of all settings in these sections, by their keys in files.

    Example: `in_sections("finalists") == {"rescored", "finalist_epochs"}`.
    """
    return frozenset(name for name, part in SECTION_OF.items() if part.section in names)


_RECIPES = {"supernet": "recipe", "final": "recipe"}  # setting -> key within its section, which has the same name


class Settings(
    MachineSettings,
    FinalSettings,
    BaselineSettings,
    FinalistSettings,
    SearchSettings,
    ScoringSettings,
    PriorSettings,
    SupernetSettings,
    SpaceSettings,
    SubjectSettings,
):
    """All settings of a run: those of the `SECTIONS`.

    What the recipes say about steps that go wrong (`bcnet.train.recipe.HEALTH`) may change from one start of a run to
    the next; all other settings are its identity.

    Raises:
        RecipeError: made by `make_settings` from values out of range.
    """

    @property
    def budget(self) -> Budget:
        """The budget, as given; measures of the user's own are known by name only."""
        return Budget({measure_called(name): limit for name, limit in self.limits.items()})

    @property
    def metric(self) -> str:
        """What scores are: "accuracy" or "loss", or "own"."""
        return self.score if self.own_score is None and self.task == "classification" else "own"

    @property
    def seed_of_networks(self) -> int:
        """The seed of every network that is trained by itself."""
        return self.seed if self.final_seed is None else self.final_seed

    @property
    def has_supernet(self) -> bool:
        """Whether the run trains a supernet, to search on it."""
        return self.widths is None and self.baseline is None and self.scorer == "supernet"

    @property
    def has_trials(self) -> bool:
        """Whether candidates are scored by trainings of their own."""
        searched = self.baseline is None and self.scorer == "trainings"
        return self.widths is None and (self.baseline == "random" or searched)

    @property
    def candidates(self) -> int:
        """How many are scored at most, by a searcher of ours."""
        return self.random_networks if self.has_trials else self.population * self.generations

    @property
    def method(self) -> str:
        """How the widths are found: "given", a baseline's name, or "search"."""
        if self.widths is not None:
            return "given"
        if self.baseline is not None:
            return self.baseline
        mine = {"strategy": self.strategy, "searcher": self.searcher}
        return next((name for name, theirs in SLIMMING.items() if theirs == mine), "search")

    @property
    def needs_prior(self) -> bool:
        """Whether the search starts from the prior."""
        return self.has_supernet and (self.searcher in FROM_PRIOR or TAKES_PRIOR in self.searcher)

    @property
    def scores_candidates(self) -> bool:
        """Whether the widths are the best of scored candidates."""
        return self.has_supernet or self.has_trials

    @property
    def trial(self) -> Recipe:
        """How networks are trained to be scored: as final ones, but for fewer epochs."""
        return self.trial_of(self.random_epochs or min(_USUAL_RANDOM_EPOCHS, self.final.epochs))

    def trial_of(self, epochs: int) -> Recipe:
        """The same, for so many epochs."""
        return self.final.model_copy(update={"epochs": epochs, "distillation": None})

    def to_document(self) -> dict[str, Any]:
        """Plain data by section, for files."""
        flat = self.model_dump(mode="json")
        document: dict[str, Any] = {}
        for part in SECTIONS:
            values = {_RECIPES.get(name, name): flat[name] for name in part.model_fields}
            document |= {part.section: values} if part.section else values
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Settings:
        """The settings that `to_document` wrote.

        Raises:
            ValidationError: they are none of this version.
        """
        return cls.model_validate(flattened(document))

    def fingerprint(self) -> str:
        """A hash of the run's identity: it ties the files of a run to each other.

        Settings at their defaults do not count, so that a version with one setting more still reads earlier runs.
        """
        document = json.dumps(_beyond_defaults(self), sort_keys=True)
        return hashlib.sha256(document.encode()).hexdigest()[:16]

    def identity(self) -> dict[str, Any]:
        """All settings, as JSON takes them, but for those that may change."""
        return self.model_dump(mode="json", exclude={"supernet": set(HEALTH), "final": set(HEALTH)})

    def resolved(self, stored: Settings | None = None, *, largest_activation: int = 0) -> Settings:
        """The settings with what was left open taken from `stored`, else by the rules of `machine` for this one.

        That are device, threads, precisions, layout and `score_batch_size`; `largest_activation` is in bytes for one
        image at full width.

        Raises:
            RecipeError: the device is none that torch has here, or cannot compute in the precision.
        """
        device = self.device or (stored.device if stored else None) or best_device()
        place = check_device(device)
        before = stored or self
        resolved: dict[str, Any] = {
            "device": device,
            "threads": self.threads or before.threads or usual_threads(),
            "layout": layout_of(self.layout if self.layout != "auto" else before.layout, place),
            "score_batch_size": self.score_batch_size
            or before.score_batch_size
            or score_batch(largest_activation, free_bytes(place)),
        }
        for name in ("supernet", "final"):
            recipe: Recipe = getattr(self, name)
            precision = recipe.precision
            if precision == "auto" and stored is not None:
                precision = getattr(stored, name).precision
            precision = precision_of(precision, place, largest_activation)
            resolved[name] = recipe.model_copy(update={"precision": precision})
        return self.model_copy(update=resolved)

    def flat(self) -> dict[str, Any]:
        """All settings, with a dot between a recipe and its keys."""
        return _flat(self.model_dump(mode="json"))

    def first_difference(self, other: Settings) -> tuple[str, Any, Any] | None:
        """Key, own value and other value of the first setting of the identity that differs, or None."""
        mine, theirs = (_flat(s.identity()) for s in (self, other))
        for key in dict.fromkeys((*mine, *theirs)):
            if mine.get(key) != theirs.get(key):
                return key, self.flat().get(key), other.flat().get(key)
        return None


def limits_of(budget: Budget) -> dict[str, int | float]:
    """The settings' `limits` of a budget.

    Raises:
        BudgetError: it is none.
    """
    if not isinstance(budget, Budget):
        raise BudgetError(f"a budget is a bcnet.Budget; got {budget!r}: write Budget(macs=0.5), for instance")
    return {measure.description: limit for measure, limit in budget.limits.items()}


def flattened(document: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name, of a document that has them by section; what is none of a section is kept as it is."""
    flat: dict[str, Any] = {}
    sections = {part.section for part in SECTIONS if part.section}
    for key, value in document.items():
        if key in sections and isinstance(value, Mapping):
            flat |= {key if name == "recipe" else name: inner for name, inner in value.items()}
        else:
            flat[key] = value
    return flat


def make_settings(**values: Any) -> Settings:
    """Checked settings.

    Raises:
        RecipeError: the key at fault, what was expected, what was got.
    """
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise RecipeError(f"settings: {describe(error, tuple(SECTION_OF))}") from None
    for recipe in (settings.supernet, settings.final):
        if recipe.batch_size < settings.processes:
            raise RecipeError(
                f"the processes of a run share every batch; got batch_size {recipe.batch_size} for "
                f"{settings.processes} processes: raise it (--set batch_size=...), or start fewer"
            )
    if settings.random_continued and settings.baseline != "random":
        raise RecipeError(
            "random_continued goes on with the training of the best network of the baseline random; got baseline "
            f"{settings.baseline!r}: leave it out"
        )
    if settings.random_continued and settings.finalist_epochs is not None:
        raise RecipeError(
            "random_continued goes on with a training like all others, and finalists are trained for longer; got "
            f"finalist_epochs {settings.finalist_epochs}: leave out one of the two"
        )
    if settings.has_trials and settings.finalist_epochs is not None:
        first = settings.trial.epochs
        most = settings.final.epochs
        if not first < settings.finalist_epochs <= most:
            raise RecipeError(
                f"finalist_epochs is more than the {first} epochs of all candidates, and at most the {most} of final "
                f"networks; got {settings.finalist_epochs}"
            )
    return settings


def _beyond_defaults(model: BaseModel) -> dict[str, Any]:
    """The fields that differ from their defaults, those of recipes too, as JSON takes them; none that may change."""
    told = {}
    for name, value in model.model_dump(mode="json", exclude=set(HEALTH)).items():
        field = type(model).model_fields[name]
        given = getattr(model, name)
        if isinstance(given, Recipe):
            told[name] = _beyond_defaults(given)
        elif field.is_required() or given != field.get_default(call_default_factory=True):
            told[name] = value
    return told


def _flat(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
