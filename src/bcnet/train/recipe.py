"""Training recipes: all settings of an optimization as one validated value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    ValidationError,
    model_validator,
)

from bcnet.errors import RecipeError
from bcnet.machine.devices import Precision
from bcnet.measurement import Count as Count
from bcnet.train.yaml_text import MOST_CHARACTERS, parse_yaml

_MOST_SHOWN = 200
_KINDS = ("schedule", "augmentation")
# Names that pydantic gives the members of a union of types.
_MEMBER = re.compile(r"(int|float|str|bool|none|constrained-\w+|literal|dict|tuple|list|function-\w+)(\[.*\])?")
HEALTH = ("on_bad_step", "max_bad_steps", "explosion_factor")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Cosine(_Frozen):
    """Half a cosine from the recipe's `lr`, after warm-up, to `final_lr` at the last step."""

    kind: Literal["cosine"] = "cosine"
    final_lr: float = Field(default=0.0, ge=0)


class Steps(_Frozen):
    """`lr` times `factor` for every milestone (in epochs) passed.

    Example: VGG19 on CIFAR-10, `Steps(milestones=(160, 240), factor=0.1)`.
    """

    kind: Literal["step"] = "step"
    milestones: tuple[Count, ...]
    factor: float = Field(default=0.1, gt=0, le=1)


class Exponential(_Frozen):
    """`lr` times `factor` every `every_epochs` epochs, counted from the first epoch.

    Example: EfficientNet-B0, `Exponential(factor=0.963, every_epochs=3)`.
    """

    kind: Literal["exponential"] = "exponential"
    factor: float = Field(gt=0, le=1)
    every_epochs: Count = 1


class Distillation(_Frozen):
    """Distillation from a teacher's logits: `weight` is the teacher's share of the loss (Hinton et al., 2015)."""

    temperature: PositiveFloat = 4.0
    weight: float = Field(default=0.5, ge=0, le=1)


class Crop(_Frozen):
    """Random crops after zero padding of `padding` pixels, and horizontal flips; for small images.

    Example: CIFAR-10, `Crop(padding=4)`.
    """

    kind: Literal["crop"] = "crop"
    padding: NonNegativeInt = 4
    flip: bool = True


class AreaCrop(_Frozen):
    """Random parts of `min_area` to all of the image's area, resized, with flips and colour jitter; for large images.

    Example: ImageNet, `AreaCrop(min_area=0.08, colour_jitter=0.4)`.
    """

    kind: Literal["resized-crop"] = "resized-crop"
    min_area: float = Field(default=0.08, gt=0, le=1)
    flip: bool = True
    colour_jitter: float = Field(default=0.0, ge=0, lt=1)


Schedule = Annotated[Cosine | Steps | Exponential, Field(discriminator="kind")]
Augmenting = Annotated[Crop | AreaCrop, Field(discriminator="kind")]


class Recipe(_Frozen):
    """Training of a network or a supernet (spec, section 7).

    `lr` is the peak learning rate for this batch size. `momentum` is AdamW's first beta (the second is 0.999).
    `weight_decay` applies to every parameter, as in the paper, unless `decay_norm_and_bias` is off. `augmentation`
    defaults to the data set's. `clip_norm` limits the gradient's L2 norm. `precision` "auto" takes bf16 if the device
    supports it and computes the network correctly, fp16 on older GPUs, and fp32 otherwise.

    `accumulate` splits each batch into parts that are computed one after the other, to save memory; batch norm then
    sees one part at a time. `ema` ends with a moving average of weights and batch-norm statistics, of which this share
    is kept at each step (at first less, `(1 + step) / (10 + step)`). `early_stopping` ends the training of a final
    network after this number of epochs without a lower loss on held-out images, and keeps the weights of the best
    epoch; networks then train without these images.

    The settings in `HEALTH` control failed steps (`bcnet.train.health`) and may change when a run is resumed.
    `on_bad_step` "skip" skips steps whose loss or gradient is not finite, at most `max_bad_steps` in a row. A loss
    above `explosion_factor` times its usual size for several steps ends the run; None disables this check.

    Example: `Recipe(lr=0.1, batch_size=128, epochs=400, schedule=Steps(milestones=(160, 240)), weight_decay=1e-4)`.
    """

    optimizer: Literal["sgd-nesterov", "rmsprop", "adamw"] = "sgd-nesterov"
    lr: PositiveFloat
    momentum: float = Field(default=0.9, gt=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    decay_norm_and_bias: bool = True
    batch_size: Count
    epochs: Count
    schedule: Schedule = Cosine()
    warmup_epochs: float = Field(default=0.0, ge=0)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    augmentation: Augmenting | None = None
    precision: Precision = "auto"
    clip_norm: PositiveFloat | None = None
    accumulate: Count = 1
    ema: float | None = Field(default=None, gt=0, lt=1)
    early_stopping: Count | None = None
    on_bad_step: Literal["stop", "skip"] = "stop"
    max_bad_steps: Count = 10
    explosion_factor: float | None = Field(default=20.0, gt=1)
    distillation: Distillation | None = None

    if not TYPE_CHECKING:  # type checkers read the fields

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                known = tuple(Recipe.model_fields)
                lacks = any(fault["type"] == "missing" for fault in error.errors(include_url=False))
                advice = "; changes to the recipe that suits model and data are a mapping, training={'epochs': 3}"
                raise RecipeError(f"{describe(error, known)}{advice if lacks else ''}") from None

    @model_validator(mode="after")
    def _check_possible(self) -> Recipe:
        if isinstance(self.schedule, Cosine) and self.schedule.final_lr > self.lr:
            raise ValueError(f"'schedule.final_lr' must be at most 'lr', {self.lr:g}; got {self.schedule.final_lr:g}")
        if isinstance(self.schedule, Steps) and list(self.schedule.milestones) != sorted(set(self.schedule.milestones)):
            raise ValueError(f"'schedule.milestones' must ascend; got {list(self.schedule.milestones)}")
        if self.accumulate > self.batch_size:
            raise ValueError(f"'accumulate' must be at most 'batch_size', {self.batch_size}; got {self.accumulate}")
        return self

    def with_changes(self, changes: Mapping[str, Any]) -> Recipe:
        """Return the recipe with other values; a dot addresses a nested field.

        Example: `recipe.with_changes({"epochs": 20, "schedule.final_lr": 1e-4})`.

        Raises:
            RecipeError: an unknown key, or a value of the wrong type.
        """
        document = self.model_dump()
        for key, value in changes.items():
            _set_value(document, key, value)
        return parse_recipe(document)


def parse_recipe(document: Any, *, source: str = "the recipe") -> Recipe:
    """Return a recipe from plain data, as read from YAML or JSON.

    Raises:
        RecipeError: the key, the expected value, and the value received.
    """
    if not isinstance(document, Mapping):
        raise RecipeError(f"{source} must be a mapping of settings to values; got {type(document).__name__}")
    try:
        return Recipe.model_validate(document)
    except ValidationError as error:
        raise RecipeError(f"{source}: {describe(error, tuple(Recipe.model_fields))}") from None


def describe(error: ValidationError, known: tuple[str, ...] = ()) -> str:
    """Return one line per fault of a pydantic error: the key, the expected value, and the value received."""
    faults: dict[Any, Any] = {}
    for number, fault in enumerate(error.errors(include_url=False)):
        *field, last = fault["loc"] or ("",)
        if not field or not _MEMBER.fullmatch(str(last)):
            faults[number] = fault
            continue
        # A union reports one fault per member, ("min_width", "int") and ("min_width", "dict[str,int]").
        first = faults.setdefault(tuple(field), {**fault, "loc": tuple(field), "msg": ""})
        first["msg"] += f"{', or ' if first['msg'] else ''}{_rule_of(fault)}"
    return "; ".join(_describe_fault(fault, known) for fault in faults.values())


def recipe_names() -> tuple[str, ...]:
    """Return the names of the built-in recipes."""
    return tuple(sorted(f.name.removesuffix(".yaml") for f in _shelf().iterdir() if f.name.endswith(".yaml")))


def load_recipe(name_or_path: str | Path) -> Recipe:
    """Return a recipe by name (see `recipe_names`), or from a YAML file.

    Raises:
        RecipeError: no such recipe or file, not YAML, or not a recipe.
    """
    name = str(name_or_path)
    if name in recipe_names():
        return _parse_yaml((_shelf() / f"{name}.yaml").read_text(encoding="utf-8"), source=f"recipe {name}")
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        raise RecipeError(f"a recipe must be a .yaml file or one of {', '.join(recipe_names())}; got {name!r}")
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"recipe file {name} cannot be read: {error}: check the path") from None
    return _parse_yaml(text, source=f"recipe file {name}")


def _parse_yaml(text: str, *, source: str) -> Recipe:
    try:
        document = parse_yaml(text)
    except ValueError as error:
        raise RecipeError(f"{source} must be YAML; got text that is not: {error}") from None
    return parse_recipe(document, source=source)


def _shelf() -> Any:
    return resources.files("bcnet.train") / "recipes"


def _set_value(document: dict[str, Any], key: str, value: Any) -> None:
    *outer, last = key.split(".")
    place: Any = document
    for part in outer:
        if place.get(part) is None:
            place[part] = {}
        place = place[part]
        if not isinstance(place, dict):
            raise RecipeError(f"recipe key {key!r}: {part!r} has no settings inside; set it directly")
    if len(outer) == 1 and outer[0] in _KINDS and last == "kind":
        place.clear()  # settings of one kind do not apply to another
    place[last] = value


def _describe_fault(fault: Any, known: tuple[str, ...]) -> str:
    # pydantic names the kind of `schedule` and `augmentation` too: ("schedule", "cosine", "final_lr").
    parts = [str(part) for part in fault["loc"]]
    if len(parts) > 1 and (parts[0] in _KINDS or _MEMBER.fullmatch(parts[1])):
        del parts[1]
    key = ".".join(parts) or "settings"
    if fault["type"] == "extra_forbidden":
        if not known or len(fault["loc"]) > 1:
            return f"unknown key {key!r}"
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]!r}? The" if near else "the"
        return f"unknown key {key!r}: {hint} keys are {', '.join(known)}"
    if fault["type"] in ("union_tag_not_found", "union_tag_invalid"):
        parts_of = get_args(get_args(Schedule if key == "schedule" else Augmenting)[0])
        kinds = ", ".join(repr(part.model_fields["kind"].default) for part in parts_of)
        if fault["type"] == "union_tag_not_found":
            return f"{key!r} needs its kind beside the rest: set {key}.kind to one of {kinds} too"
        return f"'{key}.kind' must be one of {kinds}; got {_show(fault['input'].get('kind'))}"
    if fault["type"] == "missing":
        return f"key {key!r} is required, and missing"
    error = fault.get("ctx", {}).get("error")
    if isinstance(error, RecipeError):  # of a section, which has described its own faults
        return f"{key}: {str(error).removeprefix(f'{key}: ')}" if parts else str(error)
    expected = _rule_of(fault)
    if fault["type"] == "value_error" and not fault["loc"]:
        return expected  # a fault of several keys, which the message names
    return f"{key!r} must be {expected}; got {_show(fault['input'])}"


def _rule_of(fault: Any) -> str:
    return str(fault["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")


def _show(value: Any) -> str:
    """Return the value as the user wrote it, shortened if it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits
        text = f"a {type(value).__name__} too long to show"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
