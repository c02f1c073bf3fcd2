"""Commands for single stages: train the supernet, search on it, train networks from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bcnet.cli.carry_out import carry_out, carry_to_the_end
from bcnet.cli.endings import guarded
from bcnet.cli.options import (
    BudgetText,
    CheckpointSeconds,
    Epochs,
    LatencyFile,
    Log,
    NewOut,
    ParamsBudget,
    Precision,
    RecipeName,
    Run,
    Set,
    TakeFrom,
    Task,
    WithTensorBoard,
    given,
    with_settings,
)

TRAIN_HELP = """
Train the supernet of MODEL and learn the prior; the first part of `bcnet search`.

`bcnet evolve` then searches on it, under this or any other budget, without training it again. The options are those of
`bcnet search`, which with the same settings goes on to the end.

Example:

  bcnet train --model vgg19 --data cifar10 --out runs/vgg
"""
EVOLVE_HELP = """
Search widths on the trained supernet of RUN, and say which are best. `bcnet retrain` then trains them.

With the settings of RUN the search is done in RUN itself. Other settings make another run, in a directory of its own
(--out), which reuses the supernet: what both share is never done again, and RUN stays as it is.

Examples:

  bcnet evolve runs/vgg

  bcnet evolve runs/vgg --budget 0.3 --out runs/vgg-0.3

  bcnet evolve runs/vgg --generations 100 --seed 1 --out runs/vgg-longer
"""
RETRAIN_HELP = """
Train networks from scratch: those that RUN found, again with other settings, or of widths that you give.

With the settings of RUN its own networks are trained, to its end. Other settings make another run, in a directory of
its own (--out), which reuses what both share. The original and the Uniform network of the same cost are trained
alike, to compare with.

WIDTHS are numbers with commas, one per group; a .json file of them (a list, a table by group, a result.json or an
architecture.json); a run directory; or published:VARIANT, what authors published for the model.

Examples:

  bcnet retrain runs/vgg-0.3

  bcnet retrain runs/vgg --set epochs=400 --seed 1 --out runs/vgg-again

  bcnet retrain --model vgg19 --data cifar10 --widths published:0.5x --out runs/published
"""


@guarded
@with_settings(*("seed", "image_size", "threads", "device"), sections=("space", "supernet", "prior"), but=("supernet",))
def train(
    model: Annotated[str, typer.Option(help="As in `bcnet search`.")],
    data: Annotated[str, typer.Option(help="As in `bcnet search`.")],
    out: Annotated[Path, typer.Option(help="Run directory, new or to go on with.")],
    task: Task = None,
    budget: Annotated[str, typer.Option(help="Of the prior: a ratio of the original's MACs, or a count.")] = "0.5",
    params_budget: ParamsBudget = None,
    latency_model: LatencyFile = None,
    epochs: Epochs = None,
    recipe: RecipeName = None,
    set_: Set = None,
    precision: Precision = None,
    checkpoint_seconds: CheckpointSeconds = 30.0,
    log: Log = "auto",
    tensorboard: WithTensorBoard = False,
    **settings: Any,
) -> None:
    """Train a supernet; the help is `TRAIN_HELP`."""
    from bcnet.api import train_supernet
    from bcnet.cli import parse
    from bcnet.cli.show import show_supernet, supernet_document

    limits = parse.with_latency_model(parse.budget(budget, params_budget), latency_model)
    changes = parse.recipe_changes(set_, epochs, precision)
    carry_out(
        lambda reporter: train_supernet(
            model,
            data,
            run_dir=out,
            task=task,
            budget=limits,
            recipe=recipe,
            changes=changes,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            **given(settings),
        ),
        show_supernet,
        supernet_document,
        out=out,
        log=log,
        tensorboard=tensorboard,
    )


@guarded
@with_settings(sections=("prior", "scoring", "search", "finalists"), but=("search_seed", "own_score", "scorer"))
def evolve(
    run: Run,
    budget: BudgetText = None,
    params_budget: ParamsBudget = None,
    latency_model: LatencyFile = None,
    out: NewOut = None,
    seed: Annotated[int | None, typer.Option(help="Of the search.")] = None,
    model: Annotated[
        str | None, typer.Option(help="The run's package.module:factory: only you can name code to import.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="The run's data, where that is package.module:function.")] = None,
    task: Annotated[str | None, typer.Option(help="The run's task, where that is package.module:factory.")] = None,
    checkpoint_seconds: CheckpointSeconds = 30.0,
    log: Log = "auto",
    tensorboard: WithTensorBoard = False,
    **settings: Any,
) -> None:
    """Search on a trained supernet; the help is `EVOLVE_HELP`."""
    from bcnet.api import evolve as run_evolve
    from bcnet.cli import parse
    from bcnet.cli.show import found_document, show_found

    another = any(option is not None for option in (budget, params_budget, latency_model))
    limits = parse.with_latency_model(parse.budget(budget, params_budget), latency_model) if another else None
    carry_out(
        lambda reporter: run_evolve(
            run,
            run_dir=out,
            budget=limits,
            seed=seed,
            model=model,
            data=data,
            task=task,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            **given(settings),
        ),
        show_found,
        found_document,
        out=out or run,
        log=log,
        tensorboard=tensorboard,
    )


@guarded
@with_settings("image_size", "final_from", "threads", "device")
def retrain(
    run: Annotated[Path | None, typer.Argument(help="Run directory, or none with --model and --data.")] = None,
    widths: Annotated[str | None, typer.Option(help="Numbers, a file, a run, or published:VARIANT.")] = None,
    out: NewOut = None,
    model: Annotated[
        str | None, typer.Option(help="Without a run, or where the run's imports code: as in `bcnet search`.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Without a run, or where the run's imports code: as in `bcnet search`.")
    ] = None,
    task: Task = None,
    seed: Annotated[int | None, typer.Option(help="Of the training.")] = None,
    epochs: Epochs = None,
    take_from: TakeFrom = None,
    recipe: RecipeName = None,
    set_: Set = None,
    precision: Precision = None,
    checkpoint_seconds: CheckpointSeconds = 30.0,
    log: Log = "auto",
    tensorboard: WithTensorBoard = False,
    **settings: Any,
) -> None:
    """Train networks from scratch; the help is `RETRAIN_HELP`."""
    from bcnet.api import retrain as run_retrain
    from bcnet.cli import parse

    changes = parse.recipe_changes(set_, epochs, precision)
    carry_to_the_end(
        lambda reporter: run_retrain(
            run,
            run_dir=out,
            widths=widths,
            seed=seed,
            recipe=recipe,
            changes=changes,
            model=model,
            data=data,
            task=task,
            take_from=tuple(take_from or ()),
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            **given(settings),
        ),
        out=out or run or Path(),
        log=log,
        tensorboard=tensorboard,
    )
