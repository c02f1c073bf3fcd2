"""Base class of search methods, and how a method is read from text and from documents."""

from __future__ import annotations

import difflib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from bcnet.errors import RecipeError
from bcnet.importing import import_object
from bcnet.space import Budget, Widths, WidthSpace
from bcnet.train.recipe import Recipe, describe

Start = Literal["scratch", "original", "pretrained", "supernet"]
"""Initial weights of networks that are trained on their own."""
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Kept = tuple[tuple[int, ...], ...]
"""Channels of each group that a pruner kept."""


@dataclass(frozen=True)
class Request:
    """Facts that complete a method before a run starts.

    `training` is the recipe of the final networks and `start` their initial weights. `trained_share` is the share of
    the training images that candidates are trained on. `space` is traced on first access.
    """

    training: Recipe
    start: Start
    trained_share: float
    budget: Budget
    trace: Callable[[], WidthSpace]

    @cached_property
    def space(self) -> WidthSpace:
        """The width space of the model."""
        return self.trace()


class Context(Protocol):
    """View of a run that methods receive: a `bcnet.stages.Context`."""

    @property
    def workload(self) -> Any:
        """Model, data, `space` and `budget` (`bcnet.run.workload.Workload`)."""

    def output(self, name: str) -> Any:
        """Return the output of the stage `name`, running the stage if necessary."""


class Method(BaseModel):
    """A way to find the widths of a run. Subclass it, set `name`, and implement `widths`.

    Fields are settings of the run: they are stored, compared when the run is resumed, and shown in the report. They are
    validated when the object is made. The class attributes say which other stages a run of the method has.

    Example: halve every group,

        class Half(bcnet.Method):
            name = "half"
            origin = "Every layer is halved."

            def widths(self, context):
                space = context.workload.space
                return tuple(min(g.choices, key=lambda c: abs(c - g.max_width / 2)) for g in space.groups)

        bcnet.search(model, data, bcnet.Budget(macs=0.5), "runs/half", method=Half())
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        arbitrary_types_allowed=True,
    )

    name: ClassVar[str]
    """Name on the command line, in files and in reports."""
    origin: ClassVar[str] = ""
    """Sentence for reports that says where the widths come from."""
    narrowed: ClassVar[str] = "searched"
    """Description of the resulting network in reports: "narrowed to given widths"."""
    scores_candidates: ClassVar[bool] = False
    """True if the widths are the best of many scored candidates."""
    trains_supernet: ClassVar[bool] = False
    """True if a supernet is trained and its paths are scored."""
    trains_candidates: ClassVar[bool] = False
    """True if each candidate is scored by a short training."""

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            known = tuple(type(self).model_fields)
            raise RecipeError(f"{type(self).__name__}: {describe(error, known)}") from None

    @property
    def inherits(self) -> bool:
        """Return whether the supernet starts from the weights of the trained original."""
        return False

    @property
    def usual_start(self) -> Start:
        """Default start of final networks."""
        return "original"

    def stages(self) -> tuple[Any, ...]:
        """Return the stages that find the widths: names of built-in stages, or instances of your own `bcnet.Stage`."""
        return ()

    @abstractmethod
    def widths(self, context: Context) -> Widths:
        """Return the widths to train, one per group, within `context.workload.budget`."""
        raise TypeError(f"a method implements widths(context); {type(self).__name__} does not")

    def select_channels(self, context: Context) -> Kept:
        """Return the channels that a narrow network keeps in each group; {} for the most important ones."""
        return ()

    def check(self) -> None:
        """Raise RecipeError if the method cannot run here. Called before data are loaded."""

    def complete(self, request: Request) -> Self:
        """Return the method with its unset fields filled in.

        Raises:
            RecipeError: a field does not suit the run.
        """
        return self

    @model_serializer(mode="wrap")
    def _with_name(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"name": self.name, **handler(self)}


class CustomMethod(Method):
    """Name and fields of a user's own method, as read from a run directory, without its code."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: ClassVar[str] = "custom"
    kind: str

    def widths(self, context: Context) -> Widths:
        """Raise RecipeError: the user's code is needed."""
        raise RecipeError(f"the method {self.kind!r} is yours: give bcnet.search the value of it, method=...")

    @model_serializer(mode="wrap")
    def _with_name(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = handler(self)
        return {"name": fields.pop("kind"), **fields}


def is_custom(method: Method) -> bool:
    """Return whether the method is not one of the library's."""
    from bcnet.methods import METHODS

    return METHODS.get(method.name) is not type(method)


def method_from_document(document: Any) -> Method:
    """Return the method that a document describes; an unknown name gives a `CustomMethod`.

    Raises:
        ValueError: not a method, or invalid fields.
    """
    from bcnet.methods import METHODS

    if isinstance(document, Method):
        return document
    if not isinstance(document, Mapping) or not isinstance(document.get("name"), str):
        raise ValueError(f"a method with its name; got {document!r}")
    fields = {key: value for key, value in document.items() if key != "name"}
    kind = METHODS.get(document["name"])
    if kind is None:
        return CustomMethod(kind=document["name"], **fields)
    return kind.model_validate(fields)


def parse_method(text: str) -> Method:
    """Parse `NAME` or `NAME:key=value,key=value` into a method; values are YAML.

    `package.module:Class` and `package.module:Class:key=value` import your own method.

    Raises:
        RecipeError: an unknown name or key, or an invalid value.

    Example: `parse_method("bcnet:epochs=8,generations=20")`.
    """
    from bcnet.methods import METHODS

    name, _, rest = text.partition(":")
    forms = f"{', '.join(METHODS)}, or package.module:Class; with fields as bcnet:epochs=8,generations=20"
    if name in METHODS:
        kind: type[Method] = METHODS[name]
    elif "." in name and rest:
        attribute, _, rest = rest.partition(":")
        found = import_object(f"{name}:{attribute}", what="method", forms=forms, error=RecipeError)
        if not (isinstance(found, type) and issubclass(found, Method)):
            raise RecipeError(f"a method must be a subclass of bcnet.Method; got {name}:{attribute}, {found!r}")
        kind = found
    else:
        near = difflib.get_close_matches(name, METHODS, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise RecipeError(f"a method must be one of {forms}; got {text!r}{hint}")
    fields = _fields(rest, kind)
    missing = [key for key, field in kind.model_fields.items() if field.is_required() and key not in fields]
    if missing:
        raise RecipeError(f"--method {name} needs {', '.join(missing)}: {name}:{missing[0]}=...; got {text!r}")
    try:
        return kind(**fields)
    except TypeError as error:  # raised by a user's own constructor
        raise RecipeError(f"--method {name}: {error}") from None


def _fields(text: str, kind: type[Method]) -> dict[str, Any]:
    """Parse comma-separated `key=value` pairs; a dotted key goes into a nested mapping."""
    from bcnet.train.yaml_text import parse_yaml

    fields: dict[str, Any] = {}
    for pair in _split(text):
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            known = ", ".join(kind.model_fields) or "no fields"
            raise RecipeError(
                f"the fields of --method {kind.name} must be key=value with commas between (it has {known}); "
                f"got {pair!r}"
            )
        outer, dot, inner = key.strip().partition(".")
        try:
            parsed = parse_yaml(value)
        except ValueError:
            raise RecipeError(f"a method's field must be a number, a word or a YAML value; got {pair!r}") from None
        if dot:
            fields.setdefault(outer, {})[inner] = parsed
        else:
            fields[outer] = parsed
    return fields


def _split(text: str) -> list[str]:
    """Split at commas outside brackets; a piece without an equals sign belongs to the value before it."""
    parts: list[str] = []
    depth = 0
    for piece in text.split(",") if text else ():
        if depth or (parts and "=" not in piece):
            parts[-1] += f",{piece}"
        else:
            parts.append(piece)
        depth = sum(parts[-1].count(b) for b in "[{(") - sum(parts[-1].count(b) for b in ")}]")
    return parts
