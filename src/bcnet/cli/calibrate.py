"""`bcnet calibrate`: measure how long networks of any widths take on this device, for latency budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bcnet.cli.endings import guard, refuse, stoppable
from bcnet.cli.options import (
    MODEL_FORMS,
    Ignore,
    ImageSize,
    InputShape,
    MinRatio,
    MinWidth,
    MultipleOf,
    NumChoices,
    Only,
    Seed,
    space_options,
)

HELP = """
Time networks of MODEL with random widths on an engine, and fit a model that predicts the latency of any widths.

Some tens of whole networks are timed, in turns, until the error on unseen networks is small. Use the file in
`bcnet search --budget latency=2ms --latency-model FILE`; without it a search calibrates first.

For another device, --bundle writes the networks as files of the engine with a script that times them there. --from
reads its times, or those of any other source: a CSV with the columns widths and milliseconds.

Examples:

  bcnet calibrate resnet20 --engine onnxruntime --threads 1 --out device.json

  bcnet calibrate torchvision:mobilenet_v2 --image-size 96 --batch 4 --out device.json

  bcnet calibrate resnet20 --engine onnxruntime --bundle for-the-phone

  bcnet calibrate resnet20 --from times.csv --out phone.json
"""


@guard
def calibrate(
    model: Annotated[str | None, typer.Argument(help=MODEL_FORMS)] = None,
    named: Annotated[str | None, typer.Option("--model", help="Same as MODEL.")] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write.")] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="torch, cuda, onnxruntime, openvino, litert, litert:int8, ncnn, mnn, executorch or executorch:int8."
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads.")] = None,
    batch: Annotated[int | None, typer.Option(help="Inputs at once.")] = None,
    classes: Annotated[int | None, typer.Option(help="Number of classes (default: the model's usual one).")] = None,
    input_: InputShape = None,
    bundle: Annotated[Path | None, typer.Option(help="A new folder for networks and a script to time them.")] = None,
    times: Annotated[Path | None, typer.Option("--from", help="CSV of times from another device.")] = None,
    seed: Seed = None,
    image_size: ImageSize = None,
    num_choices: NumChoices = None,
    min_ratio: MinRatio = None,
    min_width: MinWidth = None,
    multiple_of: MultipleOf = None,
    ignore: Ignore = None,
    only: Only = None,
) -> None:
    """Implement the command; the help is `HELP`."""
    import bcnet
    from bcnet.cli.profile import space_of
    from bcnet.costs import Latency
    from bcnet.latency import latency_from, write_bundle

    model = model or named
    if model is None:
        refuse("give a MODEL, for instance `bcnet calibrate vgg19 --out device.json`")
    if bundle is not None and (out is not None or times is not None):
        refuse("a bundle is for another device, whose times come later; got --out or --from with it")
    if bundle is None and out is None:
        refuse("give the file to write, for instance `bcnet calibrate vgg19 --out device.json`, or --bundle FOLDER")
    said = {"engine": engine, "threads": threads, "batch": batch}
    measure = Latency(**{name: value for name, value in said.items() if value is not None})  # type: ignore[arg-type]
    wishes = space_options(num_choices, min_ratio, min_width, multiple_of, ignore, only)
    space, network, images = space_of(model, classes, image_size, wishes, input_)
    if bundle is not None:
        script = write_bundle(network, images, bundle, latency=measure, space=space, seed=seed or 0)
        size = sum(file.stat().st_size for file in script.parent.iterdir())
        typer.echo(
            f"Copy {bundle} ({size / 2**20:.0f} MiB) to the device and run measure.py there, which needs numpy and "
            f"{measure.engine}; then `bcnet calibrate {model} --from times.csv --out device.json`."
        )
        return
    if times is not None:
        found = latency_from(times, space, measure if any(said.values()) else None, path=out)
    else:
        assert out is not None, "checked above"
        with stoppable(lambda: _describe_kept(out)):
            found = bcnet.calibrate(
                network, images, path=out, latency=measure, space=space, seed=seed or 0, on_measured=_report_timed
            )
    _show_model(found, space, out)


def _report_timed(found: Any) -> None:
    typer.echo(f"{len(found)} networks timed")


def _describe_kept(out: Path) -> str:
    from bcnet.latency import unfinished_path

    times = unfinished_path(out)
    if not times.exists():
        return "Stopped before the first networks were timed."
    return f"Stopped. Finished times are kept in {times}. Run the same command to resume."


def _show_model(measure: Any, space: Any, out: Path | None) -> None:
    import numpy as np

    from bcnet.latency import multiples

    found = measure.model
    original, narrowest = found.predict(np.array([space.original_widths, space.narrowest])).tolist()
    typer.echo(
        f"{found.machine}, {measure.threads} thread{'' if measure.threads == 1 else 's'}, batches of {measure.batch}: "
        f"the original takes {measure.text(original)}, the narrowest network {measure.text(narrowest)}.\n"
        f"Of {found.count} networks, on those that the fit had not seen: median error {100 * found.error:.1f} %, nine "
        f"of ten within {100 * found.worst:.1f} %. Form: {found.form}."
    )
    steps = multiples(space, found)
    counts = {step: list(steps.values()).count(step) for step in sorted(set(steps.values()))}
    said = ", ".join(f"{step} for {count} groups" for step, count in counts.items())
    typer.echo(f"Fast multiples (--multiple-of auto): {said}. Written to {out}.")
