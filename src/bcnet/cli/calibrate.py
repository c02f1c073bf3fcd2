"""`bcnet calibrate`: how long networks of any widths take on this device, as a file for latency budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bcnet.cli.endings import guarded, refuse
from bcnet.cli.options import given, with_settings

HELP = """
Time networks of MODEL with random widths on an engine, and fit a model that predicts the latency of any widths.

Some tens of whole networks are timed, in turns, until the error on networks that the fit has not seen is small. The
file is for `bcnet search --budget latency=2ms --latency-model FILE`; without one a search calibrates by itself.

Examples:

  bcnet calibrate resnet20 --engine onnxruntime --threads 1 --out device.json

  bcnet calibrate torchvision:mobilenet_v2 --image-size 96 --batch 4 --out device.json
"""


@guarded
@with_settings("image_size", "seed", sections=("space",), but=("supernet_width",))
def calibrate(
    model: Annotated[
        str | None, typer.Argument(help="Name, torchvision:NAME, timm:NAME or package.module:factory.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write.")] = None,
    engine: Annotated[str, typer.Option(help="torch, onnxruntime or openvino.")] = "torch",
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    batch: Annotated[int, typer.Option(help="Inputs at once.")] = 1,
    classes: Annotated[int | None, typer.Option(help="Number of classes (default: the model's usual one).")] = None,
    **settings: Any,
) -> None:
    """Calibrate; the help is `HELP`."""
    import numpy as np

    import bcnet
    from bcnet.cli.profile import space_of
    from bcnet.costs import Latency

    if model is None or out is None:
        refuse("give a MODEL and the file to write, for instance `bcnet calibrate vgg19 --out device.json`")
    wishes = given(settings)
    image_size, seed = wishes.pop("image_size", None), wishes.pop("seed", 0)
    space, network, images = space_of(model, classes, image_size, wishes)

    def tell(found: Any) -> None:
        typer.echo(f"{len(found)} networks timed")

    measure = bcnet.calibrate(
        network,
        images,
        path=out,
        latency=Latency(engine, threads, batch),  # type: ignore[arg-type]
        space=space,
        seed=seed,
        on_measured=tell,
    )
    found = measure.model
    assert found is not None
    original, narrowest = found.predicted(np.array([space.original_widths, space.narrowest])).tolist()
    typer.echo(
        f"{found.machine}, {threads} thread{'' if threads == 1 else 's'}, batches of {batch}: the original takes "
        f"{measure.text(original)}, the narrowest network {measure.text(narrowest)}.\n"
        f"Of {found.count} networks, on those that the fit had not seen: median error {100 * found.error:.1f} %, nine "
        f"of ten within {100 * found.worst:.1f} %. Form: {found.form}. Written to {out}."
    )
