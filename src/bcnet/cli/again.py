"""Commands for single stages: train the supernet, search on it, train networks from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bcnet.cli.carry_out import carry_out, carry_to_the_end
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
    MinRatio,
    Model,
    MultipleOf,
    NewOut,
    NumChoices,
    Only,
    Out,
    Precision,
    RecipeName,
    Run,
    Searcher,
    Seed,
    Set,
    SupernetWidth,
    TakeFrom,
    Threads,
    WithTensorBoard,
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
(--out), which takes over the supernet: what both share is never done again, and RUN stays as it is.

Examples:

  bcnet evolve runs/vgg

  bcnet evolve runs/vgg --budget 0.3 --out runs/vgg-0.3

  bcnet evolve runs/vgg --generations 100 --seed 1 --out runs/vgg-longer
"""
RETRAIN_HELP = """
Train networks from scratch: those that RUN found, again with other settings, or of widths that you give.

With the settings of RUN its own networks are trained, to its end. Other settings make another run, in a directory of
its own (--out), which takes over what both share. The original and the Uniform network of the same cost are trained
alike, to compare with.

WIDTHS are numbers with commas, one per group; a .json file of them (a list, a table by group, a result.json or an
architecture.json); a run directory; or published:VARIANT, what authors published for the model.

Examples:

  bcnet retrain runs/vgg-0.3

  bcnet retrain runs/vgg --set epochs=400 --seed 1 --out runs/vgg-again

  bcnet retrain --model vgg19 --data cifar10 --widths published:0.5x --out runs/published
"""


@guarded
def train(
    model: Model,
    data: Data,
    out: Out,
    budget: Annotated[str, typer.Option(help="Of the prior: a ratio of the original's MACs, or a count.")] = "0.5",
    params_budget: Annotated[str | None, typer.Option(help="Most parameters as well: a ratio or a count.")] = None,
    seed: Seed = 0,
    image_size: ImageSize = None,
    recipe: RecipeName = None,
    epochs: Epochs = None,
    strategy: Annotated[
        str, typer.Option(help="Paths per step, as in `bcnet search`.", rich_help_panel=TRAINING)
    ] = "complementary",
    set_: Set = None,
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
    """Train a supernet; the help is `TRAIN_HELP`."""
    from bcnet.api import train_supernet
    from bcnet.cli import parse
    from bcnet.cli.show import show_supernet, supernet_document

    limits = parse.budget(budget, params_budget)
    changes = parse.recipe_changes(set_, epochs, precision)
    carry_out(
        lambda reporter: train_supernet(
            model,
            data,
            run_dir=out,
            budget=limits,
            recipe=recipe,
            changes=changes,
            image_size=image_size,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            seed=seed,
            strategy=strategy,
            num_choices=num_choices,
            min_ratio=min_ratio,
            supernet_width=supernet_width,
            multiple_of=multiple_of,
            ignore=tuple(ignore or ()),
            only=tuple(only or ()),
            threads=threads,
            device=device,
        ),
        show_supernet,
        supernet_document,
        out=out,
        log=log,
        tensorboard=tensorboard,
    )


@guarded
def evolve(
    run: Run,
    budget: Annotated[str | None, typer.Option(help="Another budget: a ratio or a count.")] = None,
    params_budget: Annotated[str | None, typer.Option(help="Most parameters as well: a ratio or a count.")] = None,
    out: NewOut = None,
    seed: Annotated[int | None, typer.Option(help="Of the search.", rich_help_panel=SEARCH)] = None,
    population: Annotated[int | None, typer.Option(help="Candidates per generation.", rich_help_panel=SEARCH)] = None,
    generations: Annotated[int | None, typer.Option(help="Generations.", rich_help_panel=SEARCH)] = None,
    score: Annotated[str | None, typer.Option(help="accuracy or loss.", rich_help_panel=SEARCH)] = None,
    searcher: Searcher = None,
    early_stop: Annotated[
        str | None, typer.Option(help="As in `bcnet search`: auto, on or off.", rich_help_panel=SEARCH)
    ] = None,
    tune_steps: Annotated[
        int | None, typer.Option(help="As in `bcnet search`: steps of fine-tuning.", rich_help_panel=SEARCH)
    ] = None,
    finalist_steps: Annotated[
        int | None, typer.Option(help="As in `bcnet search`: more of them for the best.", rich_help_panel=SEARCH)
    ] = None,
    tune_lr_share: Annotated[
        float | None, typer.Option(help="As in `bcnet search`: of the supernet's rate.", rich_help_panel=SEARCH)
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The run's package.module:factory: only you can name code to import.")
    ] = None,
    checkpoint_seconds: CheckpointSeconds = 30.0,
    log: Log = "auto",
    tensorboard: WithTensorBoard = False,
) -> None:
    """Search on a trained supernet; the help is `EVOLVE_HELP`."""
    from bcnet.api import evolve as run_evolve
    from bcnet.cli import parse
    from bcnet.cli.show import found_document, show_found

    another = budget is not None or params_budget is not None
    limits = parse.budget(budget, params_budget) if another else None
    settings: dict[str, Any] = {
        "population": population,
        "generations": generations,
        "score": score,
        "searcher": searcher,
        "early_stop": early_stop,
        "tune_steps": tune_steps,
        "finalist_steps": finalist_steps,
        "tune_lr_share": tune_lr_share,
    }
    given = {key: value for key, value in settings.items() if value is not None}
    carry_out(
        lambda reporter: run_evolve(
            run,
            run_dir=out,
            budget=limits,
            seed=seed,
            model=model,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            **given,
        ),
        show_found,
        found_document,
        out=out or run,
        log=log,
        tensorboard=tensorboard,
    )


@guarded
def retrain(
    run: Annotated[Path | None, typer.Argument(help="Run directory, or none with --model and --data.")] = None,
    widths: Annotated[str | None, typer.Option(help="Numbers, a file, a run, or published:VARIANT.")] = None,
    out: NewOut = None,
    model: Annotated[
        str | None, typer.Option(help="Without a run, or where the run's imports code: as in `bcnet search`.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Without a run: the data set, as in `bcnet search`.")] = None,
    image_size: ImageSize = None,
    seed: Annotated[int | None, typer.Option(help="Of the training.", rich_help_panel=TRAINING)] = None,
    recipe: RecipeName = None,
    epochs: Epochs = None,
    set_: Set = None,
    take_from: TakeFrom = None,
    final_from: Annotated[
        str | None, typer.Option(help="What networks start from: scratch or supernet.", rich_help_panel=TRAINING)
    ] = None,
    threads: Threads = None,
    precision: Precision = None,
    device: Device = None,
    checkpoint_seconds: CheckpointSeconds = 30.0,
    log: Log = "auto",
    tensorboard: WithTensorBoard = False,
) -> None:
    """Train networks from scratch; the help is `RETRAIN_HELP`."""
    from bcnet.api.again import retrain as run_retrain
    from bcnet.cli import parse

    place = out or run or Path()
    changes = parse.recipe_changes(set_, epochs, precision)
    settings: dict[str, Any] = {"threads": threads, "device": device}
    given = {key: value for key, value in settings.items() if value is not None}
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
            image_size=image_size,
            final_from=final_from,
            take_from=tuple(take_from or ()),
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            **given,
        ),
        out=place,
        log=log,
        tensorboard=tensorboard,
    )
