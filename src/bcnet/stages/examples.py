"""Examples for the report: some test images with their targets and the outputs of each final network."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bcnet.data import Loaders
from bcnet.data.transfer import move
from bcnet.machine.devices import autocast, resolve_precision
from bcnet.pytree import Pytree, call_model, concat_batches, count, slice_batch, tensors
from bcnet.run import names
from bcnet.run.result import NETWORKS
from bcnet.run.settings import Settings
from bcnet.run.workload import Workload
from bcnet.stages.base import Context, Stage
from bcnet.stages.final import TrainedNetwork
from bcnet.tasks.shown import Shown, picture_of


class ExamplesStage(Stage):
    """Stage that makes rows of cells, `{"picture": PNG in base64 or None, "words": text}`.

    The cells of a row have the keys of `columns`. `numbers` are the indices of the test images.

    """

    name: ClassVar[str] = "examples"
    file: ClassVar[str] = names.EXAMPLES
    needs: ClassVar[tuple[str, ...]] = tuple(NETWORKS.values())

    def applies(self, settings: Settings) -> bool:
        """Return whether the report shows examples."""
        return settings.options.examples > 0

    def plan(self, settings: Settings, workload: Workload) -> None:
        """Hidden in the plan: takes less than a second."""

    def run(self, context: Context) -> None:
        """Run the networks on some test images."""
        context.directory.write(self.file, context.world.on_rank_zero(lambda: _examples(context)))

    def load(self, context: Context) -> dict[str, Any]:
        """Return column names and rows."""
        found: dict[str, Any] = context.directory.read(self.file)
        return found


def _examples(context: Context) -> dict[str, Any]:
    trained: list[TrainedNetwork] = [context.output(name) for name in NETWORKS.values() if name in context.names]
    inputs, targets, numbers = _spread(context, trained[0].test.count)
    source = context.workload.source
    task = source.task
    classes = source.input.class_names
    pictures = _pictures(context, inputs)
    shown = {"target": task.show(pictures, targets, names=classes)}
    for one in trained:
        outputs = _outputs(one.network, inputs, context)
        shown[one.name] = task.show(pictures, move(targets, "cpu"), outputs, names=classes)
    if any(part is None for part in shown.values()):
        return {"columns": [], "rows": [], "numbers": []}
    columns = {"input": Shown(pictures, tuple(f"number {number}" for number in numbers)), **shown}
    rows = [[_cell(part, place) for part in columns.values()] for place in range(len(numbers))]
    return {"columns": list(columns), "rows": rows, "numbers": numbers}


def _spread(context: Context, images: int) -> tuple[Pytree, Any, list[int]]:
    """Return equally spaced test images, their targets and their indices, on the CPU."""
    wanted = min(context.settings.options.examples, images)
    numbers = [(2 * place + 1) * images // (2 * wanted) for place in range(wanted)]
    parts = [*_take_items(context.workload.parts.test(), numbers)]
    return concat_batches([x for x, _ in parts]), concat_batches([y for _, y in parts]), numbers


def _take_items(batches: Any, numbers: Sequence[int]) -> Iterator[tuple[Pytree, Any]]:
    first = 0
    last = numbers[-1]
    for x, y in batches:
        after = first + count(y)
        here = torch.tensor([number - first for number in numbers if first <= number < after], dtype=torch.int64)
        if len(here):
            yield tuple(slice_batch(move(part, "cpu"), here) for part in (x, y))
        if after > last:
            return
        first = after


def _pictures(context: Context, inputs: Pytree) -> Tensor | None:
    """Return the inputs that are images, side by side; None if there are none."""
    images = [tensor for tensor in tensors(inputs) if tensor.ndim == 4 and tensor.shape[1] in (1, 3)]
    data = context.workload.data
    if not images or len({image.shape[-2] for image in images}) > 1:
        return None
    if isinstance(data, Loaders):
        return picture_of(torch.cat([image.expand(-1, 3, -1, -1) for image in images], dim=-1))
    mean, std = (torch.tensor(part)[:, None, None] for part in (data.normaliser.mean, data.normaliser.std))
    return picture_of(images[0] * std + mean, 0.0, 1.0)


@torch.inference_mode()
def _outputs(network: nn.Module, inputs: Pytree, context: Context) -> Any:
    device = next(network.parameters()).device
    with autocast(resolve_precision(context.settings.training.precision, device), device):
        outputs = call_model(network, move(inputs, device))
    return torch.utils._pytree.tree_map_only(Tensor, Tensor.cpu, outputs)


def _cell(shown: Shown | None, place: int) -> dict[str, str | None]:
    assert shown is not None
    picture = None if shown.pictures is None else _png(shown.pictures[place])
    return {"picture": picture, "words": shown.words[place] if shown.words else ""}


def _png(picture: Tensor) -> str:
    """Encode an image `(3, H, W)` of bytes as PNG in base64."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture.movedim(0, -1).contiguous().numpy()).save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()
