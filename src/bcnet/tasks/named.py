"""Tasks by name, for commands and files: `segmentation:classes=21,dice=0.5`, or `package.module:factory`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bcnet.errors import RecipeError
from bcnet.importing import import_object
from bcnet.tasks.base import Task
from bcnet.tasks.classification import Classification
from bcnet.tasks.detection import Detection
from bcnet.tasks.imitation import Imitation
from bcnet.tasks.multilabel import MultiLabel
from bcnet.tasks.regression import DenseRegression, Regression
from bcnet.tasks.segmentation import Segmentation

TASKS: Mapping[str, type[Task]] = MappingProxyType(
    {
        "classification": Classification,
        "segmentation": Segmentation,
        "detection": Detection,
        "multi-label": MultiLabel,
        "regression": Regression,
        "dense-regression": DenseRegression,
        "imitation": Imitation,
    }
)
"""Built-in tasks by name."""
_FORMS = f"one of {', '.join(TASKS)} with its settings (segmentation:classes=21), or package.module:factory"


def task_named(name: str) -> Task:
    """Return a built-in task by name and settings, or the result of the user's own function or class.

    Raises:
        RecipeError: an unknown name or setting, or a factory that does not return a task.

    Example: `task_named("segmentation:classes=21,dice=0.5") == Segmentation(classes=21, dice=0.5)`.
    """
    kind, _, settings = name.partition(":")
    if kind in TASKS:
        return _make(TASKS[kind], _parse(name, settings))
    near = get_close_matches(kind, TASKS, n=1)
    if near or not settings:
        raise RecipeError(f"a task must be {_FORMS}; got {name!r}{f' (nearest: {near[0]})' if near else ''}")
    made = import_object(name, what="task", forms=_FORMS, error=RecipeError)()
    if not isinstance(made, Task):
        raise RecipeError(f"task {name!r} has to give a bcnet.Task; got {type(made).__name__}: return the task itself")
    return made


def task_described(description: str) -> Task | None:
    """Return the built-in task of a stored `Task.description`; None for a custom one.

    Raises:
        RecipeError: unknown settings.
    """
    name = next((kind for kind, task in TASKS.items() if _names_task(description, task)), None)
    if name is None:
        return None
    try:
        fields = json.loads(description[len(TASKS[name].name) :] or "{}")
    except (ValueError, RecursionError):
        return None
    return _make(TASKS[name], fields) if isinstance(fields, dict) else None


def name_of_task(description: str) -> str | None:
    """Return the name that `task_named` accepts for a built-in task's description; None for a custom task."""
    task = task_described(description)
    if task is None:
        return None
    kind = next(kind for kind, known in TASKS.items() if type(task) is known)
    fields = {f.name: getattr(task, f.name) for f in _settable_fields(type(task)) if getattr(task, f.name) is not None}
    return f"{kind}:{','.join(f'{name}={value}' for name, value in fields.items())}" if fields else kind


def _names_task(description: str, task: type[Task]) -> bool:
    return description == task.name or description.startswith(f"{task.name} {{")


def _parse(name: str, settings: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in settings.split(",") if part.strip()]
    if not all(equals and key.strip() for key, equals, _ in pairs):
        raise RecipeError(f"a task must be {_FORMS}; got {name!r}: settings are key=value, with commas")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _make(task: type[Task], fields: Mapping[str, Any]) -> Task:
    known = {field.name: field for field in _settable_fields(task)}
    unknown = [name for name in fields if name not in known]
    missing = [n for n, field in known.items() if n not in fields and field.default is dataclasses.MISSING]
    if unknown or missing:
        problem = f"got {unknown[0]!r}" if unknown else f"got no {missing[0]}"
        raise RecipeError(f"the task {task.name} has the settings {', '.join(known) or 'none'}; {problem}")
    try:
        made: Task = TypeAdapter(task).validate_python(dict(fields))
    except ValidationError as error:
        first = error.errors()[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, RecipeError):  # the task's own message
            raise cause from None
        raise RecipeError(
            f"the task {task.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}; got {first['input']!r}"
        ) from None
    return made


def _settable_fields(task: type[Task]) -> tuple[dataclasses.Field[Any], ...]:
    """Return the fields that text can set, which excludes a custom loss."""
    return tuple(field for field in dataclasses.fields(task) if field.repr)  # type: ignore[arg-type]
