"""Options of the commands. Imports are light, since help pages and shell completion load this module."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bcnet.cli.endings import refuse

SPACE = "Width space"
TRAINING = "Training"
MACHINE = "Machine"
MODEL_FORMS = "Name, torchvision:NAME, timm:NAME, package.module:factory or FILE.py:factory."

Model = Annotated[str | None, typer.Option(help=MODEL_FORMS)]
Data = Annotated[
    str | None,
    typer.Option(help="Data set: digits, cifar10, parquet:PATH, ..., package.module:function or FILE.py:function."),
]
Task = Annotated[
    str | None,
    typer.Option(help="Training task: segmentation:classes=21, ..., package.module:factory or FILE.py:factory."),
]
Out = Annotated[Path | None, typer.Option(help="Run directory, new or to resume.")]
BudgetText = Annotated[
    str | None,
    typer.Option(help="Limit on MACs: a ratio (0.5) or a count (150M); several limits as macs=0.5,memory=320KiB."),
]
ParamsBudget = Annotated[str | None, typer.Option(help="Limit on parameters: a ratio or a count.")]
LatencyFile = Annotated[
    Path | None, typer.Option(help="File of `bcnet calibrate`, for a latency limit (default: measure first).")
]
InputShape = Annotated[
    list[str] | None,
    typer.Option("--input", help="Shape of an input, 3x224x224, or 128:int64 for tokens; repeatable.", metavar="SHAPE"),
]
METHOD_NAMES = ("trainings", "bcnet", "autoslim", "random", "uniform", "balanced", "pruned", "given")
"""Names of the methods for completion; a test compares them with `bcnet.methods.METHODS`."""
EFFORTS = ("small", "medium", "large")
STARTS = ("scratch", "original", "pretrained", "supernet")
MethodText = Annotated[
    str | None,
    typer.Option(
        help=f"Search method: {', '.join(METHOD_NAMES)}, package.module:Class or FILE.py:Class; with fields as "
        "bcnet:epochs=8,generations=20. [default: trainings]",
        metavar="NAME[:KEY=VALUE,...]",
        autocompletion=lambda: list(METHOD_NAMES),
    ),
]
Effort = Annotated[
    str | None,
    typer.Option(
        help="Cost of the method trainings: small, medium or large, about 1, 3 or 10 trainings of the original.",
        autocompletion=lambda: list(EFFORTS),
    ),
]
Start = Annotated[
    str | None,
    typer.Option(
        help="Initial weights of networks: scratch, original (after its training), pretrained or supernet.",
        autocompletion=lambda: list(STARTS),
    ),
]
Until = Annotated[
    str | None,
    typer.Option(help="Stop early: prior, widths or network.", autocompletion=lambda: ["prior", "widths", "network"]),
]
Reuse = Annotated[list[Path] | None, typer.Option(help="Run whose finished, shared stages are reused; repeatable.")]
Seed = Annotated[int | None, typer.Option(help="Seed of every random draw. [default: 0]", show_default=False)]
ImageSize = Annotated[
    int | None, typer.Option(help="Height and width of the images (default: the model's usual size).")
]
NumChoices = Annotated[
    int | None,
    typer.Option(help="Number of widths per group. [default: 20]", rich_help_panel=SPACE, show_default=False),
]
MinRatio = Annotated[
    float | None,
    typer.Option(help="Smallest width, as a share of the full width. [default: 0]", rich_help_panel=SPACE),
]
MinWidth = Annotated[
    list[str] | None,
    typer.Option(
        help="Smallest width of every group (16), or of layers by pattern (layer4.*=64); repeatable.",
        rich_help_panel=SPACE,
    ),
]
MultipleOf = Annotated[
    str | None,
    typer.Option(
        help="Width multiple: a number; fast: 8 or 4 (default); auto: from a calibration.",
        rich_help_panel=SPACE,
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(help="Layers pinned at full width, by pattern (layer4.*); repeatable.", rich_help_panel=SPACE),
]
Only = Annotated[
    list[str] | None, typer.Option(help="Search only these layers, by pattern; repeatable.", rich_help_panel=SPACE)
]
Widen = Annotated[
    float | None, typer.Option(help="Largest width over the model's, up to 4. [default: 1]", rich_help_panel=SPACE)
]
RecipeName = Annotated[
    str | None, typer.Option(help="Recipe name or YAML file (default: by model and data).", rich_help_panel=TRAINING)
]
Epochs = Annotated[int | None, typer.Option(help="Epochs of the networks.", rich_help_panel=TRAINING)]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="key=value in the recipe; repeatable.", rich_help_panel=TRAINING),
]
Pretrained = Annotated[
    Path | None, typer.Option(help="Weights of the model, a safetensors file.", rich_help_panel=TRAINING)
]
Precision = Annotated[
    str | None,
    typer.Option(
        help="auto, fp32, bf16 or fp16.",
        rich_help_panel=MACHINE,
        autocompletion=lambda: ["auto", "fp32", "bf16", "fp16"],
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(help="Processes that decode image files; 0: the main process.", rich_help_panel=MACHINE),
]
Threads = Annotated[int | None, typer.Option(help="CPU threads.", rich_help_panel=MACHINE)]
AtOnce = Annotated[
    int | None,
    typer.Option(
        help="Candidates trained at once, by a thread each (small networks: all threads).", rich_help_panel=MACHINE
    ),
]
Device = Annotated[str | None, typer.Option(help="cpu or cuda (default: the best available).", rich_help_panel=MACHINE)]
Option = Annotated[
    list[str] | None,
    typer.Option(
        help="key=value of a rarely used option (docs: Settings); repeatable.",
        rich_help_panel=MACHINE,
        metavar="KEY=VALUE",
    ),
]
CheckpointSeconds = Annotated[float, typer.Option(help="Most training to lose when killed.", rich_help_panel=MACHINE)]
Log = Annotated[
    str,
    typer.Option(
        help="Progress: auto, bars, lines, json (one line per event) or quiet.",
        rich_help_panel=MACHINE,
        autocompletion=lambda: ["auto", "bars", "lines", "json", "quiet"],
    ),
]
WithTensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Write scalars to OUT/tensorboard.", rich_help_panel=MACHINE)
]
Allocator = Annotated[
    str, typer.Option(help="keep: glibc keeps freed memory; system: unchanged.", rich_help_panel=MACHINE)
]
Primitives = Annotated[
    int | None,
    typer.Option("--primitive-cache", help="Compiled operators that oneDNN keeps.", rich_help_panel=MACHINE, min=0),
]


def given_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that were given: options left out are None, or empty if repeatable."""
    values = {name: value for name, value in settings.items() if value is not None and value != []}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def space_options(
    num_choices: int | None,
    min_ratio: float | None,
    min_width: list[str] | None,
    multiple_of: str | None,
    ignore: list[str] | None,
    only: list[str] | None,
    widen: float | None = None,
) -> dict[str, Any]:
    """Return the given fields of the width space."""
    multiple: int | str | None = multiple_of
    if multiple_of is not None and multiple_of.removeprefix("-").isdecimal():
        multiple = int(multiple_of)
    return given_settings(
        {
            "num_choices": num_choices,
            "min_ratio": min_ratio,
            "min_width": _parse_smallest(min_width),
            "multiple_of": multiple,
            "ignore": ignore,
            "only": only,
            "widen": widen,
        }
    )


def _parse_smallest(texts: list[str] | None) -> int | dict[str, int] | None:
    """Parse smallest widths, `16` or `PATTERN=16`; None if not given."""
    if not texts:
        return None
    if len(texts) == 1 and texts[0].isdecimal():
        return int(texts[0])
    found = {}
    for text in texts:
        pattern, equals, width = text.rpartition("=")
        if not equals or not pattern or not width.isdecimal():
            refuse(
                f"--min-width must be a number, or PATTERN=NUMBER of layers; got {text!r}: --min-width 'layer4.*=64'"
            )
        found[pattern] = int(width)
    return found
