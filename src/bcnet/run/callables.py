"""The user's own functions in a run, and the names that identify them in its settings.

A run resumes only with the functions it was started with. Code has no identity that survives an edit, so functions are
identified by name: `module.qualname`, or a tag given by the user for a function without a name.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from bcnet.errors import RecipeError
from bcnet.files.tensors import digest_of
from bcnet.searchers import PerImage, Searcher
from bcnet.tasks import Loss

_LOCAL = ("<lambda>", "<locals>")


@dataclass(frozen=True)
class UserCallables:
    """The user's functions and teacher (see `bcnet.search`). Names are None for functions that were not given."""

    loss: Loss | None = None
    loss_name: str | None = None
    per_image: PerImage | None = None
    score_name: str | None = None
    searcher: Searcher | None = None
    teacher: nn.Module | None = None
    teacher_name: str | None = None


def with_teacher(own: UserCallables, teacher: Any) -> UserCallables:
    """Return the functions with a teacher, identified by its class, settings and weights.

    Raises:
        RecipeError: it is not a module.
    """
    if teacher is None:
        return own
    if not isinstance(teacher, nn.Module):
        raise RecipeError(
            f"a teacher must be a trained nn.Module; got {type(teacher).__name__}: give the network itself"
        )
    return dataclasses.replace(own, teacher=teacher, teacher_name=name_of("teacher", teacher, None))


def takes_prior(searcher: Searcher) -> bool:
    """Return whether a searcher has a field `prior` that is None; the run then sets its own prior there."""
    return any(field.name == "prior" for field in dataclasses.fields(searcher)) and searcher.prior is None  # type: ignore[arg-type,attr-defined]


def user_searcher(searcher: str | Searcher) -> tuple[Searcher | None, str]:
    """Return a custom searcher, or None for a name, and its name in the settings: class and fields.

    Raises:
        RecipeError: neither a name nor a searcher that is a dataclass.
    """
    if isinstance(searcher, str):
        return None, searcher
    if not isinstance(searcher, Searcher) or not dataclasses.is_dataclass(searcher):
        raise RecipeError(
            "a searcher must be a name or a value of a subclass of bcnet.Searcher that is a dataclass; got "
            f"{searcher!r}: see docs/extending.md"
        )
    shown = {field.name: getattr(searcher, field.name) for field in dataclasses.fields(searcher) if field.repr}
    if takes_prior(searcher):
        shown["prior"] = "learnt"
    return searcher, f"{_qualified_name(type(searcher))} {json.dumps(shown, sort_keys=True, default=repr)}"


def user_callables(loss: Loss | None, score: str | PerImage, tags: Mapping[str, str]) -> UserCallables:
    """Return the functions with their names; a `score` given by name is a built-in one.

    Raises:
        RecipeError: not callable, wrong arguments, or a missing tag.
    """
    unknown = set(tags) - {"loss", "score"}
    if unknown:
        raise RecipeError(f"tags are for loss and score; got {sorted(unknown)}")
    own = UserCallables()
    if loss is not None:
        _check_arguments("loss", loss, "(outputs, targets)", 2)
        own = dataclasses.replace(own, loss=loss, loss_name=name_of("loss", loss, tags.get("loss")))
    if isinstance(score, str):
        return own
    _check_arguments("score", score, "(outputs, targets)", 2)
    return dataclasses.replace(own, per_image=score, score_name=name_of("score", score, tags.get("score")))


def name_of(role: str, function: Any, tag: str | None) -> str:
    """Return the name of a function, or its tag.

    A module is named by its class, its plain attributes and its weights.

    Raises:
        RecipeError: it has no name that identifies it.
    """
    if tag is not None:
        if not isinstance(tag, str) or not tag:
            raise RecipeError(f"the tag of {role} must be some text; got {tag!r}")
        return tag
    if isinstance(function, nn.Module):
        return f"{_qualified_name(type(function))} {_digest(function)}"
    name = _qualified_name(function) if hasattr(function, "__qualname__") else ""
    if not name or any(part in name for part in _LOCAL):
        raise RecipeError(
            f"{role} needs a name that identifies it in a resumed run; {name or type(function).__name__} is not "
            f"one: make it a function of a module, or give tags={{{role!r}: 'what it does'}}"
        )
    return name


def _qualified_name(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _digest(module: nn.Module) -> str:
    """Return a digest of a module's weights and of all values that it and its submodules have as attributes."""
    plain = {
        f"{name}.{key}": _plain_value(value)
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if not key.startswith("_")
    }
    return digest_of(module.state_dict(), json.dumps(plain, sort_keys=True))


def _plain_value(value: Any) -> Any:
    """Return a JSON value: digests for tensors and arrays, names for functions and other objects."""
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        # The order of a set differs between processes, and the text has to be the same in all.
        items = [_plain_value(item) for item in value]
        return items if isinstance(value, (list, tuple)) else sorted(items, key=repr)
    if isinstance(value, Mapping):
        return {str(key): _plain_value(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, torch.Tensor):
        return digest_of({"value": value}, f"{value.dtype} {tuple(value.shape)}")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [_qualified_name(type(value)), _plain_value(vars(value))]
    return _qualified_name(value if hasattr(value, "__qualname__") else type(value))


def _check_arguments(role: str, function: Any, wanted: str, count: int) -> None:
    rule = f"{role} must be a function of {wanted}"
    if isinstance(function, type):
        raise RecipeError(f"{rule}; got the class {function.__name__}: make a value of it, {function.__name__}()")
    if not callable(function):
        raise RecipeError(f"{rule}; got {type(function).__name__}")
    try:
        signature = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):  # some built-in callables have no signature
        return
    try:
        signature.bind(*range(count))
    except TypeError:
        raise RecipeError(f"{rule}; got one of {signature}") from None
