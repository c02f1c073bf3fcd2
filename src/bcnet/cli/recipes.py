"""`bcnet recipes`: the paper's training recipes and results, and results measured here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from bcnet.cli.endings import guard

if TYPE_CHECKING:
    from bcnet.train import Recipe
    from bcnet.train.reported import Measured, Reported

HELP = """
List the recipes, with the results that the paper reports for them beside those measured here.

A recipe has the training settings of a network and its supernet. `bcnet search` uses the default for model and data, or
--recipe NAME, or your own --recipe FILE.yaml; --set key=value changes it. Results measured here are those of finished
runs, read from the CSV files in --results.

Examples:

  bcnet recipes

  bcnet recipes vgg19-cifar10 > mine.yaml      (to change, and give as --recipe mine.yaml)
"""


@guard
def recipes(
    name: Annotated[str | None, typer.Argument(help="One recipe, as YAML.")] = None,
    results: Annotated[Path, typer.Option(help="Folder of CSV files of finished runs.")] = Path("results"),
) -> None:
    """List recipes; the help is `HELP`."""
    import yaml

    from bcnet.train import load_recipe, recipe_names
    from bcnet.train.reported import measured_results, reported_results

    if name is not None:
        document = json.loads(load_recipe(name).model_dump_json())
        typer.echo(yaml.safe_dump(document, sort_keys=False), nl=False)
        return
    console = Console()
    for known in recipe_names():
        console.print(f"\n[bold]{known}[/bold]: {_in_words(load_recipe(known))}", highlight=False)
        rows = [row for row in reported_results() if row.recipe == known]
        for model in dict.fromkeys(row.model for row in rows):
            console.print(_reported_table(model, [row for row in rows if row.model == model]))
    runs = measured_results(results) if results.is_dir() else ()
    if runs:
        console.print(_measured_table(runs))
    else:
        console.print(
            f"\nNo finished runs are recorded in {results}/: bcnet search, then python -m studies.shared.result_row.",
            soft_wrap=True,
        )


def _in_words(recipe: Recipe) -> str:
    return ", ".join(
        (
            recipe.optimizer,
            f"lr {recipe.lr:g} by {recipe.schedule.kind}",
            f"{recipe.epochs} epochs",
            f"batch {recipe.batch_size}",
            f"weight decay {recipe.weight_decay:g}",
            *_other_facts(recipe),
        )
    )


def _other_facts(recipe: Recipe) -> list[str]:
    facts = {
        f"warm-up {recipe.warmup_epochs:g}": recipe.warmup_epochs,
        f"smoothing {recipe.label_smoothing:g}": recipe.label_smoothing,
        "distillation": recipe.distillation,
        recipe.augmentation.kind if recipe.augmentation is not None else "": recipe.augmentation,
    }
    return [text for text, there in facts.items() if there]


def _reported_table(model: str, rows: Sequence[Reported]) -> Table:
    table = Table(title=f"{model}, in the paper: {rows[0].original:.2f} %", title_justify="left")
    table.add_column("MACs")
    for heading in ("Uniform", "Random", "BCNet", "BCNet, distilled"):
        table.add_column(heading, justify="right")
    for row in rows:
        figures = (row.uniform, row.random, row.ours, row.distilled)
        table.add_row(row.budget, *("" if f is None else f"{f:.2f}" for f in figures))
    return table


def _measured_table(runs: tuple[Measured, ...]) -> Table:
    table = Table(title="Measured here, test top-1 (%): mind the epochs, of supernet + networks", title_justify="left")
    for heading in ("network", "data", "budget", "seed", "epochs", "original", "Uniform", "searched"):
        table.add_column(heading, overflow="fold")
    for run in runs:
        epochs = f"{run.supernet_epochs} + {run.final_epochs}"
        figures = (f"{f:.2f}" for f in (run.original, run.uniform, run.searched))
        table.add_row(run.model, run.data, run.budget.removesuffix(" MACs"), str(run.seed), epochs, *figures)
    return table
