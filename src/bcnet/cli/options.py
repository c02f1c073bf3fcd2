"""Options that several commands have, each said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SPACE, TRAINING, SEARCH, MACHINE = "Width space", "Training", "Search", "Machine"

NumChoices = Annotated[int, typer.Option(help="Widths each group may take.", rich_help_panel=SPACE)]
MinRatio = Annotated[float, typer.Option(help="Smallest kept ratio of a group.", rich_help_panel=SPACE)]
MultipleOf = Annotated[int, typer.Option(help="Make widths multiples of this, 8 for instance.", rich_help_panel=SPACE)]
Ignore = Annotated[
    list[str] | None,
    typer.Option(help="Layers to hold at full width, by pattern (layer4.*); repeatable.", rich_help_panel=SPACE),
]
Only = Annotated[
    list[str] | None, typer.Option(help="Search only these layers, by pattern; repeatable.", rich_help_panel=SPACE)
]
SupernetWidth = Annotated[
    float,
    typer.Option(help="Widest widths over the model's own; 1.5 to search at 1.0 of its MACs.", rich_help_panel=SPACE),
]
TakeFrom = Annotated[list[Path] | None, typer.Option(help="Another run, what it has finished and shares; repeatable.")]
Layout = Annotated[
    str, typer.Option(help="Of the supernet's weights: auto, contiguous or channels_last.", rich_help_panel=MACHINE)
]
ScoreBatch = Annotated[
    int | None,
    typer.Option(help="Images scored at once (default: 2,048, raced 128, or what fits).", rich_help_panel=MACHINE),
]
EarlyStop = Annotated[
    str,
    typer.Option(help="Score hopeless candidates on a part of the images: auto, on or off.", rich_help_panel=SEARCH),
]
TuneSteps = Annotated[
    int,
    typer.Option(help="Steps of fine-tuning for every candidate before its score.", rich_help_panel=SEARCH),
]
FinalistSteps = Annotated[
    int,
    typer.Option(help="The same for the best before their second score, if more.", rich_help_panel=SEARCH),
]
TuneLrShare = Annotated[
    float,
    typer.Option(help="Highest learning rate of fine-tuning, as a share of the supernet's.", rich_help_panel=SEARCH),
]
Allocator = Annotated[
    str, typer.Option(help="keep lets glibc keep freed memory, system leaves it alone.", rich_help_panel=MACHINE)
]
Primitives = Annotated[
    int | None,
    typer.Option("--primitive-cache", help="Compiled operators that oneDNN keeps.", rich_help_panel=MACHINE, min=0),
]
ImageSize = Annotated[int | None, typer.Option(help="Pixels, where not the model's usual ones.")]
Run = Annotated[Path, typer.Argument(help="Run directory.")]
Model = Annotated[str, typer.Option(help="Name, torchvision:NAME, timm:NAME or package.module:factory.")]
Data = Annotated[str, typer.Option(help="Data set: digits, cifar10, parquet:PATH, imagefolder:PATH, ...")]
RecipeName = Annotated[
    str | None, typer.Option(help="Recipe name or YAML file (default: by model and data).", rich_help_panel=TRAINING)
]
Epochs = Annotated[int | None, typer.Option(help="Of the training.", rich_help_panel=TRAINING)]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="key=value in the recipe; repeatable.", rich_help_panel=TRAINING)
]
Threads = Annotated[int | None, typer.Option(help="CPU threads (default: torch's).", rich_help_panel=MACHINE)]
Precision = Annotated[str | None, typer.Option(help="auto, fp32, bf16 or fp16.", rich_help_panel=MACHINE)]
Device = Annotated[str | None, typer.Option(help="cpu or cuda (default: the best).", rich_help_panel=MACHINE)]
NewOut = Annotated[Path | None, typer.Option(help="Directory of the new run, where a setting is another.")]
CheckpointSeconds = Annotated[float, typer.Option(help="Most training to lose when killed.", rich_help_panel=MACHINE)]
Out = Annotated[Path, typer.Option(help="Run directory, new or to go on with.")]
Seed = Annotated[int, typer.Option(help="Of every random draw.")]
MacsBudget = Annotated[str | None, typer.Option(help="Most MACs: a ratio of the original (0.5) or a count (150M).")]
Searcher = Annotated[
    str | None,
    typer.Option(
        help="evolution, evolution-without-prior, greedy-evolution, greedy, prior-only or random.",
        rich_help_panel=SEARCH,
    ),
]
Log = Annotated[
    str, typer.Option(help="Progress: auto, bars, lines, json (a line an event) or quiet.", rich_help_panel=MACHINE)
]
WithTensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Write scalars to OUT/tensorboard.", rich_help_panel=MACHINE)
]
