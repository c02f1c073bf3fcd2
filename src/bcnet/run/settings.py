"""Settings of a run: everything that its result depends on, stored in `settings.json` when it starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, ValidationError

from bcnet.errors import RecipeError
from bcnet.machine.defaults import Layout, layout_of, precision_of, score_batch, usual_threads
from bcnet.machine.devices import best_device, check_device
from bcnet.machine.memory import free_bytes
from bcnet.progress.record import FROM_PRIOR
from bcnet.searchers import Metric
from bcnet.searchers.racing import DEFAULT_LEVEL
from bcnet.space import Budget
from bcnet.train import Recipe
from bcnet.train.recipe import HEALTH, Count, describe

FinalFrom = Literal["scratch", "supernet", "pretrained"]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
StrategyName = Literal["complementary", "bilateral", "unilateral", "unilateral-complementary"]
SearcherName = Literal["evolution", "evolution-without-prior", "greedy", "greedy-evolution", "prior-only", "random"]
BaselineName = Literal["uniform", "random", "magnitude", "fastnas"]
AUTOSLIM: tuple[StrategyName, SearcherName] = ("unilateral", "greedy")
# Unknown to runs of earlier versions:
_LATER = ("supernet_width", "searcher", "baseline", "random_networks", "random_epochs", "tune_steps", "finalist_steps")
_BEFORE = {"tune_lr_share": 0.2}  # what runs did that fine-tuned candidates and stored no such setting
_USUAL_RANDOM_EPOCHS = 50  # of the paper


class Settings(BaseModel):
    """What a run is made of.

    `model` and `data` are names, or descriptions of objects passed in. `budget_macs` and `budget_params` are as in
    `Budget`. `supernet` and `final` are the recipes of the supernet and of every final network.
    `validation_fraction` of the training images scores candidates, another `fresh_fraction` scores the `rescored` best
    again; neither takes part in training the supernet. `tune_steps` is how many steps a candidate is fine-tuned by
    itself, from the supernet's weights, before it is scored (`bcnet.stages.tuning`), `finalist_steps` the same for
    the `rescored` best before their second score, if more; `tune_lr_share` is the highest learning rate of both as a
    share of the supernet's. `score` is what is made of those images, as in
    `SupernetEvaluator`; `own_score` and `loss` name functions of the user's own in place of it and of cross-entropy.
    `pretrained` is a digest of the weights that the model was given; `final_from` is what the final
    networks start from. `pairs` says whether the supernet's complementary paths share a pass
    (`bcnet.supernet.pairs`): auto, where that should be faster. `search_seed` and `final_seed` are those of the search
    and of the networks trained from scratch where they are not `seed`. `widths`, where given, are trained instead of
    searched.
    `supernet_width` is how many times as wide as the network its supernet is, so that widths beyond the network's own
    can be found; budgets stay ratios of the network itself. `searcher` chooses the candidates that a supernet scores,
    `population` times `generations` of them. A `baseline` finds the widths without a supernet
    (`bcnet.api.baseline`): "random" trains `random_networks` for `random_epochs` each, by default for 50 but no
    longer than final networks.
    `layout` is the memory format of the supernet's weights. `threads`, `device`, `layout` and `score_batch_size`, where
    left open, are what the run started with (`bcnet.machine.defaults`); they are those of each of the `processes`,
    which share every batch. `early_stop` says whether candidates that by a bound of `early_stop_level` will not be
    retained are stopped on a part of the batches (`bcnet.searchers.racing`): auto, where the score is accuracy or loss
    on enough batches. What the recipes say about steps that go wrong (`bcnet.train.recipe.HEALTH`) may change
    from one start of a run to the next; all other settings are its identity.

    Raises:
        RecipeError: made by `make_settings` from values out of range.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: str
    data: str
    image_size: Count | None = None
    budget_macs: StrictInt | StrictFloat | None = None
    budget_params: StrictInt | StrictFloat | None = None
    seed: Seed = 0
    num_choices: Count = 20
    min_ratio: float = Field(default=0.0, ge=0, le=1)
    multiple_of: Count = 1
    ignore: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    strategy: StrategyName = "complementary"
    score: Metric = "accuracy"
    early_stop: Literal["auto", "on", "off"] = "off"
    early_stop_level: float = Field(default=DEFAULT_LEVEL, gt=0, le=0.5)
    pairs: Literal["auto", "on", "off"] = "auto"
    own_score: str | None = None
    loss: str | None = None
    pretrained: str | None = None
    final_from: FinalFrom = "scratch"
    supernet: Recipe
    final: Recipe
    population: Count = 40
    generations: Count = 50
    parents: Count = 10
    validation_fraction: float = Field(default=0.1, gt=0, lt=0.5)
    fresh_fraction: float = Field(default=0.1, gt=0, lt=0.5)
    score_batch_size: Count | None = None
    rescored: Count = 10
    tune_steps: int = Field(default=0, ge=0, lt=2**31)
    finalist_steps: int = Field(default=0, ge=0, lt=2**31)
    tune_lr_share: float = Field(default=1.0, gt=0, le=1)
    search_seed: Seed | None = None
    final_seed: Seed | None = None
    widths: tuple[Count, ...] | None = None
    supernet_width: float = Field(default=1.0, ge=1, le=4)
    searcher: SearcherName = "evolution"
    baseline: BaselineName | None = None
    random_networks: Count = 20
    random_epochs: Count | None = None
    threads: int | None = Field(default=None, gt=0, le=4096)
    device: str | None = None
    layout: Layout = "auto"
    processes: Count = 1

    @property
    def budget(self) -> Budget:
        """The budget, as given."""
        return Budget(macs=self.budget_macs, params=self.budget_params)

    @property
    def metric(self) -> str:
        """What scores are: "accuracy" or "loss", or "own"."""
        return self.score if self.own_score is None else "own"

    @property
    def seed_of_networks(self) -> int:
        """The seed of every network that is trained by itself."""
        return self.seed if self.final_seed is None else self.final_seed

    @property
    def has_supernet(self) -> bool:
        """Whether the run trains a supernet, to search on it."""
        return self.widths is None and self.baseline is None

    @property
    def method(self) -> str:
        """How the widths are found: "given", a baseline's name, "autoslim", or "search"."""
        if self.widths is not None:
            return "given"
        if self.baseline is not None:
            return self.baseline
        return "autoslim" if (self.strategy, self.searcher) == AUTOSLIM else "search"

    @property
    def needs_prior(self) -> bool:
        """Whether the search starts from the prior."""
        return self.has_supernet and self.searcher in FROM_PRIOR

    @property
    def scores_candidates(self) -> bool:
        """Whether the widths are the best of scored candidates."""
        return self.has_supernet or self.baseline == "random"

    @property
    def tunes(self) -> bool:
        """Whether candidates are fine-tuned before a score of theirs."""
        return bool(self.tune_steps or self.finalist_steps)

    @property
    def trial(self) -> Recipe:
        """How the networks are trained that the baseline "random" chooses from: as final ones, but for fewer epochs."""
        epochs = self.random_epochs or min(_USUAL_RANDOM_EPOCHS, self.final.epochs)
        return self.final.model_copy(update={"epochs": epochs, "distillation": None})

    @classmethod
    def stored(cls, document: Mapping[str, Any]) -> Settings:
        """The settings of a run on disk, which an earlier version may have stored.

        Raises:
            ValidationError: they are none of this version.
        """
        before = _BEFORE if document.get("tune_steps") or document.get("finalist_steps") else {}
        return cls.model_validate({**before, **document})

    def fingerprint(self) -> str:
        """A hash of the run's identity: it ties the files of a run to each other."""
        document = json.dumps(self.identity(), sort_keys=True)
        return hashlib.sha256(document.encode()).hexdigest()[:16]

    def identity(self) -> dict[str, Any]:
        """All settings, as JSON takes them, but for those that may change.

        What an earlier version did not know is left out where it is as it was, so that its runs go on.
        """
        document = self.model_dump(mode="json", exclude={"supernet": set(HEALTH), "final": set(HEALTH)})
        usual = {name: Settings.model_fields[name].default for name in _LATER} | _BEFORE
        if not self.tunes:
            del document["tune_lr_share"]
        return {key: value for key, value in document.items() if key not in usual or value != usual[key]}

    def settled(self, stored: Settings | None = None, *, largest_activation: int = 0) -> Settings:
        """The settings with what was left open taken from `stored`, else by the rules of `machine` for this one.

        That are device, threads, precisions, layout and `score_batch_size`; `largest_activation` is in bytes for one
        image at full width.

        Raises:
            RecipeError: the device is none that torch has here, or cannot compute in the precision.
        """
        device = self.device or (stored.device if stored else None) or best_device()
        place = check_device(device)
        before = stored or self
        settled: dict[str, Any] = {
            "device": device,
            "threads": self.threads or before.threads or usual_threads(),
            "layout": layout_of(self.layout if self.layout != "auto" else before.layout, place),
            "score_batch_size": self.score_batch_size
            or before.score_batch_size
            or score_batch(largest_activation, free_bytes(place), raced=self.early_stop == "on"),
        }
        for name in ("supernet", "final"):
            recipe: Recipe = getattr(self, name)
            precision = recipe.precision
            if precision == "auto" and stored is not None:
                precision = getattr(stored, name).precision
            precision = precision_of(precision, place, largest_activation)
            settled[name] = recipe.model_copy(update={"precision": precision})
        return self.model_copy(update=settled)

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


def make_settings(**values: Any) -> Settings:
    """Checked settings.

    Raises:
        RecipeError: the key at fault, what was expected, what was got.
    """
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise RecipeError(f"settings: {describe(error, tuple(Settings.model_fields))}") from None
    for recipe in (settings.supernet, settings.final):
        if recipe.batch_size < settings.processes:
            raise RecipeError(
                f"the processes of a run share every batch; got batch_size {recipe.batch_size} for "
                f"{settings.processes} processes: raise it (--set batch_size=...), or start fewer"
            )
    if 0 < settings.finalist_steps <= settings.tune_steps:
        raise RecipeError(
            f"finalist_steps is more than tune_steps, {settings.tune_steps}, or 0 to tune the best as all others; got "
            f"{settings.finalist_steps}"
        )
    return settings


def _flat(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
