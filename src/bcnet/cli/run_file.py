"""Runs as YAML files: `bcnet search FILE.yaml`, and `--print-settings`, which writes such a file.

A file says what the options say: `model`, `data`, `out`, `budget` and settings by section, as in `settings.json`. What
is given on the command line comes before what the file says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bcnet.errors import RecipeError

_NOT_SAID = ("loss", "pretrained", "own_score", "own_stages", "processes", "widths")
_RECIPES = ("supernet", "final")
_MOST = 100_000  # characters


def read_run_file(path: Path) -> dict[str, Any]:
    """The arguments of `bcnet.search` that a file says: `out` is `run_dir`, and the recipes are one with changes.

    Raises:
        RecipeError: no file, no YAML, no mapping, or a key that is no setting.
        BudgetError: a limit that is none.
    """
    from bcnet.run.settings import SECTION_OF, flattened
    from bcnet.train.recipe import parse_recipe
    from bcnet.train.yaml_text import parse_yaml

    try:
        with path.open(encoding="utf-8") as file:
            document = parse_yaml(file.read(_MOST))
    except (OSError, ValueError) as error:
        raise RecipeError(f"a run file is YAML that --print-settings writes; {path} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise RecipeError(f"a run file is a mapping of settings to values; {path} holds a {type(document).__name__}")
    values = flattened(document)
    out = values.pop("out", None)
    limits = values.pop("budget", None)
    named: dict[str, Any] = {key: values.pop(key) for key in ("effort", "preset") if key in values}
    recipes = {name: values.pop(name) for name in _RECIPES if name in values}
    unknown = [name for name in values if name not in SECTION_OF or name in (*_NOT_SAID, "limits")]
    if unknown:
        raise RecipeError(f"{path}: unknown key {unknown[0]!r}: --print-settings shows the keys")
    arguments = {name: value for name, value in values.items() if value is not None}
    if out is not None:
        arguments["run_dir"] = Path(str(out))
    arguments |= named
    if limits is not None:
        arguments["budget"] = _budget(limits, path)
    if "supernet" in recipes:
        arguments["recipe"] = parse_recipe(recipes["supernet"], source=f"{path}: supernet.recipe")
    if "final" in recipes:
        final = parse_recipe(recipes["final"], source=f"{path}: final.recipe")
        arguments.setdefault("recipe", final)
        arguments["changes"] = {f"final.{key}": value for key, value in final.model_dump().items()}
    return arguments


def run_file(settings: Any, out: Path | None, task: str | None = None) -> str:
    """The text of a file that says these settings; `task` is the name that was given, where it is no task of ours."""
    import yaml

    from bcnet.tasks import name_of_task

    document = settings.to_document()
    budget = document.pop("limits")
    for section in (document, *(part for part in document.values() if isinstance(part, dict))):
        for name in _NOT_SAID:
            section.pop(name, None)
    head = {"model": document.pop("model"), "data": document.pop("data")}
    aim = name_of_task(document.pop("task")) or task
    head |= {} if aim in (None, "classification") else {"task": aim}
    place = {} if out is None else {"out": str(out)}
    text: str = yaml.safe_dump({**head, **place, "budget": budget, **document}, sort_keys=False)
    return text


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
