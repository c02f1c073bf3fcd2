"""`bcnet baseline`: other ways to find widths, trained and compared as a search is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bcnet.cli.carry_out import carry_to_the_end
from bcnet.cli.endings import guarded
from bcnet.cli.options import (
    BudgetText,
    CheckpointSeconds,
    Epochs,
    LatencyFile,
    Log,
    ParamsBudget,
    Precision,
    Pretrained,
    RecipeName,
    Set,
    SupernetEpochs,
    TakeFrom,
    Task,
    WithTensorBoard,
    given,
    with_settings,
)
from bcnet.run.baselines import BASELINES

_NAMES = ", ".join(f"{name} ({baseline.help})" for name, baseline in BASELINES.items())
HELP = f"""
Find widths of MODEL under a budget by another method than BCNet's, train that network, and compare it.

NAME is one of: {_NAMES}.

Final training from the trained original, run directory, resuming and report are those of `bcnet search`, so that runs
of the same options compare at equal cost (beside --scorer supernet: --final-from scratch). No method sees test images.
With --take-from what another run has finished is not trained again.

Examples:

  bcnet baseline random --model resnet20 --data cifar10 --budget 0.5 --out runs/r20-random

  bcnet baseline autoslim --model resnet20 --data cifar10 --budget 0.5 --take-from runs/r20 --out runs/r20-autoslim

  bcnet baseline magnitude --model resnet20 --data cifar10 --budget 0.5 --out runs/r20-pruned
"""


@guarded
@with_settings(
    "seed",
    "image_size",
    "final_from",
    "balance_exponent",
    "random_networks",
    "random_epochs",
    "random_continued",
    "threads",
    "device",
    sections=("space",),
)
def baseline(
    name: Annotated[str, typer.Argument(help=f"{', '.join(BASELINES)}.")],
    model: Annotated[str, typer.Option(help="As in `bcnet search`.")],
    data: Annotated[str, typer.Option(help="As in `bcnet search`.")],
    out: Annotated[Path, typer.Option(help="Run directory, new or to go on with.")],
    task: Task = None,
    budget: BudgetText = None,
    params_budget: ParamsBudget = None,
    latency_model: LatencyFile = None,
    epochs: Epochs = None,
    take_from: TakeFrom = None,
    recipe: RecipeName = None,
    supernet_epochs: SupernetEpochs = None,
    pretrained: Pretrained = None,
    set_: Set = None,
    candidates: Annotated[
        int, typer.Option(help="That autoslim or unilateral score.", rich_help_panel="Baselines")
    ] = 2000,
    precision: Precision = None,
    checkpoint_seconds: CheckpointSeconds = 30.0,
    log: Log = "auto",
    tensorboard: WithTensorBoard = False,
    **settings: Any,
) -> None:
    """Run a baseline; the help is `HELP`."""
    from bcnet.api import baseline as run_baseline
    from bcnet.cli import parse

    arguments = {
        "budget": parse.with_latency_model(parse.budget(budget, params_budget), latency_model),
        "run_dir": out,
        "take_from": tuple(take_from or ()),
        "recipe": recipe,
        "task": task,
        "pretrained": pretrained,
        "supernet_epochs": supernet_epochs,
        "changes": parse.recipe_changes(set_, epochs, precision),
        "population": candidates,
        "generations": 1,
        **given(settings),
    }
    carry_to_the_end(
        lambda reporter: run_baseline(
            name, model, data, reporter=reporter, checkpoint_seconds=checkpoint_seconds, **arguments
        ),
        out=out,
        log=log,
        tensorboard=tensorboard,
    )
