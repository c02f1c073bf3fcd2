"""Settings of a run: everything that its result depends on, stored in `settings.json` when it starts.

Every setting is said once, as a field of the model it belongs to, with its unit and its default: the run's own here,
those of a method beside its code (`bcnet.methods`). The arguments of `bcnet.search`, `settings.json`, YAML files for
`bcnet search FILE` and the page of the documentation are made from these fields.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    StrictFloat,
    StrictInt,
    ValidationError,
    field_validator,
)

from bcnet.costs import Budget, measure_called
from bcnet.errors import BudgetError, RecipeError
from bcnet.machine.defaults import Layout, layout_of, precision_of, score_batch, trains_side_by_side, usual_threads
from bcnet.machine.devices import best_device, check_device
from bcnet.machine.precision import Precision
from bcnet.methods.base import Method, Seed, Start, is_custom, method_from_document
from bcnet.methods.supernet import SupernetMethod
from bcnet.train import Recipe
from bcnet.train.recipe import HEALTH, Count, describe

ALL = ("",)
"""Prefix of the names of all settings (`Settings.identity`)."""


_CHANGEABLE = (*HEALTH, "workers", "at_once")
"""Settings that are no part of a run's identity."""


class Section(BaseModel):
    """Settings that belong together."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    title: ClassVar[str] = ""
    """For people."""


class SpaceSettings(Section):
    """Settings of the widths that may be chosen."""

    title: ClassVar[str] = "Width space"

    num_choices: Count = 20
    """Widths each group may take, K of floor(l * k / K)."""
    min_ratio: float = Field(default=0.0, ge=0, le=1)
    """Smallest width that the search may choose, over the full width of its group; training stays fair."""
    min_width: int | dict[str, int] | None = None
    """Smallest width of every group, or of those that patterns of layers name; Uniform and balanced keep to it too."""
    multiple_of: int | Literal["fast", "auto"] | dict[str, int] = "fast"
    """Make widths, Uniform's too, multiples of this; fast: of 8 or 4, as engines like; auto: by a calibration."""
    ignore: tuple[str, ...] = ()
    """Layers pinned at full width, by pattern (layer4.*)."""
    only: tuple[str, ...] = ()
    """Search only these layers, by pattern."""
    widen: float = Field(default=1.0, ge=1, le=4)
    """Widest widths over the model's own; 1.5 to search at 1.0 of its MACs."""

    @property
    def note(self) -> str:
        """Return what widths of any number of channels cost on devices, where they may be such; else nothing."""
        if self.multiple_of != 1:
            return ""
        return (
            "Widths are any number of channels (multiple_of=1): on ONNX Runtime such a network can take as long as the "
            "original, where one in multiples of 8 or 4 takes half (`bcnet help multiples`)."
        )

    @field_validator("multiple_of", mode="before")
    @classmethod
    def _multiples(cls, value: Any) -> Any:
        counts = list(value.values()) if isinstance(value, dict) else [value]
        if value not in ("fast", "auto") and not all(type(count) is int and 0 < count < 2**31 for count in counts):
            raise ValueError("an int of at least 1, 'fast', 'auto', or an int for each group named")
        return value


class RunOptions(Section):
    """Options that most runs leave alone: images held out, the machine, and what the report shows."""

    title: ClassVar[str] = "Options"

    image_size: Count | None = None
    """Height and width of the images in pixels, where not the model's usual ones; for data given by name."""
    validation_fraction: float = Field(default=0.1, gt=0, lt=0.5)
    """Share of the training images that scores candidates."""
    fresh_fraction: float = Field(default=0.1, gt=0, lt=0.5)
    """Share of the training images that scores the best candidates again."""
    score_batch_size: Count | None = None
    """Images scored at once, whose statistics batch norm uses (2,048, or fewer of large ones)."""
    training_seed: Seed | None = None
    """Seed of the training of networks, where not that of the run."""
    examples: int = Field(default=4, ge=0, le=24)
    """Test images that the report shows, with what each network gives."""
    layout: Layout = "auto"
    """Memory format of the supernet's weights: auto, contiguous or channels_last."""
    threads: int | None = Field(default=None, gt=0, le=4096)
    """CPU threads (torch's own number, or a container's quota)."""
    candidate_threads: int | None = Field(default=None, gt=0, le=4096)
    """CPU threads of a candidate that is trained by itself (1 where several are trained at once, else `threads`)."""
    at_once: int | None = Field(default=None, gt=0, le=4096)
    """Candidates that are trained at once, in processes of their own (as many as threads, for small networks)."""
    workers: int | None = Field(default=None, ge=0, le=64)
    """Processes that decode images in files; 0 decodes in the run's own (one for each core, up to 8)."""
    device: str | None = None
    """cpu or cuda (the best there is)."""
    processes: Count = 1
    """Processes that share every batch, as torchrun started them."""

    @property
    def side_by_side(self) -> int:
        """The candidates that are trained at once, each by one thread; 1 where they follow one after the other."""
        return self.at_once or (self.threads or 1) // (self.candidate_threads or self.threads or 1)

    @property
    def fresh_share(self) -> float:
        """The share of all images held out that scores the best candidates again."""
        return self.fresh_fraction / (self.fresh_fraction + self.validation_fraction)


class Settings(Section):
    """All settings of a run. Where a value is the user's own object, a description of it.

    What the recipes say about steps that go wrong (`bcnet.train.recipe.HEALTH`), `workers` and `at_once`, on which no
    figure depends, may change from one start of a run to the next; all other settings are its identity.

    Raises:
        RecipeError: made by `make_settings` from values out of range.
    """

    title: ClassVar[str] = "Run"

    model: str
    """The network: a name, or what describes the object that was passed in."""
    data: str
    """The data set: a name, or what describes the object that was passed in."""
    limits: dict[str, StrictInt | StrictFloat] = Field(default_factory=dict)
    """The budget: the most of each measure, a ratio of the original (float) or a count (int)."""
    task: str = "classification"
    """What the network is trained for: classification, or what describes a task of the user's own."""
    method: Annotated[SerializeAsAny[Method], BeforeValidator(method_from_document)]
    """How the widths are found."""
    training: Recipe
    """The recipe of the final networks."""
    start: Start = "scratch"
    """What networks start from: scratch, the trained original, pretrained weights, or the supernet."""
    seed: Seed = 0
    """Seed of every random draw."""
    loss: str | None = None
    """Name of a custom loss, in place of cross-entropy."""
    teacher: str | None = None
    """A network of the user's that others learn from, in place of the original."""
    custom_score: str | None = None
    """Name of a custom score, in place of the method's."""
    pretrained: str | None = None
    """Digest of the weights that the model was given to start from."""
    own_stages: tuple[str, ...] = ()
    """Names of the user's own stages, which come with the library's."""
    space: SpaceSettings = SpaceSettings()
    """Which widths may be chosen."""
    options: RunOptions = RunOptions()
    """Options that most runs leave alone."""

    @property
    def budget(self) -> Budget:
        """The budget, as given; custom measures are known by name only."""
        return Budget({measure_called(name): limit for name, limit in self.limits.items()})

    @property
    def metric(self) -> Literal["accuracy", "loss", "own"]:
        """Return what scores are: "accuracy" or "loss", or "own"."""
        if self.custom_score is not None or self.task != "classification":
            return "own"
        score: Literal["accuracy", "loss"] = getattr(self.method, "score", "accuracy")
        return score

    @property
    def training_seed(self) -> int:
        """The seed of every network that is trained by itself."""
        return self.seed if self.options.training_seed is None else self.options.training_seed

    @property
    def supernet_recipe(self) -> Recipe:
        """The recipe of the supernet, or of the final networks where none is trained or it is still left open."""
        supernet = self.method.training if isinstance(self.method, SupernetMethod) else self.training
        return supernet if isinstance(supernet, Recipe) else self.training

    def to_document(self) -> dict[str, Any]:
        """Return plain data, for files; `from_document` is the inverse."""
        return self.model_dump(mode="json")

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Return the settings that `to_document` wrote.

        Raises:
            ValidationError: they are no settings of this version.
        """
        return cls.model_validate(document)

    def fingerprint(self) -> str:
        """Return a hash of the run's identity: it ties the files of a run to each other.

        Settings at their defaults do not count, so that a version with one setting more still reads earlier runs.
        """
        document = json.dumps(_beyond_defaults(self), sort_keys=True)
        return hashlib.sha256(document.encode()).hexdigest()[:16]

    def identity(self) -> dict[str, Any]:
        """Return all settings by dotted names, as JSON takes them, but for those that may change."""
        return {name: value for name, value in self.flat().items() if name.rpartition(".")[2] not in _CHANGEABLE}

    def flat(self) -> dict[str, Any]:
        """Return all settings by dotted names, `training.lr` for instance."""
        return _flat(self.to_document())

    def resolve(
        self,
        stored: Settings | None = None,
        *,
        largest_activation: int = 0,
        may_fork: bool = False,
        computes_in: Callable[[Precision, Any], bool] = lambda precision, device: True,
    ) -> Settings:
        """Return the settings with what was left open taken from `stored`, else by the rules of `bcnet.machine`.

        These are device, threads, precisions, layout and `score_batch_size`; `largest_activation` is in bytes for one
        image at full width. `may_fork` says that candidates may be trained in copies of this process, `computes_in`
        whether the network runs in a precision; where it does not, "auto" is fp32.

        Raises:
            RecipeError: the device is none that torch has here, or cannot compute in the precision.
        """
        mine = self.options
        before = mine if stored is None else stored.options
        device = mine.device or before.device or best_device()
        place = check_device(device)
        threads = mine.threads or before.threads or usual_threads()
        at_once = before.at_once if mine.at_once is None else mine.at_once
        candidate_threads = mine.candidate_threads or before.candidate_threads
        if candidate_threads is None and stored is None and may_fork and place.type == "cpu" and threads > 1:
            candidate_threads = self._threads_of_candidates(at_once, largest_activation)
        options = mine.model_copy(
            update={
                "device": device,
                "threads": threads,
                "candidate_threads": candidate_threads,
                "at_once": at_once,
                "workers": before.workers if mine.workers is None else mine.workers,
                "layout": layout_of(mine.layout if mine.layout != "auto" else before.layout, place),
                "score_batch_size": mine.score_batch_size or before.score_batch_size or score_batch(largest_activation),
            }
        )

        def complete(recipe: Recipe, earlier: Recipe | None) -> Recipe:
            precision = recipe.precision
            if precision == "auto" and earlier is not None:
                precision = earlier.precision
            wish = precision
            precision = precision_of(wish, place, largest_activation)
            if stored is None and not computes_in(precision, place):
                if wish != "auto":
                    raise RecipeError(
                        f"precision {wish} is for networks that compute in it; this one has an operator without, or "
                        f"one with wrong gradients on a {place.type}: take fp32 or auto"
                    )
                precision = "fp32"
            return recipe.model_copy(update={"precision": precision})

        method = self.method
        if isinstance(method, SupernetMethod):
            earlier = None if stored is None else stored.supernet_recipe
            method = method.model_copy(update={"training": complete(method.recipe, earlier)})
        training = complete(self.training, None if stored is None else stored.training)
        return self.model_copy(update={"options": options, "method": method, "training": training})

    def _threads_of_candidates(self, at_once: int | None, largest_activation: int) -> int | None:
        """1 where several candidates are to be trained at once, None where each is given all threads."""
        if not self.method.trains_candidates or self.options.processes > 1:
            return None
        small = trains_side_by_side(largest_activation * self.training.batch_size)
        return 1 if (small if at_once is None else at_once > 1) else None

    def first_difference(self, other: Settings) -> tuple[str, Any, Any] | None:
        """Return key, own value and other value of the first setting of the identity that differs, or None."""
        mine, theirs = (s.identity() for s in (self, other))
        for key in dict.fromkeys((*mine, *theirs)):
            if mine.get(key) != theirs.get(key):
                return key, mine.get(key), theirs.get(key)
        return None


def limits_of(budget: Budget) -> dict[str, int | float]:
    """Return the settings' `limits` of a budget.

    Raises:
        BudgetError: it is no budget.
    """
    if not isinstance(budget, Budget):
        raise BudgetError(f"a budget is a bcnet.Budget; got {budget!r}: write Budget(macs=0.5), for instance")
    return {measure.description: limit for measure, limit in budget.limits.items()}


def make_settings(**values: Any) -> Settings:
    """Return checked settings.

    Raises:
        RecipeError: the key at fault, what was expected, what was got.
    """
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise RecipeError(f"settings: {describe(error, tuple(Settings.model_fields))}") from None
    for recipe in (settings.supernet_recipe, settings.training):
        if recipe.batch_size < settings.options.processes:
            raise RecipeError(
                f"the processes of a run share every batch; got batch_size {recipe.batch_size} for "
                f"{settings.options.processes} processes: raise it (--set batch_size=...), or start fewer"
            )
    return settings


def make_section(kind: type[Section], given: Any, name: str) -> Any:
    """Return a section from a value of it, a mapping of its fields, or None for the defaults.

    Raises:
        RecipeError: the key at fault, what was expected, what was got.
    """
    if isinstance(given, kind):
        return given
    try:
        return kind.model_validate(dict(given or {}))
    except ValidationError as error:
        raise RecipeError(f"{name}: {describe(error, tuple(kind.model_fields))}") from None
    except (TypeError, ValueError):
        raise RecipeError(f"{name} is a bcnet.{kind.__name__} or a mapping of its fields; got {given!r}") from None


def _beyond_defaults(model: BaseModel) -> dict[str, Any]:
    """The fields of the identity that differ from their defaults, those of models inside too, as JSON takes them."""
    dumped = model.model_dump(mode="json", exclude=set(_CHANGEABLE))
    if isinstance(model, Method) and is_custom(model):
        return dumped  # whose defaults only the user's code knows
    told: dict[str, Any] = {"name": model.name} if isinstance(model, Method) else {}
    for name, field in type(model).model_fields.items():
        if name in _CHANGEABLE:
            continue
        given = getattr(model, name)
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        if not field.is_required() and given == default:
            continue
        value = _beyond_defaults(given) if isinstance(given, BaseModel) else dumped[name]
        if value != {} or not isinstance(default, BaseModel):  # else it differs in what may change alone
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
