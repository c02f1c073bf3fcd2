"""`bcnet search`: the whole job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bcnet.cli.carry_out import carry_to_the_end
from bcnet.cli.common import prepare_process
from bcnet.cli.endings import guarded
from bcnet.cli.options import (
    SEARCH,
    TRAINING,
    Allocator,
    CheckpointSeconds,
    Data,
    Device,
    EarlyStop,
    FinalistSteps,
    Ignore,
    ImageSize,
    Layout,
    Log,
    MacsBudget,
    MinRatio,
    Model,
    MultipleOf,
    NumChoices,
    Only,
    Out,
    Precision,
    Primitives,
    RecipeName,
    ScoreBatch,
    Searcher,
    Seed,
    SupernetWidth,
    TakeFrom,
    Threads,
    TuneLrShare,
    TuneSteps,
    WithTensorBoard,
)
from bcnet.cli.preview import DryRun, show_preview

HELP = """
Search the widths of MODEL under a budget, train the found network, and compare it.

Stages: supernet, prior, evolution, then the original, the Uniform and the searched network trained alike. The run
directory ends with result.json, final.safetensors, report.html and ratios.svg. Stopped at any moment, the same command
goes on; with other settings the directory is refused. Several processes share the work when torchrun starts them:
torchrun --nproc-per-node 8 -m bcnet search ...

MODEL is a name (bcnet profile --list), torchvision:NAME, timm:NAME or package.module:factory, which imports and runs
that code, installed or in the current folder. DATA is digits, cifar10, imagefolder:PATH, parquet:PATH or hf:ORG/NAME.

Examples:

  bcnet search --model resnet_digits --data digits --budget 0.5 --out runs/demo

  bcnet search --model resnet20 --data parquet:data/cifar10 --budget 20M --epochs 30 --out runs/r20

  bcnet search --model vgg19 --data cifar10 --budget 0.5 --set lr=0.05 --set supernet.epochs=200 --out runs/vgg
"""


@guarded
def search(
    model: Model,
    data: Data,
    out: Out,
    budget: MacsBudget = None,
    params_budget: Annotated[
        str | None, typer.Option(help="Most parameters, as well or instead: a ratio or a count.")
    ] = None,
    seed: Seed = 0,
    take_from: TakeFrom = None,
    image_size: ImageSize = None,
    recipe: RecipeName = None,
    epochs: Annotated[int | None, typer.Option(help="Of every training.", rich_help_panel=TRAINING)] = None,
    supernet_epochs: Annotated[int | None, typer.Option(help="Of the supernet.", rich_help_panel=TRAINING)] = None,
    pretrained: Annotated[
        Path | None, typer.Option(help="Weights to start from, a safetensors file.", rich_help_panel=TRAINING)
    ] = None,
    final_from: Annotated[
        str,
        typer.Option(
            help="What final networks start from: scratch, or supernet or pretrained for fine-tuning.",
            rich_help_panel=TRAINING,
        ),
    ] = "scratch",
    strategy: Annotated[
        str,
        typer.Option(
            help="Paths per step: complementary, bilateral, unilateral, unilateral-complementary.",
            rich_help_panel=TRAINING,
        ),
    ] = "complementary",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="key=value in the recipe; supernet.key and final.key for one.", rich_help_panel=TRAINING
        ),
    ] = None,
    pairs: Annotated[
        str, typer.Option(help="Two paths of the supernet in one pass: auto, on or off.", rich_help_panel=TRAINING)
    ] = "auto",
    score: Annotated[str, typer.Option(help="What ranks candidates: accuracy or loss.", rich_help_panel=SEARCH)] = (
        "accuracy"
    ),
    searcher: Searcher = "evolution",
    early_stop: EarlyStop = "off",
    tune_steps: TuneSteps = 0,
    finalist_steps: FinalistSteps = 0,
    tune_lr_share: TuneLrShare = 1.0,
    population: Annotated[int, typer.Option(help="Candidates per generation.", rich_help_panel=SEARCH)] = 40,
    generations: Annotated[int, typer.Option(help="Generations of the search.", rich_help_panel=SEARCH)] = 50,
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
    layout: Layout = "auto",
    score_batch: ScoreBatch = None,
    allocator: Allocator = "keep",
    primitives: Primitives = None,
    dry_run: DryRun = False,
) -> None:
    """Search widths; the help is `HELP`."""
    from bcnet.api.preview import preview
    from bcnet.api.search import search as run_search
    from bcnet.cli import parse

    arguments: dict[str, Any] = {
        "budget": parse.budget(budget, params_budget),
        "run_dir": out,
        "recipe": recipe,
        "supernet_epochs": supernet_epochs,
        "changes": parse.recipe_changes(set_, epochs, precision),
        "image_size": image_size,
        "pretrained": pretrained,
        "final_from": final_from,
        "seed": seed,
        "strategy": strategy,
        "score": score,
        "pairs": pairs,
        "searcher": searcher,
        "early_stop": early_stop,
        "tune_steps": tune_steps,
        "finalist_steps": finalist_steps,
        "tune_lr_share": tune_lr_share,
        "population": population,
        "generations": generations,
        "num_choices": num_choices,
        "min_ratio": min_ratio,
        "supernet_width": supernet_width,
        "multiple_of": multiple_of,
        "ignore": tuple(ignore or ()),
        "only": tuple(only or ()),
        "threads": threads,
        "device": device,
        "layout": layout,
        "score_batch_size": score_batch,
    }
    prepare_process(allocator, primitives)
    if dry_run:
        show_preview(Console(), preview(model, data, **arguments))
        return
    arguments["take_from"] = tuple(take_from or ())
    carry_to_the_end(
        lambda reporter: run_search(model, data, reporter=reporter, checkpoint_seconds=checkpoint_seconds, **arguments),
        out=out,
        log=log,
        tensorboard=tensorboard,
    )
