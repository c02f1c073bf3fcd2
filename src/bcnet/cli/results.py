"""Commands on the result of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bcnet.cli import parse
from bcnet.cli.endings import guard, refuse
from bcnet.run import names

EXPORT_HELP = """
Write the network that RUN found in another format, checked there against PyTorch, with a model card.

The file takes batches of any size, unless --batch or the network's code fixes it. By default it takes normalised
images, as in training. With --with-normalisation it takes images in [0, 1], and with --bytes the bytes of an
image decoder; it then normalises them. model_card.md in RUN describes the file, with the figures of the run.

--push uploads the file, the card and the architecture to the Hugging Face hub with your own token. A repository that it
creates is private unless --public is given.

Examples:

  bcnet export runs/demo --format onnx --with-normalisation

  bcnet export runs/demo --format pt2 --out narrow.pt2

  bcnet export runs/demo --format safetensors --push me/narrow-resnet
"""

LATENCY_HELP = """
Time the original, the Uniform and the searched network of RUN against each other on this device.

After a warm-up every round times each network once, in a rotating order, so that disturbances affect all networks
alike. The table shows medians and quartiles; they are stored in latency.json in RUN. The searched widths rounded to
multiples of 8 are timed too, and a sentence says whether they are faster here.

Examples:

  bcnet latency runs/demo

  bcnet latency runs/demo --backend onnxruntime --threads 4 --batch 8

  bcnet latency runs/demo --backend all
"""

REPORT_HELP = """
Write report.html of a run and show its result; of several runs, write one page that compares them.

The page needs only a browser: no network, no other file. The page of an unfinished run names the missing parts.

Examples:

  bcnet report runs/demo

  bcnet report runs/half runs/third --out comparison.html
"""
_COMPARISON = "comparison.html"
_NAMES = {"uniform": "Uniform", "rounded": "searched, multiples of 8"}
Run = Annotated[Path, typer.Argument(help="Run directory.")]
Model = Annotated[
    str | None,
    typer.Option(help="package.module:factory of the full network, if the run was given an object."),
]


@guard
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    out: Annotated[
        Path | None, typer.Option(help=f"The page that compares several runs (default: {_COMPARISON} in this folder).")
    ] = None,
) -> None:
    """Write a report; the help is `REPORT_HELP`."""
    from bcnet.report import write_comparison, write_report

    if len(runs) > 1:
        typer.echo(f"Report: {write_comparison(runs, out or Path(_COMPARISON))}")
        return
    if out is not None:
        refuse("--out is for comparing several runs; the report of one is written into its run directory")
    written = write_report(runs[0])
    if (runs[0] / names.RESULT).exists():
        _show_run(runs[0])
    else:
        typer.echo(f"The run is not finished; the report shows its state so far: {written}")


def _show_run(run: Path) -> None:
    from bcnet.cli.show import show_result
    from bcnet.run.directory import read_result

    show_result(Console(), read_result(run), str(run))


@guard
def export(
    run: Run,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="onnx, pt2, safetensors, litert, litert:int8, ncnn, mnn, executorch or executorch:int8 (default: "
            "by --out, else onnx).",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file (default: RUN/export/network.FORMAT).")] = None,
    with_normalisation: Annotated[
        bool, typer.Option("--with-normalisation", help="Take images in [0, 1], and normalise them inside.")
    ] = False,
    takes_bytes: Annotated[
        bool, typer.Option("--bytes", help="Take bytes (uint8), and normalise them inside; not for ncnn, MNN and int8.")
    ] = False,
    open_size: Annotated[
        bool, typer.Option("--open-size", help="Take images of any height and width; for onnx and pt2.")
    ] = False,
    from_size: Annotated[
        str | None,
        typer.Option(
            metavar="HEIGHTxWIDTH",
            help="Take bytes of this size, 480x640, and resize them inside as the run's images were; for onnx and pt2.",
        ),
    ] = None,
    opset: Annotated[int | None, typer.Option(help="Version of ONNX's operators (default: the exporter's).")] = None,
    batch: Annotated[int | None, typer.Option(help="Inputs that the file takes at once (default: any number).")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads for the times.")] = 1,
    model: Model = None,
    push: Annotated[str | None, typer.Option(help="ORG/NAME on the Hugging Face hub to upload to.")] = None,
    public: Annotated[bool, typer.Option("--public", help="Make a new repository of --push public.")] = False,
) -> None:
    """Export a network; the help is `EXPORT_HELP`."""
    from bcnet.export import export_run, format_of, push_run
    from bcnet.export.hub import check_repository, hub_client

    client = None
    if push is not None:
        check_repository(push)
        client = hub_client()  # before the work, so that a missing token is reported at once
    chosen = format_ or format_of(out)
    done = export_run(
        run,
        model,
        format=chosen,
        out=out,
        with_normalisation=with_normalisation,
        takes_bytes=takes_bytes,
        open_size=open_size,
        from_size=None if from_size is None else parse.size(from_size),
        opset=opset,
        batch=batch,
        threads=threads,
    )
    _show_export(Console(), done, run)
    if push is not None:
        typer.echo(f"Uploaded: {push_run(run, done.path, push, private=not public, client=client)}")


@guard
def latency(
    run: Run,
    backend: Annotated[
        str,
        typer.Option(
            help="torch, onnxruntime, openvino, litert, litert:int8, ncnn, mnn, executorch, executorch:int8, or all: "
            "those that are installed."
        ),
    ] = "torch",
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
    batch: Annotated[int, typer.Option(help="Images at once.")] = 1,
    rounds: Annotated[int, typer.Option(help="Number of times each network is timed.")] = 50,
    device: Annotated[str, typer.Option(help="cpu or cuda, for torch.")] = "cpu",
    model: Model = None,
) -> None:
    """Time networks; the help is `LATENCY_HELP`."""
    from bcnet.errors import ExportError
    from bcnet.export import installed_backends, measure_latency

    for name in installed_backends() if backend == "all" else [backend]:
        try:
            measured = measure_latency(
                run, model, backend=name, threads=threads, batch=batch, rounds=rounds, device=device
            )
        except ExportError as error:
            if backend != "all":
                raise
            typer.echo(f"{name} is left out: {error}")
            continue
        _show_latency(Console(), measured)


def _show_latency(console: Console, measured: Any) -> None:
    table = Table(title=f"{measured.backend}, batch {measured.batch}, CPU threads: {measured.threads}")
    table.add_column("network")
    for heading in ("MACs", "median (ms)", "quartiles (ms)", "speed-up"):
        table.add_column(heading, justify="right")
    original = measured.milliseconds["original"].median
    for name, time in measured.milliseconds.items():
        table.add_row(
            _NAMES.get(name, name),
            f"{measured.macs_ratio[name]:.3f}x",
            f"{time.median:.3g}",
            f"{time.low:.3g} to {time.high:.3g}",
            f"{original / time.median:.2f}x",
        )
    console.print(table)
    console.print(f"{measured.device}. {measured.verdict}", highlight=False, markup=False, soft_wrap=True)


def _show_export(console: Console, done: Any, run: Path) -> None:
    batches = ", ".join(map(str, done.batches))
    times = "; ".join(f"{name} {t.median:.3g} ({t.low:.3g} to {t.high:.3g})" for name, t in done.milliseconds.items())
    takes = "inputs as in training, see the model card" if done.takes == "normalised images" else done.takes
    takes += ", of any height and width" if done.open_size else ""
    takes += ", of {}x{} (height x width), resized inside".format(*done.from_size) if done.from_size else ""
    takes_batches = "any batch size" if len(done.batches) > 1 else f"batches of {done.batches[0]}"
    if done.fixed_batch:
        takes_batches = f"one input at once ({done.fixed_batch})"
    checked = (
        f"Checked: {done.runtime} against PyTorch in batches of {batches}: largest difference {done.difference:.1e} of "
        f"the largest output, {done.tolerance:.0e} allowed"
    )
    if done.tests is not None:
        checked = (
            f"Checked: {done.runtime} in int8 against PyTorch on held-out inputs: {100 * done.difference:.1f} % off; "
            f"on the test data {done.tests['file']:.4g} for {done.tests['PyTorch']:.4g}"
        )
    arena = () if done.arena is None else (f"Arena in tflite-micro: {done.arena:,} bytes",)
    lines = (
        f"Wrote {done.path}",
        checked,
        *arena,
        f"Size: {done.size:,} bytes, {done.size / done.original_size:.2f}x of the original's {done.original_size:,}",
        f"One input, milliseconds, median (quartiles), CPU threads: {done.threads}: {times}",
        f"Takes: {takes}; {takes_batches}",
        f"Model card: {run / 'model_card.md'}",
    )
    for line in (*lines, *(f"Over the limit: {text}" for text in done.exceeded)):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
