"""Runs as YAML files: `bcnet search FILE.yaml`, and `--print-settings`, which writes one.

A file has the keys of `settings.json`, with `budget` instead of `limits` and `out` for the run directory. Options on
the command line override the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bcnet.errors import RecipeError

_NOT_SAID = ("loss", "teacher", "pretrained", "custom_score", "own_stages")
_KEYS = ("model", "data", "task", "out", "budget", "method", "training", "start", "seed", "space", "options")
_MOST = 100_000  # characters


def read_run_file(path: Path) -> dict[str, Any]:
    """Return the arguments of `bcnet.search` from a file; `out` is `run_dir`.

    Raises:
        RecipeError: no file, invalid YAML, not a mapping, or an unknown key.
        BudgetError: an invalid limit.
    """
    from bcnet.methods.base import CustomMethod, method_from_document, parse_method
    from bcnet.train.yaml_text import parse_yaml

    try:
        with path.open(encoding="utf-8") as file:
            # The file may be anything, such as a data set given by mistake, so only its beginning is read.
            document = parse_yaml(file.read(_MOST))
    except (OSError, ValueError) as error:
        raise RecipeError(
            f"a run file must be YAML that --print-settings writes; {path} cannot be read: {error}"
        ) from None
    if not isinstance(document, dict):
        raise RecipeError(
            f"a run file must be a mapping of settings to values; {path} holds a {type(document).__name__}"
        )
    unknown = [str(key) for key in document if key not in _KEYS]
    if unknown:
        raise RecipeError(f"{path}: unknown key {unknown[0]!r}: the keys are {', '.join(_KEYS)}")
    arguments = {name: value for name, value in document.items() if value is not None}
    if "out" in arguments:
        arguments["run_dir"] = Path(str(arguments.pop("out")))
    if "budget" in arguments:
        arguments["budget"] = _budget(arguments["budget"], path)
    if "training" in arguments:
        arguments["training"] = _recipe_or_changes(arguments["training"], path)
    method = arguments.get("method")
    if isinstance(method, str):
        arguments["method"] = parse_method(method)
    elif method is not None:
        try:
            arguments["method"] = method_from_document(method)
        except ValueError as error:
            raise RecipeError(f"{path}: method: {error}") from None
        if isinstance(arguments["method"], CustomMethod):
            raise RecipeError(f"{path}: unknown method {method.get('name')!r}: name yours by --method module:Class")
    for name in ("space", "options"):
        if not isinstance(arguments.get(name, {}), dict):
            raise RecipeError(f"{path}: {name} must be a mapping of settings to values; got {arguments[name]!r}")
    return arguments


def run_file(settings: Any, out: Path | None, task: str | None = None) -> str:
    """Return the text of a file with these settings; `task` is the name of a custom task."""
    import yaml

    from bcnet.tasks import name_of_task

    document = settings.to_document()
    budget = document.pop("limits")
    document["options"].pop("processes")
    for name in _NOT_SAID:
        document.pop(name, None)
    head = {"model": document.pop("model"), "data": document.pop("data")}
    aim = name_of_task(document.pop("task")) or task
    head |= {} if aim in (None, "classification") else {"task": aim}
    place = {} if out is None else {"out": str(out)}
    text: str = yaml.safe_dump({**head, **place, "budget": budget, **document}, sort_keys=False)
    return text


def _recipe_or_changes(document: Any, path: Path) -> Any:
    """Return a whole recipe, or the mapping of changes to the default one if required keys are missing."""
    from bcnet.train.recipe import Recipe, load_recipe, parse_recipe

    if isinstance(document, str):
        return load_recipe(document)
    required = {key for key, field in Recipe.model_fields.items() if field.is_required()}
    if isinstance(document, dict) and not required <= document.keys():
        return document
    return parse_recipe(document, source=f"{path}: training")


def _budget(limits: Any, path: Path) -> Any:
    from bcnet.cli import parse
    from bcnet.costs import MEASURES, Budget, measure_named

    if isinstance(limits, dict):
        measures = {str(name): measure_named(str(name)) for name in limits}
        unknown = sorted(name for name, measure in measures.items() if measure is None)
        if unknown:
            raise RecipeError(f"{path}: budget limits {', '.join(MEASURES)}; got {', '.join(unknown)}")
        return Budget({measure: limits[name] for name, measure in measures.items() if measure is not None})
    return parse.budget(str(limits), None)
