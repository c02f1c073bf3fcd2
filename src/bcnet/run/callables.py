"""Functions of the user's own in a run, and the names by which its settings know them.

A run goes on only with the functions it was started with. Code has no identity that survives an edit, so that they are
told apart by name: `module.qualname`, or a tag of the user's where a function has no name of its own.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from bcnet.errors import RecipeError
from bcnet.run.digests import digest_of
from bcnet.searchers import PerImage
from bcnet.space import Widths
from bcnet.train import Loss

OfWidths = Callable[[Widths], float]
_LOCAL = ("<lambda>", "<locals>")


@dataclass(frozen=True)
class Own:
    """The user's functions: see `bcnet.search`. Their names are None where there is no function."""

    loss: Loss | None = None
    loss_name: str | None = None
    per_image: PerImage | None = None
    of_widths: OfWidths | None = None
    score_name: str | None = None


def own_functions(
    loss: Loss | None, score: str | PerImage | OfWidths, tags: Mapping[str, str]
) -> tuple[Own, str | None]:
    """The functions with their names, and the library's own score where `score` names one.

    Raises:
        RecipeError: something that cannot be called, that takes other arguments, or that needs a tag.
    """
    unknown = set(tags) - {"loss", "score"}
    if unknown:
        raise RecipeError(f"tags are for loss and score; got {sorted(unknown)}")
    loss_name = None
    if loss is not None:
        _arity("loss", loss, "(outputs, targets)", (2,))
        loss_name = name_of("loss", loss, tags.get("loss"))
    if isinstance(score, str):
        return Own(loss, loss_name), score
    arity = _arity("score", score, "(outputs, targets) or (widths)", (2, 1))
    kind: Literal["per_image", "of_widths"] = "per_image" if arity == 2 else "of_widths"
    functions: dict[str, Any] = {kind: score}
    return Own(loss, loss_name, score_name=name_of("score", score, tags.get("score")), **functions), None


def name_of(role: str, function: Any, tag: str | None) -> str:
    """The name of a function, or its tag.

    A module is named by its class, its plain settings and its weights.

    Raises:
        RecipeError: it has no name that tells it from others.
    """
    if tag is not None:
        if not isinstance(tag, str) or not tag:
            raise RecipeError(f"the tag of {role} is some text; got {tag!r}")
        return tag
    if isinstance(function, nn.Module):
        return f"{_qualified(type(function))} {_digest(function)}"
    name = _qualified(function) if hasattr(function, "__qualname__") else ""
    if not name or any(part in name for part in _LOCAL):
        raise RecipeError(
            f"{role} needs a name by which a resumed run knows it again; {name or type(function).__name__} is none: "
            f"make it a function of a module, or give tags={{{role!r}: 'what it does'}}"
        )
    return name


def _qualified(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _digest(module: nn.Module) -> str:
    plain = {key: value for key, value in vars(module).items() if isinstance(value, (bool, int, float, str))}
    return digest_of(module.state_dict(), json.dumps(plain, sort_keys=True))


def _arity(role: str, function: Any, wanted: str, arities: tuple[int, ...]) -> int:
    rule = f"{role} is a function of {wanted}"
    if not callable(function):
        raise RecipeError(f"{rule}; got {type(function).__name__}")
    try:
        signature = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):  # some built-in callables have none
        return arities[0]
    for arity in arities:
        try:
            signature.bind(*range(arity))
        except TypeError:
            continue
        return arity
    raise RecipeError(f"{rule}; got one of {signature}")
