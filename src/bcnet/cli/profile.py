"""`bcnet profile`: the searchable widths of a model, and their cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from bcnet.cli.endings import guard, refuse
from bcnet.cli.options import (
    MODEL_FORMS,
    Ignore,
    ImageSize,
    InputShape,
    LatencyFile,
    MinRatio,
    MinWidth,
    MultipleOf,
    NumChoices,
    Only,
    space_options,
)

if TYPE_CHECKING:
    from bcnet.costs import Latency, LatencyModel
    from bcnet.space import WidthSpace

HELP = """
Show the searchable widths of MODEL: groups, choices, costs, and pinned dimensions with the reasons.

Examples:

  bcnet profile vgg19

  bcnet profile resnet_digits --widths 8,12,12,16,16,24

  bcnet profile vgg19 --widths published:0.5x

  bcnet profile vgg19 --latency-model device.json --multiple-of auto

  bcnet profile torchvision:mobilenet_v2 --num-choices 10 --multiple-of 8

  bcnet profile mymodels:make_network     (make_network in mymodels.py, in the current folder)

  bcnet profile mymodels:Listener --input 1x16000

  bcnet profile mymodels:Reader --input 3x64x64 --input 128:int64     (an image and tokens)
"""


@guard
def profile(
    model: Annotated[str | None, typer.Argument(help=MODEL_FORMS)] = None,
    named: Annotated[str | None, typer.Option("--model", help="Same as MODEL.")] = None,
    widths: Annotated[
        str | None, typer.Option(help="Widths whose cost is shown: numbers, a file, a run, or published:VARIANT.")
    ] = None,
    latency_model: LatencyFile = None,
    list_: Annotated[bool, typer.Option("--list", help="List the names of models, data sets and recipes.")] = False,
    classes: Annotated[int | None, typer.Option(help="Number of classes (default: the model's usual one).")] = None,
    input_: InputShape = None,
    image_size: ImageSize = None,
    num_choices: NumChoices = None,
    min_ratio: MinRatio = None,
    min_width: MinWidth = None,
    multiple_of: MultipleOf = None,
    ignore: Ignore = None,
    only: Only = None,
) -> None:
    """Show a width space; the help is `HELP`."""
    from bcnet.cli.show import show_space
    from bcnet.costs import read_latency
    from bcnet.latency import multiples
    from bcnet.run.widths import resolve_widths

    if list_:
        _list_names()
        return
    model = model or named
    if model is None:
        refuse("give a MODEL, for instance `bcnet profile vgg19`; --list shows the names")
    wishes = space_options(num_choices, min_ratio, min_width, multiple_of, ignore, only)
    latency = None if latency_model is None else read_latency(latency_model)
    if latency is not None and wishes.get("multiple_of") == "auto":
        whole, *_ = space_of(model, classes, image_size, wishes | {"multiple_of": 1}, input_)
        wishes["multiple_of"] = multiples(whole, _model_of(latency, whole))
    space, network, inputs = space_of(model, classes, image_size, wishes, input_)
    if latency is not None:
        _model_of(latency, space)
    chosen = None if widths is None else resolve_widths(widths, space, network, model)
    console = Console()
    show_space(console, space, model, chosen, latency)
    if not input_:
        size = "x".join(map(str, inputs.shape[1:]))
        assumed = "" if image_size else ", the model's usual size (--image-size gives another)"
        console.print(f"Traced on an image of {size}{assumed}.", highlight=False, soft_wrap=True)


def _model_of(latency: Latency, space: WidthSpace) -> LatencyModel:
    """Return the model in a file if it was fitted to this network.

    Raises:
        BudgetError: it was fitted to another one.
    """
    from bcnet.stages.calibration import check_model

    assert latency.model is not None
    check_model(latency.model, space)
    return latency.model


def space_of(
    model: str, classes: int | None, image_size: int | None, wishes: dict[str, Any], shapes: Sequence[str] | None
) -> Any:
    """Return the width space of a model by name, the network, and two inputs: images, or those of `--input`."""
    import torch

    from bcnet.cli import parse
    from bcnet.errors import TraceError
    from bcnet.models import create
    from bcnet.space import WidthSpace

    spec = create(model, classes, image_size=image_size)
    network = spec.build()
    inputs = parse.inputs(shapes) if shapes else torch.zeros(2, *spec.input_size)
    try:
        return WidthSpace.trace(network, inputs, **wishes), network, inputs
    except TraceError as error:
        if shapes or image_size:
            raise
        size = "x".join(map(str, spec.input_size))
        raise TraceError(f"{error}. An input of {size} was assumed: give --image-size, or --input SHAPE") from error


def _list_names() -> None:
    from bcnet import data, models
    from bcnet.train import recipe_names

    for title, names in (("models", models.NAMES), ("data sets", data.NAMES), ("recipes", recipe_names())):
        typer.echo(f"{title}: {', '.join(names)}")
