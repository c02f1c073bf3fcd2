"""Parse values of command line options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bcnet.errors import BudgetError, ExportError, ModelError, RecipeError

if TYPE_CHECKING:
    from pathlib import Path

    from bcnet.pytree import Pytree
    from bcnet.space import Budget


def budget(macs: str | None, params: str | None) -> Budget:
    """Return the budget of `--budget` and `--params-budget`, of which at least one is required.

    Raises:
        BudgetError: neither is given, or an invalid limit.
    """
    from bcnet.costs import MEASURES, PARAMS, Budget, Measure, measure_named

    if macs is None and params is None:
        raise BudgetError(
            "a search needs a budget; got none: give --budget 0.5 for half the MACs, --params-budget 0.5 for half the "
            "parameters, or both"
        )
    limits: dict[Measure, str] = {}
    for part in (macs or "").split(",") if macs is not None else ():
        name, equals, text = part.partition("=")
        measure = measure_named(name.strip() if equals else "macs")
        if measure is None or measure in limits:
            raise BudgetError(
                f"--budget limits each of {', '.join(MEASURES)} once, as macs=0.5,memory=320KiB; got {part.strip()!r}"
            )
        limits[measure] = text if equals else part
    if params is not None:
        if PARAMS in limits:
            raise BudgetError(f"parameters must be limited once; got --budget {macs} and --params-budget {params}")
        limits[PARAMS] = params
    return Budget(limits)


def inputs(texts: Sequence[str]) -> Pytree:
    """Return a batch of two zero inputs for shapes such as `3x224x224` or `128:int64`; several as a tuple.

    Raises:
        ModelError: an invalid shape.
    """
    import torch

    found = []
    for text in texts:
        shape, colon, kind = text.partition(":")
        sides = shape.replace(",", "x").split("x") if shape else []
        dtype = getattr(torch, kind, None) if colon else torch.float32
        if not all(side.isdecimal() and int(side) for side in sides) or not isinstance(dtype, torch.dtype):
            raise ModelError(
                "an input must be a shape without the batch, 3x224x224, and a type where that is not float32, "
                f"128:int64; got {text!r}"
            )
        found.append(torch.zeros(2, *map(int, sides), dtype=dtype))
    return found[0] if len(found) == 1 else tuple(found)


def size(text: str) -> tuple[int, int]:
    """Parse height and width from `480x640`.

    Raises:
        ExportError: an invalid size.
    """
    sides = text.split("x")
    if len(sides) != 2 or not all(side.isdecimal() and int(side) for side in sides):
        raise ExportError(f"--from-size must be the height and the width of the images, 480x640; got {text!r}")
    return int(sides[0]), int(sides[1])


def with_latency_model(budget: Budget, path: Path | None) -> Budget:
    """Return the budget with its latency limit predicted by the model in a file, if given.

    Raises:
        BudgetError: no such file, a budget without a latency limit, or a model of another engine.
    """
    from bcnet.costs import LATENCY, read_latency

    if path is None:
        return budget
    calibrated = read_latency(path)
    limited = budget.measure(calibrated.name)
    if limited is None:
        raise BudgetError(f"--latency-model is for a limit on latency; got --budget {budget}: add latency=2ms, say")
    if limited not in (calibrated, LATENCY):
        raise BudgetError(
            f"{path} is of {calibrated.description}, but the budget limits {limited.description}: write latency=..., "
            "or calibrate for that engine"
        )
    return budget.with_measure(calibrated)


def parse_training(recipe: str | None, pairs: Sequence[str] | None, precision: str | None) -> dict[str, Any]:
    """Return the argument `training` of `bcnet.search` from `--recipe`, `--set` and `--precision`.

    Raises:
        RecipeError: as for `changes`.
    """
    named = {"recipe": recipe, "precision": precision}
    return {key: value for key, value in named.items() if value is not None} | changes(pairs or [])


def changes(pairs: Sequence[str], option: str = "--set", example: str = "lr=0.05") -> dict[str, Any]:
    """Parse `key=value` texts of `option`; values are YAML.

    Example: `changes(["lr=0.05", "schedule.final_lr=1e-4"])`.

    Raises:
        RecipeError: a text without an equals sign, or invalid YAML.
    """
    from bcnet.train.yaml_text import parse_yaml

    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise RecipeError(f"{option} takes key=value, for instance {option} {example}; got {pair!r}")
        try:
            found[key.strip()] = parse_yaml(value)
        except ValueError:
            raise RecipeError(f"{option} {key}= takes a number, a word or a YAML value; got {value!r}") from None
    return found
