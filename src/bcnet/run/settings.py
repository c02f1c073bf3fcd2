"""Settings of a run: everything its result depends on, stored in `settings.json` when it starts.

Every setting is one field of the model it belongs to, with its unit and default: those of the run here, those of a
method beside its code (`bcnet.methods`). The arguments of `bcnet.search`, `settings.json`, YAML files for
`bcnet search FILE` and the documentation's page of settings are generated from these fields.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

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

from bcnet.costs import Budget, check_budget, measure_called
from bcnet.errors import RecipeError
from bcnet.machine.defaults import Layout, layout_of, precision_of, score_batch, trains_side_by_side, usual_threads
from bcnet.machine.devices import Precision, best_device, check_device
from bcnet.methods.base import Method, Seed, Start, is_custom, method_from_document
from bcnet.methods.supernet import SupernetMethod
from bcnet.train import Recipe
from bcnet.train.recipe import HEALTH, Count, describe

ALL = ("",)
"""Prefixes of the names of all settings (`Settings.identity`)."""


_CHANGEABLE = (*HEALTH, "workers", "at_once")
"""Settings that may change when a run is resumed."""


class Section(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    title: ClassVar[str] = ""
    """Title for people."""


class GivenSection(Section):
    """Section that is an argument of `bcnet.search`.

    Raises:
        RecipeError: the key, the expected value, and the value received.
    """

    argument: ClassVar[str]

    if not TYPE_CHECKING:  # type checkers read the fields

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise RecipeError(f"{self.argument}: {describe(error, tuple(type(self).model_fields))}") from None


class SpaceSettings(GivenSection):
    """Settings of the admissible widths."""

    title: ClassVar[str] = "Width space"
    argument: ClassVar[str] = "space"

    num_choices: Count = 20
    """Number of widths per group, K in floor(l * k / K)."""
    min_ratio: float = Field(default=0.0, ge=0, le=1)
    """Smallest width in the search, as a share of the group's full width; supernet training stays fair."""
    min_width: int | dict[str, int] | None = None
    """Smallest width of every group, or of layers matched by patterns; applies to Uniform and balanced widths too."""
    multiple_of: int | Literal["fast", "auto"] | dict[str, int] = "fast"
    """Width multiple, Uniform's widths included: a number.

    Fast (8 or 4, as engines prefer); auto (from a calibration).
    """
    ignore: tuple[str, ...] = ()
    """Layers pinned at full width, by pattern (layer4.*)."""
    only: tuple[str, ...] = ()
    """Layers to search, by pattern; all others are pinned."""
    widen: float = Field(default=1.0, ge=1, le=4)
    """Largest width relative to the model's own; 1.5 to search at 1.0 of its MACs."""

    @property
    def note(self) -> str:
        """Return a remark on the cost of unaligned widths on devices if widths may be unaligned; else ""."""
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


class RunOptions(GivenSection):
    """Options that most runs leave unset: held-out images, the machine, and the content of the report."""

    title: ClassVar[str] = "Options"
    argument: ClassVar[str] = "options"

    image_size: Count | None = None
    """Height and width of the images in pixels, for data given by name; default: the model's usual size."""
    validation_fraction: float = Field(default=0.1, gt=0, lt=0.5)
    """Share of the training images that scores candidates."""
    fresh_fraction: float = Field(default=0.1, gt=0, lt=0.5)
    """Share of the training images that scores the best candidates again."""
    score_batch_size: Count | None = None
    """Batch size of scoring, from which batch norm computes its statistics (2,048, or fewer for large images)."""
    training_seed: Seed | None = None
    """Seed of the training of networks; default: that of the run."""
    examples: int = Field(default=4, ge=0, le=24)
    """Number of test images in the report, with each network's outputs."""
    layout: Layout = "auto"
    """Memory format of the supernet's weights: auto, contiguous or channels_last."""
    threads: int | None = Field(default=None, gt=0, le=4096)
    """Number of CPU threads (default: torch's own, or a container's quota)."""
    candidate_threads: int | None = Field(default=None, gt=0, le=4096)
    """CPU threads of a candidate's training (1 if several are trained at once, else `threads`)."""
    at_once: int | None = Field(default=None, gt=0, le=4096)
    """Candidates trained at once, in separate processes (for small networks as many as threads)."""
    workers: int | None = Field(default=None, ge=0, le=64)
    """Processes that decode image files; 0 decodes in the main process (one per core, up to 8)."""
    device: str | None = None
    """Device: cpu or cuda (the best one available)."""
    processes: Count = 1
    """Processes that share every batch, as started by torchrun."""

    @property
    def side_by_side(self) -> int:
        """Number of candidates trained at once, with one thread each; 1 for one after the other."""
        return self.at_once or (self.threads or 1) // (self.candidate_threads or self.threads or 1)

    @property
    def fresh_share(self) -> float:
        """Share of all held-out images that scores the best candidates again."""
        return self.fresh_fraction / (self.fresh_fraction + self.validation_fraction)


class Settings(Section):
    """All settings of a run. The user's own objects are represented by descriptions.

    `workers`, `at_once` and the recipes' settings for failed steps (`bcnet.train.recipe.HEALTH`) affect no figure and
    may change when a run is resumed. All other settings are its identity.

    Raises:
        RecipeError: from `make_settings`, for invalid values.
    """

    title: ClassVar[str] = "Run"

    model: str
    """Network: a name, or a description of the object that was passed in."""
    data: str
    """Data set: a name, or a description of the object that was passed in."""
    limits: dict[str, StrictInt | StrictFloat] = Field(default_factory=dict)
    """Budget: the limit of each measure, as a ratio of the original (float) or a count (int)."""
    task: str = "classification"
    """Task: classification, another task by name, or the description of a custom task."""
    method: Annotated[SerializeAsAny[Method], BeforeValidator(method_from_document)]
    """Search method."""
    training: Recipe
    """Recipe of the final networks."""
    start: Start = "scratch"
    """Initial weights: scratch, the trained original, pretrained weights, or the supernet."""
    seed: Seed = 0
    """Seed of every random draw."""
    loss: str | None = None
    """Name of a custom loss that replaces cross-entropy."""
    teacher: str | None = None
    """Description of a custom teacher that replaces the original as teacher."""
    custom_score: str | None = None
    """Name of a custom score that replaces the method's."""
    pretrained: str | None = None
    """Digest of the given pretrained weights."""
    own_stages: tuple[str, ...] = ()
    """Names of the user's own stages."""
    space: SpaceSettings = SpaceSettings()
    """Admissible widths."""
    options: RunOptions = RunOptions()
    """Options that most runs leave unset."""

    @property
    def budget(self) -> Budget:
        """Budget as given; custom measures have their names only."""
        return Budget({measure_called(name): limit for name, limit in self.limits.items()})

    @property
    def metric(self) -> Literal["accuracy", "loss", "own"]:
        """Kind of the scores: "accuracy", "loss" or "own"."""
        if self.custom_score is not None or self.task != "classification":
            return "own"
        score: Literal["accuracy", "loss"] = getattr(self.method, "score", "accuracy")
        return score

    @property
    def training_seed(self) -> int:
        """Seed of the training of networks."""
        return self.seed if self.options.training_seed is None else self.options.training_seed

    @property
    def supernet_recipe(self) -> Recipe:
        """Recipe of the supernet; that of the final networks if there is no supernet or its recipe is not set yet."""
        supernet = self.method.training if isinstance(self.method, SupernetMethod) else self.training
        return supernet if isinstance(supernet, Recipe) else self.training

    def to_document(self) -> dict[str, Any]:
        """Return plain data for files; `from_document` is the inverse."""
        return self.model_dump(mode="json")

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Return the settings that `to_document` wrote.

        Raises:
            ValidationError: the document is not valid in this version.
        """
        return cls.model_validate(document)

    def fingerprint(self) -> str:
        """Return a hash of the run's identity, which ties its files together.

        Settings at their defaults are left out, so a version with more settings still reads earlier runs.
        """
        document = json.dumps(_beyond_defaults(self), sort_keys=True)
        return hashlib.sha256(document.encode()).hexdigest()[:16]

    def identity(self) -> dict[str, Any]:
        """Return the settings that identify the run, by dotted names, as JSON values."""
        return {name: value for name, value in self.flatten().items() if name.rpartition(".")[2] not in _CHANGEABLE}

    def flatten(self) -> dict[str, Any]:
        """Return all settings by dotted names, such as `training.lr`."""
        return _flatten(self.to_document())

    def resolve(
        self,
        stored: Settings | None = None,
        *,
        largest_activation: int = 0,
        may_fork: bool = False,
        computes_in: Callable[[Precision, Any], bool] = lambda precision, device: True,
    ) -> Settings:
        """Return the settings with unset values taken from `stored`, or chosen by the rules of `bcnet.machine`.

        These are device, threads, precisions, layout and `score_batch_size`. `largest_activation` is in bytes for one
        image at full width. `may_fork`: candidates may be trained in copies of this process. `computes_in`: returns
        whether the network runs in a precision; if not, "auto" means fp32.

        Raises:
            RecipeError: torch does not have the device here, or it cannot compute in the precision.
        """
        # A resumed run keeps what it chose before, even on another machine, so that its numbers stay the same.
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
            requested = precision
            precision = precision_of(requested, place, largest_activation)
            if stored is None and not computes_in(precision, place):
                if requested != "auto":
                    raise RecipeError(
                        f"precision {requested} is for networks that compute in it; this one has an operator without "
                        f"it, or one with wrong gradients, on a {place.type}: take fp32 or auto"
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
        """Return 1 if several candidates are trained at once, None if each uses all threads."""
        if not self.method.trains_candidates or self.options.processes > 1:
            return None
        if at_once is None:
            several = trains_side_by_side(largest_activation * self.training.batch_size)
        else:
            several = at_once > 1
        return 1 if several else None

    def first_difference(self, other: Settings) -> tuple[str, Any, Any] | None:
        """Return key, own value and other value of the first setting of the identity that differs, or None."""
        mine, theirs = (s.identity() for s in (self, other))
        for key in dict.fromkeys((*mine, *theirs)):
            if mine.get(key) != theirs.get(key):
                return key, mine.get(key), theirs.get(key)
        return None


def limits_of(budget: Budget) -> dict[str, int | float]:
    """Return a budget as the settings' `limits`.

    Raises:
        BudgetError: not a budget.
    """
    return {measure.description: limit for measure, limit in check_budget(budget).limits.items()}


def make_settings(**values: Any) -> Settings:
    """Return validated settings.

    Raises:
        RecipeError: the key, the expected value, and the value received.
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


def make_section(kind: type[GivenSection], given: Any) -> Any:
    """Return a section from an object, a mapping of its fields, or None for the defaults.

    Raises:
        RecipeError: the key, the expected value, and the value received.
    """
    if isinstance(given, kind):
        return given
    try:
        fields = dict(given or {})
    except (TypeError, ValueError):
        raise RecipeError(
            f"{kind.argument} must be a bcnet.{kind.__name__} or a mapping of its fields; got {given!r}"
        ) from None
    return kind(**{str(name): value for name, value in fields.items()})


def _beyond_defaults(model: BaseModel) -> dict[str, Any]:
    """Return the identity's fields that differ from their defaults, including nested ones, as JSON values."""
    dumped = model.model_dump(mode="json", exclude=set(_CHANGEABLE))
    if isinstance(model, Method) and is_custom(model):
        return dumped  # defaults are known to the user's code only
    changed: dict[str, Any] = {"name": model.name} if isinstance(model, Method) else {}
    for name, field in type(model).model_fields.items():
        if name in _CHANGEABLE:
            continue
        given = getattr(model, name)
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        if not field.is_required() and given == default:
            continue
        value = _beyond_defaults(given) if isinstance(given, BaseModel) else dumped[name]
        if value != {} or not isinstance(default, BaseModel):  # otherwise only settings that may change differ
            changed[name] = value
    return changed


def _flatten(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
