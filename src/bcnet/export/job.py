"""Export of a finished run: the file is written, checked against PyTorch, and only then kept."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from bcnet.data.loaders import seed_globally
from bcnet.data.resizing import Resize, Resizing
from bcnet.errors import ExportError, OpenBatchError
from bcnet.export.card import model_card
from bcnet.export.formats import FORMATS
from bcnet.export.quantized import MOST_OFF, RealInputs, arena_of, exceeded_limits
from bcnet.files.atomic import write_atomic
from bcnet.files.documents import read_document, write_document
from bcnet.formats import Format, Int8, Onnx, Opened, Runner
from bcnet.machine.defaults import threads as torch_threads
from bcnet.machine.timing import Timing, time_in_turns
from bcnet.pytree import Pytree, call_model, tensors
from bcnet.pytree import count as batch_size_of
from bcnet.run import names
from bcnet.run.finished import FinishedRun
from bcnet.run.result import Which
from bcnet.run.workload import ModelLike
from bcnet.train import derived_generator

TOLERANCE = 1e-4  # of the largest output
Taken = Literal["normalised images", "images in [0, 1]", "bytes"]
_NAMES: Mapping[Taken, str] = MappingProxyType(
    {"normalised images": "network", "images in [0, 1]": "network_with_normalisation", "bytes": "network_of_bytes"}
)
_OTHER_SIZES = ((2.0, 2.0), (1.5, 1.0))  # factors of height and width at which an open size is tested
_COMPARED: tuple[Which, Which] = ("searched", "original")
_BATCHES = (1, 2, 5)
_ROUNDS = 50
_WARMUP = 10
_DRAWS = 64  # for a network that draws random numbers
_FAR = 5.0  # largest difference of two means, in standard errors, that chance explains


@dataclass(frozen=True)
class Export:
    """A written file, and how it was checked.

    `size` and `original_size` are bytes, the latter of the original network in the same format. `difference` is the
    largest difference between outputs of the file and of PyTorch, relative to the largest output, on random inputs in
    batches of `batches`; `tolerance` is the allowed value. `open_size`: heights and widths are open, as was tested.
    With `from_size` (height, width) the file resizes images of that size. If the network's code does not allow an open
    batch and none was requested, the file takes one input at a time, and `fixed_batch` gives the reason. `milliseconds`
    are per image, or per batch of fixed size: PyTorch, the file in its runtime, and the original's file there.

    An int8 file is compared on real inputs: `difference` is the root mean square of the differences over that of
    PyTorch's outputs. `tests` has the test metric of "PyTorch" and the "file". `arena` are the bytes that tflite-micro
    needs for it, if installed. `exceeded` lists limits of the run that the file exceeds.

    """

    path: Path
    format: str
    runtime: str
    takes: Taken
    size: int
    original_size: int
    difference: float
    tolerance: float
    batches: tuple[int, ...]
    threads: int
    milliseconds: Mapping[str, Timing]
    tests: Mapping[str, float] | None = None
    arena: int | None = None
    exceeded: tuple[str, ...] = ()
    open_size: bool = False
    from_size: tuple[int, int] | None = None
    fixed_batch: str = ""


def export_run(
    run: str | os.PathLike[str],
    factory: ModelLike | None = None,
    *,
    format: str = "onnx",
    out: str | Path | None = None,
    with_normalisation: bool = False,
    takes_bytes: bool = False,
    open_size: bool = False,
    from_size: tuple[int, int] | None = None,
    opset: int | None = None,
    batch: int | None = None,
    threads: int = 1,
    data: Any = None,
) -> Export:
    """Write the network of a finished run in another format, and a model card.

    The file is run by its own runtime and compared with PyTorch before it is kept. `model_card.md` in the run directory
    describes the network and its inputs, with the figures of the run.

    Args:
        run: the run directory, or what `bcnet.search` returned.
        factory: returns the full network, if the run was given a module or a function.
        format: `onnx`, `pt2`, `safetensors`, `litert`, `litert:int8`, `ncnn`, `mnn`, `executorch` or `executorch:int8`;
            most need the extra of that name (`pip install 'bcnet[executorch]'`). int8 files are calibrated on held-out
            training inputs and tested on the test data.
        out: the file; by default `export/network.SUFFIX` in the run directory, or `network_with_normalisation.SUFFIX`,
            `network_of_bytes.SUFFIX`, or for int8 `network_int8.SUFFIX`.
        with_normalisation: the file takes images in [0, 1] and normalises them.
        takes_bytes: the file takes bytes (uint8), as image decoders return, and normalises them.
        open_size: the file takes images of any height and width, if the network can.
        from_size: the file takes bytes of this height and width, such as a camera's, and resizes them like the run's
            image files.
        opset: version of ONNX's operator set; default: that of PyTorch's exporter.
        batch: number of inputs that the file takes at once. By default it is open; one for phone engines, and for
            networks whose code does not allow an open batch.
        threads: CPU threads for timing.
        data: the data, as for `bcnet.search`, for int8 files if the run was given your own data.

    Raises:
        ExportError: an unknown format, a missing package, a network that the format cannot represent, or a file whose
            outputs differ from PyTorch's.
        RunError: no finished run, or a file that cannot be written.
        ModelError: as for `bcnet.load`.

    Example: `bcnet.export_run("runs/half", format="onnx", with_normalisation=True).path`

    """
    resizes = from_size is not None
    taken: Taken = "images in [0, 1]" if with_normalisation else "normalised images"
    if takes_bytes or resizes:
        taken = "bytes"
    chosen = _format(format, taken, threads, batch, opset, open_size=open_size, resizes=resizes)
    # Phone engines plan their memory for one batch size, so an open one costs them time and memory.
    if batch is None and not chosen.opens_batch:
        batch = 1
    finished = FinishedRun.read(run, factory)
    inputs = _Inputs(finished, taken, from_size)
    path = _place(finished, chosen, out, inputs.name)
    networks = {which: inputs.network(which) for which in _COMPARED}
    if open_size:
        inputs.check_sizes(networks["searched"])
    real = RealInputs.of(finished, data, with_normalisation) if chosen.is_int8 else None
    if isinstance(chosen, Int8) and real is not None:
        chosen = type(chosen)(real.samples)

    def write(opened: Opened) -> dict[Which, bytes]:
        example = inputs.draw(batch or 2)
        return {
            which: chosen.write(networks[which], example, _notes(finished, which, chosen), opened=opened)
            for which in _COMPARED
        }

    # Code that uses the batch size as a number cannot be exported with an open batch; then the file takes one input.
    fixed_batch = ""
    try:
        content = write("size" if open_size else "batch" if batch is None else "nothing")
    except OpenBatchError as error:
        if open_size:
            raise
        batch, fixed_batch = 1, error.reason
        content = write("nothing")
    # From here on the file exists in memory only: it is written after its outputs agree with PyTorch's.
    batches = _BATCHES if batch is None else (batch,)
    runners = {which: chosen.runner(content[which], inputs.network(which), threads) for which in _COMPARED}
    if real is None:
        tried = [inputs.draw(count) for count in batches]
        tried += [inputs.draw(2, factors) for factors in _OTHER_SIZES] if open_size else []
        difference = _difference(networks["searched"], runners["searched"], chosen, tried)
    else:
        difference = real.difference(networks["searched"], runners["searched"])
    arena = arena_of(content["searched"]) if format == "litert:int8" else None
    milliseconds = _times(networks["searched"], runners, inputs.draw(batch or 1), chosen, threads)
    if out is None:
        path.parent.mkdir(exist_ok=True)
    write_atomic(path, content["searched"])
    export = Export(
        path,
        format,
        chosen.runtime,
        taken,
        len(content["searched"]),
        len(content["original"]),
        difference,
        TOLERANCE if real is None else MOST_OFF,
        batches,
        threads,
        milliseconds,
        None if real is None else real.tests(networks["searched"], runners["searched"]),
        arena,
        () if real is None else exceeded_limits(finished, len(content["searched"]), arena),
        open_size,
        from_size,
        fixed_batch,
    )
    _record(finished, export)
    write_atomic(finished.path / "model_card.md", model_card(finished, _known_exports(finished)).encode())
    return export


def _format(
    name: str,
    taken: Taken,
    threads: int,
    batch: int | None,
    opset: int | None,
    *,
    open_size: bool,
    resizes: bool,
) -> Format:
    if name not in FORMATS:
        raise ExportError(f"a format must be one of {', '.join(FORMATS)}; got {name!r}")
    open_ones, of_bytes = (
        [kind for kind, form in FORMATS.items() if getattr(form, able)] for able in ("opens_size", "takes_bytes")
    )
    for value, option, able in (
        (open_size, "--open-size", open_ones),
        (resizes, "--from-size", open_ones),
        (taken == "bytes", "--bytes", of_bytes),
    ):
        if value and name not in able:
            raise ExportError(f"{option} is for the formats {', '.join(able)}; got {name}: leave it out")
    if open_size and resizes:
        raise ExportError("a file resizes images of one size; got --open-size with --from-size: leave one of them out")
    if open_size and batch is not None:
        raise ExportError(f"a file for images of any size takes any batch too; got batch {batch}: leave --batch out")
    if opset is not None and (name != "onnx" or type(opset) is not int or not 7 <= opset <= 99):
        raise ExportError(
            f"an opset must be a version of ONNX's operators, from 7 on; got {opset!r} for the format {name}"
        )
    if taken == "images in [0, 1]" and not FORMATS[name].holds_graph:
        raise ExportError(
            f"{name} holds weights alone and no normalisation (its metadata name it): leave --with-normalisation out, "
            "or take --format onnx or pt2"
        )
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ExportError(f"threads must be an int of at least 1; got {threads!r}")
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise ExportError(f"a batch must be an int of at least 1, or left out for an open one; got {batch!r}")
    if FORMATS[name].is_int8 and batch not in (None, 1):
        raise ExportError(f"an int8 file takes one input at once; got batch {batch}: leave --batch out")
    if batch is not None and not FORMATS[name].holds_graph:
        raise ExportError(f"{name} holds weights alone, for batches of any size: leave --batch out")
    return FORMATS[name] if opset is None else Onnx(opset)


def _place(finished: FinishedRun, chosen: Format, out: str | Path | None, name: str) -> Path:
    if out is None:
        name += "_int8" if chosen.is_int8 else ""
        return finished.path / "export" / f"{name}.{chosen.suffix}"
    path = Path(out)
    if path.is_dir():
        raise ExportError(f"--out must be a file; {path} is a folder: write {path / f'network.{chosen.suffix}'}")
    if not path.parent.is_dir():
        raise ExportError(f"--out must be a file in a folder that exists; there is no {path.parent}: make it")
    if path.parent.resolve() == finished.path.resolve():
        raise ExportError(
            f"--out must leave the run's own files alone; {path} is among them: leave --out out, which writes "
            f"{finished.path / 'export'}, or give another folder"
        )
    return path


@dataclass(frozen=True)
class _Inputs:
    """Inputs of a file, and the networks that take them."""

    finished: FinishedRun
    taken: Taken
    from_size: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """File name of such networks without its suffix."""
        return _NAMES[self.taken] + ("" if self.from_size is None else "_{}x{}".format(*self.from_size))

    def network(self, which: Which) -> nn.Module:
        """Return the network with its preprocessing."""
        network = self.finished.network(which)
        if self.taken == "normalised images":
            return network
        normalised = self.finished.input.normalise(network, of_bytes=self.taken == "bytes")
        if self.from_size is None:
            return normalised
        return nn.Sequential(Resize(self._read_resizing(), self.from_size), normalised).eval()

    def _read_resizing(self) -> Resizing:
        """Return the resizing of the run's image files.

        Raises:
            ExportError: they were not resized, or not by the library; or no image has the requested height and width.
        """
        resizing = Resizing.read(self.finished.input.preparation)
        if resizing is None:
            raise ExportError(
                "--from-size is for runs whose image files were resized (--image-size); this run does not say how its "
                "images were: leave --from-size out, and resize images before the file"
            )
        sizes = self.from_size
        if not isinstance(sizes, tuple) or len(sizes) != 2 or not all(type(n) is int and n > 0 for n in sizes):
            raise ExportError(f"from_size must be the height and the width of the images, (480, 640); got {sizes!r}")
        return resizing

    def draw(self, count: int, factors: tuple[float, float] = (1.0, 1.0)) -> Pytree:
        """Return random inputs, within the range of normalised images and of images in [0, 1].

        `factors` scale height and width of an image.
        """
        generator = derived_generator(self.finished.settings.seed, "export")
        found = self.finished.input.draw_random(count, generator)
        if factors == (1.0, 1.0) and self.taken != "bytes":
            return found
        assert isinstance(found, torch.Tensor), "others are refused before"
        size = self.from_size or found.shape[2:]
        shape = (*found.shape[:2], *(round(n * f) for n, f in zip(size, factors, strict=True)))
        if self.taken == "bytes":
            return torch.randint(256, shape, generator=generator, dtype=torch.uint8)
        return torch.rand(shape, generator=generator)

    def check_sizes(self, network: nn.Module) -> None:
        """Raise ExportError unless an input is an image and the network accepts other sizes."""
        if len(self.finished.input.by_name) != 1 or len(self.finished.input.shape) != 3:
            shapes = ", ".join(str(one.shape) for one in self.finished.input.by_name.values())
            raise ExportError(f"--open-size is for one image (channels, height, width); the network takes {shapes}")
        for factors in _OTHER_SIZES:
            images = self.draw(2, factors)
            try:
                with torch.no_grad():
                    call_model(network, images)
            except Exception as error:
                (shape,) = (tuple(tensor.shape) for tensor in tensors(images))
                raise ExportError(
                    f"a file takes images of any height and width where the network does; it fails on {shape} with "
                    f"{type(error).__name__}: {error}: leave --open-size out"
                ) from error


def _notes(finished: FinishedRun, which: Which, chosen: Format) -> dict[str, str]:
    figures = finished.result.networks[which]
    notes = {
        "bcnet": metadata.version("bcnet"),
        "model": finished.settings.model,
        "macs": str(figures.macs),
        "params": str(figures.params),
        "input": json.dumps(finished.input.to_dict()),
    }
    return notes if chosen.holds_graph else notes | {"architecture": json.dumps(finished.architecture(which))}


def _difference(
    network: nn.Module,
    runner: Runner,
    chosen: Format,
    tried: Sequence[Pytree],
) -> float:
    """Return the largest difference between outputs of file and PyTorch, relative to the largest output (at least 1).

    For networks that draw random numbers in eval mode, means over many draws of both are compared, beyond their
    standard errors.
    """
    worst = 0.0
    for images in tried:
        count = batch_size_of(images)
        with torch.no_grad():
            expected, chance = _means(partial(call_model, network, images))
        found, more = _means(partial(runner, images))
        shapes = [[tuple(tensor.shape) for tensor in parts] for parts in (expected, found)]
        if shapes[0] != shapes[1]:
            raise ExportError(
                f"{chosen.runtime} must give outputs of PyTorch's shapes for {count} images, "
                f"{_list_shapes(shapes[0])}; got {_list_shapes(shapes[1])}: nothing was written; take another --format"
            )
        for one, other, left in zip(expected, found, map(torch.add, chance, more), strict=True):
            for what, output in (("PyTorch", one), (chosen.runtime, other)):
                if not output.isfinite().all():  # max() ignores NaN
                    advice = "look for a logarithm, a root or a division in forward() that some inputs leave undefined"
                    if what != "PyTorch":
                        advice = f"PyTorch's are finite: take another --format, or {advice}"
                    raise ExportError(
                        f"{what} must give finite outputs; got NaN or infinity for {count} random inputs: nothing was "
                        f"written; {advice}"
                    )
            largest = max(1.0, float(one.abs().max()))
            worst = max(worst, float(((other - one).abs() - left).clamp(min=0).max()) / largest)
    if not worst <= TOLERANCE:
        raise ExportError(
            f"{chosen.runtime} must give PyTorch's logits to {TOLERANCE:g} of the largest; the difference is "
            f"{worst:.3g}: nothing was written; take another --format"
        )
    return worst


def _means(draw: Callable[[], Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the mean of every output over many draws with its standard error; one draw if two are equal."""
    with seed_globally(0):
        draws = [tree_leaves(draw()) for _ in range(2)]
        if all(torch.equal(one, other) for one, other in zip(*draws, strict=True)):
            return draws[0], [torch.zeros_like(output) for output in draws[0]]
        draws += [tree_leaves(draw()) for _ in range(_DRAWS - 2)]
    stacked = [torch.stack(column).double() for column in zip(*draws, strict=True)]
    return [column.mean(0) for column in stacked], [_FAR * column.std(0) / _DRAWS**0.5 for column in stacked]


def _list_shapes(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(map(str, shapes)) or "none"


def _times(
    network: nn.Module,
    runners: Mapping[Which, Runner],
    image: Pytree,
    chosen: Format,
    threads: int,
) -> dict[str, Timing]:
    calls = {
        "PyTorch": lambda: call_model(network, image),
        chosen.runtime: lambda: runners["searched"](image),
        f"{chosen.runtime}, original network": lambda: runners["original"](image),
    }
    with torch_threads(threads), torch.no_grad():
        return time_in_turns(calls, rounds=_ROUNDS, warmup=_WARMUP)


def _record(finished: FinishedRun, export: Export) -> None:
    """Record the export in the run, replacing the previous one of its kind."""
    kind = (export.format, export.takes, export.from_size)
    others = [e for e in _known_exports(finished) if (e["format"], e["takes"], _size_of(e)) != kind]
    inside = export.path.resolve().is_relative_to(finished.path.resolve())
    shown = export.path.resolve().relative_to(finished.path.resolve()) if inside else export.path.name
    entry = dataclasses.asdict(export) | {"path": str(shown), "batches": list(export.batches)}
    entry |= {"exceeded": list(export.exceeded), "from_size": export.from_size and list(export.from_size)}
    write_document(finished.path / names.EXPORTS, {"exports": [*others, entry]})


def _size_of(entry: Mapping[str, Any]) -> tuple[int, int] | None:
    return tuple(entry["from_size"]) if entry.get("from_size") else None


def _known_exports(finished: FinishedRun) -> list[dict[str, Any]]:
    file = finished.path / names.EXPORTS
    entries = read_document(file)["exports"] if file.exists() else []
    return [entry for entry in entries if "takes" in entry]  # some entries of earlier versions lack it
