"""`bcnet recipes`: how the paper's networks are trained, and what came out, there and here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from bcnet.cli.endings import guarded

if TYPE_CHECKING:
    from bcnet.train import Recipe
    from bcnet.train.reported import Measured, Reported

HELP = """
List the recipes, with the results that the paper reports for them beside those measured here.

A recipe says how a network, and its supernet, are trained. `bcnet search` takes the one that suits model and data, or
--recipe NAME, or --recipe FILE.yaml of your own; --set key=value changes it. Ours are the finished runs recorded as CSV
in --results.

Examples:

  bcnet recipes

  bcnet recipes vgg19-cifar10 > mine.yaml      (to change, and give as --recipe mine.yaml)
"""


@guarded
def recipes(
    name: Annotated[str | None, typer.Argument(help="One recipe, as YAML.")] = None,
    results: Annotated[Path, typer.Option(help="Folder of CSV files of finished runs.")] = Path("results"),
) -> None:
    """List recipes; the help is `HELP`."""
    import yaml

    from bcnet.train import load_recipe, recipe_names
    from bcnet.train.reported import measured, reported

    if name is not None:
        document = json.loads(load_recipe(name).model_dump_json())
        typer.echo(yaml.safe_dump(document, sort_keys=False), nl=False)
        return
    console = Console()
    console.print(_recipes_table({n: load_recipe(n) for n in recipe_names()}))
    console.print(_reported_table(reported()))
    runs = measured(results) if results.is_dir() else ()
    if runs:
        console.print(_measured_table(runs))
    else:
        console.print(f"No finished runs are recorded in {results}/: bcnet search, then studies/result_row.py.")


def _recipes_table(found: dict[str, Recipe]) -> Table:
    table = Table(title="Recipes")
    for heading in ("recipe", "optimiser", "lr", "schedule", "epochs", "batch", "weight decay", "besides"):
        table.add_column(heading)
    for name, recipe in found.items():
        table.add_row(
            name,
            recipe.optimizer,
            f"{recipe.lr:g}",
            recipe.schedule.kind,
            str(recipe.epochs),
            str(recipe.batch_size),
            f"{recipe.weight_decay:g}",
            ", ".join(_besides(recipe)),
        )
    return table


def _besides(recipe: Recipe) -> list[str]:
    facts = {
        f"warm-up {recipe.warmup_epochs:g}": recipe.warmup_epochs,
        f"smoothing {recipe.label_smoothing:g}": recipe.label_smoothing,
        "distillation": recipe.distillation,
        recipe.augmentation.kind if recipe.augmentation is not None else "": recipe.augmentation,
    }
    return [text for text, there in facts.items() if there]


def _reported_table(rows: tuple[Reported, ...]) -> Table:
    table = Table(title="Test top-1 (%) in the paper, trained in full")
    for heading in ("recipe", "network", "MACs"):
        table.add_column(heading)
    for heading in ("original", "Uniform", "Random", "BCNet", "distilled"):
        table.add_column(heading, justify="right")
    for row in rows:
        figures = (row.original, row.uniform, row.random, row.ours, row.distilled)
        table.add_row(row.recipe, row.model, row.budget, *("" if f is None else f"{f:.2f}" for f in figures))
    return table


def _measured_table(runs: tuple[Measured, ...]) -> Table:
    table = Table(title="Test top-1 (%) of ours: mind the epochs")
    for heading in ("network", "data", "budget", "seed", "epochs", "original", "Uniform", "searched", "recorded in"):
        table.add_column(heading)
    for run in runs:
        epochs = f"{run.supernet_epochs} + {run.final_epochs}"
        figures = (f"{f:.2f}" for f in (run.original, run.uniform, run.searched))
        table.add_row(run.model, run.data, run.budget, str(run.seed), epochs, *figures, run.file)
    return table
