"""`bcnet search`: the whole job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bcnet.cli.carry_out import carry_to_the_end
from bcnet.cli.common import prepare_process
from bcnet.cli.endings import guarded, refuse
from bcnet.cli.options import (
    Allocator,
    BudgetText,
    CheckpointSeconds,
    Data,
    Effort,
    Epochs,
    LatencyFile,
    Log,
    Model,
    Out,
    ParamsBudget,
    Precision,
    Preset,
    Pretrained,
    Primitives,
    RecipeName,
    Set,
    SupernetEpochs,
    TakeFrom,
    Task,
    WithTensorBoard,
    given,
    with_settings,
)

if TYPE_CHECKING:
    from bcnet.api import Preview

HELP = """
Search the widths of MODEL under a budget, train the found network, and compare it.

Stages: the original, the search, then the Uniform and the searched network trained alike. The run directory ends with
result.json, final.safetensors, report.html and ratios.svg. Stopped at any moment, the same command goes on; with other
settings the directory is refused. Several processes share the work when torchrun starts them: torchrun --nproc-per-node
8 -m bcnet search ...

MODEL is a name (bcnet profile --list), torchvision:NAME, timm:NAME or package.module:factory, which imports and runs
that code, installed or in the current folder. DATA is digits, cifar10, imagefolder:PATH, parquet:PATH or hf:ORG/NAME.

Candidates are networks of short trainings, which a model of their scores proposes. --effort small, medium or large says
what that costs: about 1, 3 or 10 trainings of the original. They and the final networks start from the trained
original, or from --pretrained, unless --final-from scratch says otherwise.

With --scorer supernet they are paths of one supernet, as in the paper: supernet, prior, evolution, then the final
networks from scratch. An option that only such a search has asks for it too (--supernet-epochs, --strategy,
--population, --preset paper, ...).

A FILE.yaml says the same as the options, by section; --print-settings writes one, and options given beside it come
first.

Examples:

  bcnet search --model resnet_digits --data digits --budget 0.5 --out runs/demo

  bcnet search --model resnet20 --data parquet:data/cifar10 --budget 20M --epochs 30 --out runs/r20

  bcnet search --model vgg19 --data cifar10 --budget 0.5 --set lr=0.05 --set supernet.epochs=200 --out runs/vgg

  bcnet search runs/r20.yaml --seed 1 --out runs/r20-1
"""


@guarded
@with_settings(
    *("seed", "image_size", "final_from", "examples", "random_networks", "random_epochs"),
    sections=("space", "supernet", "prior", "scoring", "search", "finalists", "machine"),
    but=("supernet", "own_score", "search_seed", "processes"),
)
def search(
    file: Annotated[Path | None, typer.Argument(help="A run as YAML: what the options below say, by section.")] = None,
    model: Model = None,
    data: Data = None,
    task: Task = None,
    out: Out = None,
    budget: BudgetText = None,
    params_budget: ParamsBudget = None,
    latency_model: LatencyFile = None,
    effort: Effort = None,
    preset: Preset = None,
    epochs: Epochs = None,
    take_from: TakeFrom = None,
    recipe: RecipeName = None,
    supernet_epochs: SupernetEpochs = None,
    pretrained: Pretrained = None,
    set_: Set = None,
    precision: Precision = None,
    checkpoint_seconds: CheckpointSeconds = 30.0,
    log: Log = "auto",
    tensorboard: WithTensorBoard = False,
    allocator: Allocator = "keep",
    primitives: Primitives = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show settings, space, and an estimate of time, memory and disk; write nothing."
        ),
    ] = False,
    print_settings: Annotated[
        bool, typer.Option("--print-settings", help="Write the run as a YAML file to standard output, and do nothing.")
    ] = False,
    **settings: Any,
) -> None:
    """Search widths; the help is `HELP`."""
    from bcnet.api import preview
    from bcnet.api import search as run_search
    from bcnet.cli import parse
    from bcnet.cli.run_file import read_run_file, run_file
    from bcnet.run.effort import NOT_BESIDE
    from bcnet.run.presets import PRESETS

    arguments: dict[str, Any] = {} if file is None else read_run_file(file)
    named = {"model": model, "data": data, "task": task, "run_dir": out, "recipe": recipe, "pretrained": pretrained}
    arguments |= given(named)
    decided = {*(NOT_BESIDE if effort is not None else ()), *PRESETS.get(preset or "", ())}
    arguments = {name: value for name, value in arguments.items() if name not in decided}
    arguments |= given(settings) | given({"supernet_epochs": supernet_epochs, "effort": effort, "preset": preset})
    for name, option in (("model", "--model"), ("data", "--data"), ("run_dir", "--out")):
        if name not in arguments:
            refuse(
                f"a search needs a {name.replace('run_dir', 'run directory')}: give {option}, or a FILE that says it"
            )
    if budget is not None or params_budget is not None or "budget" not in arguments:
        arguments["budget"] = parse.budget(budget, params_budget)
    arguments["budget"] = parse.with_latency_model(arguments["budget"], latency_model)
    recipe_changes = parse.recipe_changes(set_, epochs, precision)
    from_file = {} if recipe is not None else arguments.get("changes", {})
    arguments["changes"] = from_file | _for_both(recipe_changes, from_file)
    prepare_process(allocator, primitives)
    asked = arguments.pop("model"), arguments.pop("data")
    if dry_run or print_settings:
        found = preview(*asked, **arguments)
        if print_settings:
            typer.echo(run_file(found.settings, arguments["run_dir"], arguments.get("task")), nl=False)
        else:
            _show_preview(Console(), found)
        return
    arguments["take_from"] = tuple(take_from or ())
    carry_to_the_end(
        lambda reporter: run_search(*asked, reporter=reporter, checkpoint_seconds=checkpoint_seconds, **arguments),
        out=arguments["run_dir"],
        log=log,
        tensorboard=tensorboard,
    )


def _for_both(changes: dict[str, Any], from_file: dict[str, Any]) -> dict[str, Any]:
    """Changes to both recipes, which come before what a file says of the final one alone."""
    return changes | {f"final.{key}": value for key, value in changes.items() if f"final.{key}" in from_file}


def _show_preview(console: Console, found: Preview) -> None:
    """Every setting, the space in a line, room on the disk, and the estimate."""
    from bcnet.display import size

    table = Table(title="Settings")
    table.add_column("setting")
    table.add_column("value")
    for key, value in found.settings.flat().items():
        table.add_row(escape(key), escape(str(value)))
    console.print(table)
    space = found.space
    lines = [
        f"Space: {len(space.groups)} width groups, {space.reference.macs:,} MACs at full width, "
        f"{space.cost(space.narrowest).macs:,} at the narrowest; {len(space.fixed)} dimensions pinned "
        "(bcnet profile says why).",
        f"Disk: about {size(found.disk)} at most, {size(found.disk_free)} free.",
        *(found.estimate.lines() if found.estimate is not None else ["Every stage of this run is finished."]),
        "Nothing was written.",
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
