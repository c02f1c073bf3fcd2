"""Commands: their options, their help, and how they end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bcnet.cli import again, recipes, report, results, status
from bcnet.cli import baseline as baselines
from bcnet.cli import replay as replaying
from bcnet.cli.carry_out import Log, WithTensorBoard, carry_out
from bcnet.cli.common import (
    MACHINE,
    SEARCH,
    TRAINING,
    Allocator,
    EarlyStop,
    Ignore,
    ImageSize,
    Layout,
    MinRatio,
    MultipleOf,
    NumChoices,
    Only,
    Primitives,
    ScoreBatch,
    SupernetWidth,
    TakeFrom,
    page,
    prepare_process,
)
from bcnet.cli.endings import (
    complain,
    exit_code,
    guarded,
    launched_rank,
    let_the_first_speak,
    only_the_first_speaks,
    refuse,
    take_termination_for_a_stop,
)
from bcnet.cli.preview import DryRun, show_preview

_HELP = """
Find the best channel widths of a convolutional network under a compute budget (BCNet, CVPR 2021).

A supernet that shares its weights among all widths is trained once; an evolutionary search scores thousands of
widths with it; the best network within the budget is trained from scratch and compared with the original and with a
uniformly narrowed one of the same cost.

A run lives in one directory. The same command on the same directory goes on where it was stopped.

Examples:

  bcnet search --model resnet_digits --data digits --budget 0.5 --out runs/demo

  bcnet search --model vgg19 --data cifar10 --budget 0.5 --out runs/vgg

  bcnet profile torchvision:resnet50

  bcnet status runs/demo

Exit codes: 0 done, 2 something is wrong with what was asked for (one message says what), 130 stopped by
Ctrl-C, 143 by SIGTERM.
"""
_SEARCH_HELP = """
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
_PROFILE_HELP = """
Show what can be searched in MODEL: width groups, their choices, costs, and what is held at full width and why.

Examples:

  bcnet profile vgg19

  bcnet profile resnet_digits --widths 8,12,12,16,16,24

  bcnet profile vgg19 --widths published:0.5x

  bcnet profile torchvision:mobilenet_v2 --num-choices 10 --multiple-of 8

  bcnet profile mymodels:make_network     (make_network in mymodels.py, in the current folder)
"""


app = typer.Typer(
    help=page(_HELP),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)


@app.command(help=page(_SEARCH_HELP))
@guarded
def search(
    model: Annotated[str, typer.Option(help="Name, torchvision:NAME, timm:NAME or package.module:factory.")],
    data: Annotated[str, typer.Option(help="Data set: digits, cifar10, parquet:PATH, imagefolder:PATH, ...")],
    out: Annotated[Path, typer.Option(help="Run directory, new or to go on with.")],
    budget: Annotated[
        str | None, typer.Option(help="Most MACs: a ratio of the original (0.5) or a count (150M).")
    ] = None,
    params_budget: Annotated[
        str | None, typer.Option(help="Most parameters, as well or instead: a ratio or a count.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of every random draw.")] = 0,
    take_from: TakeFrom = None,
    image_size: ImageSize = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="Recipe name or YAML file (default: by model and data).", rich_help_panel=TRAINING),
    ] = None,
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
    searcher: Annotated[
        str,
        typer.Option(help="evolution, evolution-without-prior, greedy, prior-only or random.", rich_help_panel=SEARCH),
    ] = "evolution",
    early_stop: EarlyStop = "off",
    population: Annotated[int, typer.Option(help="Candidates per generation.", rich_help_panel=SEARCH)] = 40,
    generations: Annotated[int, typer.Option(help="Generations of the search.", rich_help_panel=SEARCH)] = 50,
    num_choices: NumChoices = 20,
    min_ratio: MinRatio = 0.0,
    supernet_width: SupernetWidth = 1.0,
    multiple_of: MultipleOf = 1,
    ignore: Ignore = None,
    only: Only = None,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads (default: torch's).", rich_help_panel=MACHINE)
    ] = None,
    precision: Annotated[str | None, typer.Option(help="auto, fp32, bf16 or fp16.", rich_help_panel=MACHINE)] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda (default: the best).", rich_help_panel=MACHINE)
    ] = None,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="Most training to lose when killed.", rich_help_panel=MACHINE)
    ] = 30.0,
    log: Log = "auto",
    tensorboard: WithTensorBoard = False,
    layout: Layout = "auto",
    score_batch: ScoreBatch = None,
    allocator: Allocator = "keep",
    primitives: Primitives = None,
    dry_run: DryRun = False,
) -> None:
    """Search widths; the help is `_SEARCH_HELP`."""
    from bcnet.cli import parse
    from bcnet.cli.show import show_result
    from bcnet.pipeline import search as run_search
    from bcnet.pipeline.preview import preview
    from bcnet.report import finish

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
    carry_out(
        lambda reporter: finish(
            run_search(model, data, reporter=reporter, checkpoint_seconds=checkpoint_seconds, **arguments)
        ),
        lambda console, outcome: show_result(console, outcome.result, str(out)),
        lambda outcome: dict(outcome.result),
        out=out,
        log=log,
        tensorboard=tensorboard,
    )


@app.command(help=page(_PROFILE_HELP))
@guarded
def profile(
    model: Annotated[
        str | None, typer.Argument(help="Name, torchvision:NAME, timm:NAME or package.module:factory.")
    ] = None,
    widths: Annotated[
        str | None, typer.Option(help="What would they cost? Numbers, a file, a run, or published:VARIANT.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the names of models, data sets and recipes.")] = False,
    classes: Annotated[int | None, typer.Option(help="Number of classes (default: the model's usual one).")] = None,
    image_size: ImageSize = None,
    num_choices: NumChoices = 20,
    min_ratio: MinRatio = 0.0,
    multiple_of: MultipleOf = 1,
    ignore: Ignore = None,
    only: Only = None,
) -> None:
    """Show a width space; the help is `_PROFILE_HELP`."""
    from bcnet.cli.show import show_space
    from bcnet.pipeline import resolve_widths

    if list_:
        _list_names()
        return
    if model is None:
        refuse("give a MODEL, for instance `bcnet profile vgg19`; --list shows the names")
    wishes = {
        "num_choices": num_choices,
        "min_ratio": min_ratio,
        "multiple_of": multiple_of,
        "ignore": ignore or (),
        "only": only or (),
    }
    space, network = _trace(model, classes, image_size, wishes)
    chosen = None if widths is None else resolve_widths(widths, space, network, model)
    show_space(Console(), space, model, chosen)


app.command("baseline", help=page(baselines.HELP))(baselines.baseline)
app.command("report", help=page(report.HELP))(report.report)
app.command(help=page(results.EXPORT_HELP))(results.export)
app.command(help=page(results.LATENCY_HELP))(results.latency)
app.command(help=page(again.TRAIN_HELP))(again.train)
app.command(help=page(again.EVOLVE_HELP))(again.evolve)
app.command(help=page(again.RETRAIN_HELP))(again.retrain)
app.command("recipes", help=page(recipes.HELP))(recipes.recipes)
app.command("status", help=page(status.HELP))(status.status)
app.command("replay", help=page(replaying.HELP))(replaying.replay)


_SHARED = {"search", "baseline", "train", "evolve", "retrain"}


def main() -> None:
    """Entry point of the `bcnet` command; under torchrun that of every process."""
    if launched_rank() and not set(sys.argv[1:2]) & _SHARED:
        return  # all other commands are the work of one
    take_termination_for_a_stop()
    _find_modules_here()
    try:
        with only_the_first_speaks():
            app()
    except SystemExit as end:
        if end.code and launched_rank():
            let_the_first_speak()
        raise
    except KeyboardInterrupt as stop:
        if not launched_rank():
            complain("Stopped.")
        sys.exit(exit_code(stop))


def _find_modules_here() -> None:
    """Let `--model module:factory` name code in the current folder, behind all that is installed."""
    if "" not in sys.path:
        sys.path.append("")


def _trace(model: str, classes: int | None, image_size: int | None, wishes: dict[str, Any]) -> Any:
    import torch

    from bcnet.models import create
    from bcnet.space import WidthSpace

    spec = create(model, classes, image_size=image_size)
    network = spec.build()
    return WidthSpace.trace(network, torch.zeros(2, *spec.input_size), **wishes), network


def _list_names() -> None:
    from bcnet import data, models
    from bcnet.train import recipe_names

    for title, names in (("models", models.NAMES), ("data sets", data.NAMES), ("recipes", recipe_names())):
        typer.echo(f"{title}: {', '.join(names)}")
