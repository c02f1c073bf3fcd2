"""`bcnet baseline`: other ways to find widths, trained and compared as a search is."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bcnet.cli.carry_out import carry_to_the_end
from bcnet.cli.endings import guarded
from bcnet.cli.options import (
    SEARCH,
    TRAINING,
    CheckpointSeconds,
    Data,
    Device,
    Epochs,
    Ignore,
    ImageSize,
    Log,
    MacsBudget,
    MinRatio,
    Model,
    MultipleOf,
    NumChoices,
    Only,
    Out,
    Precision,
    RecipeName,
    Seed,
    Set,
    SupernetWidth,
    TakeFrom,
    Threads,
    WithTensorBoard,
)

HELP = """
Find widths of MODEL under a budget by another method than BCNet's, train that network, and compare it.

NAME is uniform (one ratio for all layers), random (the best of 20 random networks after a short training each),
autoslim (greedy slimming on a unilateral supernet), magnitude (what magnitude pruning leaves of the trained original;
pip install 'bcnet[magnitude]') or fastnas (what NVIDIA's FastNAS leaves of it; pip install 'bcnet[fastnas]').

Final training, run directory, resuming and report are those of `bcnet search`, so that runs of the same options compare
at equal cost. No method sees test images. With --take-from what another run has finished is not trained again.

Examples:

  bcnet baseline random --model resnet20 --data cifar10 --budget 0.5 --out runs/r20-random

  bcnet baseline autoslim --model resnet20 --data cifar10 --budget 0.5 --take-from runs/r20 --out runs/r20-autoslim
"""


@guarded
def baseline(
    name: Annotated[str, typer.Argument(help="uniform, random, autoslim, magnitude or fastnas.")],
    model: Model,
    data: Data,
    out: Out,
    budget: MacsBudget = None,
    params_budget: Annotated[str | None, typer.Option(help="Most parameters: a ratio or a count.")] = None,
    seed: Seed = 0,
    take_from: TakeFrom = None,
    image_size: ImageSize = None,
    recipe: RecipeName = None,
    epochs: Epochs = None,
    supernet_epochs: Annotated[int | None, typer.Option(help="Of autoslim's.", rich_help_panel=TRAINING)] = None,
    set_: Set = None,
    networks: Annotated[int, typer.Option(help="That random compares.", rich_help_panel=SEARCH)] = 20,
    short_epochs: Annotated[
        int | None, typer.Option(help="Of each of them (default: 50, or --epochs).", rich_help_panel=SEARCH)
    ] = None,
    candidates: Annotated[int, typer.Option(help="That autoslim scores.", rich_help_panel=SEARCH)] = 2000,
    num_choices: NumChoices = 20,
    min_ratio: MinRatio = 0.0,
    supernet_width: SupernetWidth = 1.0,
    multiple_of: MultipleOf = 1,
    ignore: Ignore = None,
    only: Only = None,
    threads: Threads = None,
    precision: Precision = None,
    device: Device = None,
    checkpoint_seconds: CheckpointSeconds = 30.0,
    log: Log = "auto",
    tensorboard: WithTensorBoard = False,
) -> None:
    """Run a baseline; the help is `HELP`."""
    from bcnet.api.baseline import baseline as run_baseline
    from bcnet.cli import parse

    arguments: dict[str, Any] = {
        "budget": parse.budget(budget, params_budget),
        "run_dir": out,
        "take_from": tuple(take_from or ()),
        "seed": seed,
        "image_size": image_size,
        "recipe": recipe,
        "supernet_epochs": supernet_epochs,
        "changes": parse.recipe_changes(set_, epochs, precision),
        "random_networks": networks,
        "random_epochs": short_epochs,
        "population": candidates,
        "generations": 1,
        "num_choices": num_choices,
        "min_ratio": min_ratio,
        "supernet_width": supernet_width,
        "multiple_of": multiple_of,
        "ignore": tuple(ignore or ()),
        "only": tuple(only or ()),
        "threads": threads,
        "device": device,
    }
    carry_to_the_end(
        lambda reporter: run_baseline(
            name, model, data, reporter=reporter, checkpoint_seconds=checkpoint_seconds, **arguments
        ),
        out=out,
        log=log,
        tensorboard=tensorboard,
    )
