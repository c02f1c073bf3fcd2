"""`bcnet search`: search, train and compare."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bcnet.cli.carry_out import carry_out
from bcnet.cli.common import prepare_process
from bcnet.cli.endings import guard, refuse
from bcnet.cli.options import (
    Allocator,
    AtOnce,
    BudgetText,
    CheckpointSeconds,
    Data,
    Device,
    Effort,
    Epochs,
    Ignore,
    ImageSize,
    LatencyFile,
    Log,
    MethodText,
    MinRatio,
    MinWidth,
    Model,
    MultipleOf,
    NumChoices,
    Only,
    Option,
    Out,
    ParamsBudget,
    Precision,
    Pretrained,
    Primitives,
    RecipeName,
    Reuse,
    Seed,
    Set,
    Start,
    Task,
    Threads,
    Until,
    Widen,
    WithTensorBoard,
    Workers,
    given_settings,
    space_options,
)

if TYPE_CHECKING:
    from bcnet.api import Preview

HELP = """
Search the widths of MODEL under a budget, train the found network, and compare it.

Stages: the original, the search, then the Uniform and the searched network with the same training. At the end the run
directory has result.json, final.safetensors, report.html and ratios.svg. If the run is stopped, the same command
resumes it; with other settings the directory is refused. Processes started by torchrun share the work: torchrun
--nproc-per-node 8 -m bcnet search ...

MODEL is a name (bcnet profile --list), torchvision:NAME, timm:NAME or package.module:factory, which imports and runs
that code, installed or in the current folder. DATA is digits, cifar10, imagefolder:PATH, csv:PATH, npz:PATH,
parquet:PATH or hf:ORG/NAME.

The default method scores candidates by short trainings that start from the trained original, or from --pretrained.
--effort small, medium or large sets the cost. --method bcnet is the paper's method, on a supernet; bcnet help methods
lists all methods with their fields.

A FILE.yaml replaces the options; --print-settings writes one, and options given with it take precedence.

Examples:

  bcnet search --model resnet_digits --data digits --budget 0.25 --out runs/demo

  bcnet search --model resnet20 --data parquet:data/cifar10 --budget 20M --epochs 30 --out runs/r20

  bcnet search --model resnet20 --data parquet:data/cifar10 --budget 0.25 --reuse runs/r20 --out runs/r20-quarter

  bcnet search --model vgg19 --data cifar10 --budget 0.5 --method bcnet:epochs=200 --set lr=0.05 --out runs/vgg

  bcnet search --model vgg19 --data cifar10 --method given:values=published:0.5x --out runs/published

  bcnet search runs/r20.yaml --seed 1 --out runs/r20-1
"""

_NEEDED = {"model": ("a model", "--model"), "data": ("data", "--data"), "run_dir": ("a run directory", "--out")}


@guard
def search(
    file: Annotated[Path | None, typer.Argument(help="A run as YAML, in place of the options below.")] = None,
    model: Model = None,
    data: Data = None,
    task: Task = None,
    out: Out = None,
    budget: BudgetText = None,
    params_budget: ParamsBudget = None,
    latency_model: LatencyFile = None,
    method: MethodText = None,
    effort: Effort = None,
    start: Start = None,
    until: Until = None,
    reuse: Reuse = None,
    seed: Seed = None,
    image_size: ImageSize = None,
    epochs: Epochs = None,
    recipe: RecipeName = None,
    set_: Set = None,
    pretrained: Pretrained = None,
    num_choices: NumChoices = None,
    min_ratio: MinRatio = None,
    min_width: MinWidth = None,
    multiple_of: MultipleOf = None,
    ignore: Ignore = None,
    only: Only = None,
    widen: Widen = None,
    precision: Precision = None,
    threads: Threads = None,
    at_once: AtOnce = None,
    workers: Workers = None,
    device: Device = None,
    option: Option = None,
    checkpoint_seconds: CheckpointSeconds = 30.0,
    log: Log = "auto",
    tensorboard: WithTensorBoard = False,
    allocator: Allocator = "keep",
    primitives: Primitives = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the time, memory and disk space of the run; write nothing."),
    ] = False,
    all_settings: Annotated[bool, typer.Option("--all", help="With --dry-run: show every setting.")] = False,
    print_settings: Annotated[
        bool, typer.Option("--print-settings", help="Write the run as YAML to standard output, without running it.")
    ] = False,
) -> None:
    """Implement the command; the help is `HELP`."""
    from bcnet.api import preview
    from bcnet.api import search as run_search
    from bcnet.cli import parse
    from bcnet.cli.run_file import read_run_file, run_file
    from bcnet.cli.show import show_outcome

    arguments: dict[str, Any] = {} if file is None else read_run_file(file)
    arguments |= given_settings({"model": model, "data": data, "task": task, "run_dir": out, "pretrained": pretrained})
    arguments |= given_settings({"start": start, "seed": seed, "epochs": epochs, "method": _method(method, effort)})
    if dry_run:
        arguments.setdefault("run_dir", Path(f"dry-run-{os.getpid()}"))  # nothing is written there
    missing = [name for name in _NEEDED if name not in arguments]
    if missing:
        words, flags = zip(*(_NEEDED[name] for name in missing), strict=True)
        refuse(f"a search needs {', '.join(words)}: give {', '.join(flags)}, or a FILE of settings")
    if budget is not None or params_budget is not None or ("budget" not in arguments and not _is_given(arguments)):
        arguments["budget"] = parse.budget(budget, params_budget)
    if latency_model is not None or "budget" in arguments:
        arguments["budget"] = parse.with_latency_model(arguments["budget"], latency_model)
    changes = parse.parse_training(recipe, set_, precision)
    arguments["training"] = _training_argument(arguments.get("training"), changes, epochs)
    arguments["space"] = {
        **arguments.get("space", {}),
        **space_options(num_choices, min_ratio, min_width, multiple_of, ignore, only, widen),
    }
    machine = {"threads": threads, "at_once": at_once, "workers": workers, "device": device}
    chosen = given_settings({"image_size": image_size, **machine})
    extra = parse.changes(option or [], "--option", "validation_fraction=0.2")
    arguments["options"] = {**arguments.get("options", {}), **extra, **chosen}
    prepare_process(allocator, primitives)
    subject = [arguments.pop(name, None) for name in ("model", "data", "budget", "run_dir")]
    if dry_run or print_settings:
        found = preview(*subject, **arguments)
        if print_settings:
            typer.echo(run_file(found.settings, subject[3], arguments.get("task")), nl=False)
        else:
            _show_preview(Console(), found, all_settings)
        return
    carry_out(
        lambda reporter: run_search(
            *subject,
            reporter=reporter,
            checkpoint_seconds=checkpoint_seconds,
            progress=False,
            until=until,  # type: ignore[arg-type]  # validated there
            reuse=tuple(reuse or ()),
            **arguments,
        ),
        lambda console, outcome: show_outcome(console, outcome, str(subject[3])),
        lambda outcome: {} if outcome.result is None else outcome.result.to_document(),
        out=subject[3],
        log=log,
        tensorboard=tensorboard,
    )


def _method(method: str | None, effort: str | None) -> str | None:
    """Return the method of `--method` and `--effort`."""
    if effort is None:
        return method
    name, colon, fields = (method or "trainings").partition(":")
    if name != "trainings":
        refuse(f"--effort belongs to the method trainings; got {effort} with --method {method}: leave one of them out")
    return f"{name}:effort={effort}{',' if colon else ''}{fields}"


def _is_given(arguments: dict[str, Any]) -> bool:
    """Return whether the widths are given; their own cost is then the budget."""
    from bcnet.methods import Given

    method = arguments.get("method")
    return isinstance(method, Given) or (isinstance(method, str) and method.partition(":")[0] == Given.name)


def _training_argument(from_file: Any, changes: dict[str, Any], epochs: int | None) -> Any:
    """Return a file's recipe with the changes of options; a recipe named by an option replaces it."""
    if from_file is None or "recipe" in changes:
        return changes or None
    if isinstance(from_file, dict):
        replaced = {} if epochs is None else {"epochs": epochs}
        return {**from_file, **changes, **replaced}
    return from_file.with_changes(changes)


def _show_preview(console: Console, found: Preview, all_settings: bool) -> None:
    """Show the cost of the run, the space in a line, free disk space, and optionally every setting."""
    from bcnet.display import size
    from bcnet.stages.running import describe_training

    space = found.space
    lines = ["Every stage of this run is finished."] if found.estimate is None else [*found.estimate.lines()]
    if found.threads_text:
        lines.append(found.threads_text)
    lines += [
        f"Training: {describe_training(found.settings)}. The time is proportional to --epochs.",
        f"Disk: about {size(found.disk)} at most, {size(found.disk_free)} free.",
        f"Space: {len(space.groups)} width groups, {space.reference.macs:,} MACs at full width, "
        f"{space.cost(space.narrowest).macs:,} at the narrowest; {len(space.fixed)} dimensions pinned "
        "(bcnet profile shows why).",
        "Nothing was written." if all_settings else "Nothing was written. --all shows every setting.",
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if not all_settings:
        return
    table = Table(title="Settings")
    table.add_column("setting")
    table.add_column("value")
    for key, value in found.settings.flatten().items():
        table.add_row(escape(key), escape(str(value)))
    console.print(table)
