"""Default rules for using the machine; options override each of them.

Values that affect results are stored in the run's settings when it starts, so resuming elsewhere does not change them.
The others (allocator, oneDNN's cache) are chosen again by every process.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from bcnet.machine.devices import Precision, autocast, resolve_precision
from bcnet.machine.onednn import UnitStrides, WrongInBf16
from bcnet.pytree import Pytree, call_model, channels_last, contiguous, map_tensors, tensors

Layout = Literal["auto", "channels_last", "contiguous"]
PRIMITIVES = 1024  # oneDNN's own default
_PRIMITIVES_VARIABLE = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
_SCORE_BATCH = 2048  # images (spec, section 5)
_LEAST_SCORE_BATCH = 64
_SCORING_BYTES = 4 * 2**30  # for the tensors of a layer during scoring
_DATA_SHARE = 4
_TENSORS_AT_ONCE = 3  # of a layer's size in a forward pass
_SMALL_BATCH = 32 * 2**20  # bytes of the largest activation of a training batch
_WORTH_CASTING = 16 * 2**10  # bytes of the largest activation of an image


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Set torch's number of CPU threads in the block; None leaves it unchanged."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def usual_threads(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Return torch's number of CPU threads, limited by a container's quota (cgroups, version 2).

    torch counts the processor's cores, not the quota; threads beyond it only wait for each other.
    """
    try:
        quota, period = (group / "cpu.max").read_text().split()
        allowed = math.ceil(int(quota) / int(period))  # "max" means no quota
    except (OSError, ValueError, ZeroDivisionError):
        return torch.get_num_threads()
    return max(1, min(torch.get_num_threads(), allowed))


def layout_of(requested: Layout, device: torch.device) -> Layout:
    """Return the memory format of the supernet's weights for `requested` on the device; never "auto".

    Images are channels-last everywhere. GPUs prefer it for weights too. On a CPU, slices of contiguous weights, which
    mostly have odd channel counts, score large batches slightly faster and train equally fast.
    """
    if requested != "auto":
        return requested
    return "contiguous" if device.type == "cpu" else "channels_last"


def precision_of(requested: Precision, device: torch.device, largest: int) -> Precision:
    """Return the precision for `requested` on the device, like `resolve_precision`; never "auto".

    CPUs with bf16 in AVX-512 but without AMX also use bf16 if the largest activation of an image has at least 16 KiB
    (`largest`, in bytes); smaller networks gain little.

    Example: ResNet-20 at 32 pixels has 64 KiB; its training steps then take about 0.6 times as long as in fp32.

    Raises:
        RecipeError: fp16 on a CPU.
    """
    if (
        requested == "auto"
        and device.type == "cpu"
        and largest >= _WORTH_CASTING
        and torch.cpu._is_avx512_bf16_supported()
    ):
        return "bf16"
    return resolve_precision(requested, device)


def computes_in(precision: Precision, network: nn.Module, inputs: Pytree, device: torch.device) -> bool:
    """Return whether the network runs forward and backward in a resolved precision, with correct results.

    Some operators have no bf16 version, for instance those on complex numbers, and some convolutions are wrong in bf16
    (`WrongInBf16`). True if the network fails in fp32 too, since tracing reports that error. `network` is not changed.
    """
    if precision == "fp32":
        return True
    with WrongInBf16() as wrong:
        runs = _learns("fp32", network, inputs, device)
    if not runs:
        return True
    if wrong.found and precision == "bf16" and device.type == "cpu" and torch.cpu._is_avx512_supported():
        return False
    return _learns(precision, network, inputs, device)


def _learns(precision: Precision, network: nn.Module, inputs: Pytree, device: torch.device) -> bool:
    with torch.random.fork_rng(devices=[]), torch.enable_grad():  # dropout draws from the global generator
        try:
            copied = copy.deepcopy(network).to(device).train()
            with autocast(precision, device), UnitStrides(copied).apply():
                outputs = call_model(copied, map_tensors(lambda tensor: tensor.to(device), inputs))
            leaves = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
            torch.autograd.backward([leaf.float().sum() for leaf in leaves])
        except Exception:
            return False
    return True


def memory_format(layout: Layout) -> torch.memory_format:
    """Return torch's name for a resolved layout."""
    return torch.contiguous_format if layout == "contiguous" else torch.channels_last


def place(network: nn.Module, device: torch.device | str | None, layout: Layout) -> nn.Module:
    """Move `network` to the device, its 4-dimensional tensors in the memory format, and return it.

    `nn.Module.to(memory_format=torch.channels_last)` would fail on 5-dimensional tensors, as in Conv3d.
    """
    if device is not None:
        network.to(device)
    for tensor in (*network.parameters(), *network.buffers()):
        if tensor.ndim == 4:
            tensor.data = tensor.data.contiguous(memory_format=memory_format(layout))
    return network


def runs_channels_last(network: nn.Module, inputs: Pytree) -> bool:
    """Return whether the network runs on channels-last images, in eval and training mode.

    For instance, `x.view(x.size(0), -1)` of a feature map requires contiguous memory. True if the network fails on
    contiguous `inputs` `(batch, ...)` too, since tracing reports that error. `network` is not changed.
    """
    if all(tensor.ndim != 4 for tensor in (*tensors(inputs), *network.parameters())):
        return True
    return all(
        _computes(network, inputs, training, "channels_last") or not _computes(network, inputs, training, "contiguous")
        for training in (False, True)
    )


def _computes(network: nn.Module, inputs: Pytree, training: bool, layout: Layout) -> bool:
    with torch.random.fork_rng(devices=[]), torch.no_grad():  # dropout draws from the global generator
        try:
            copied = place(copy.deepcopy(network), None, layout).train(training)
            call_model(copied, channels_last(inputs) if layout == "channels_last" else contiguous(inputs))
        except Exception:
            return False
    return True


def score_batch(largest: int) -> int:
    """Return the batch size for scoring: 2,048, halved while a layer's tensors would take more than 4 GiB.

    `largest` is the size of an image's largest activation in bytes. Free memory is not considered, since batch norm's
    statistics, and so scores, depend on the batch size.

    Example: ResNet50 at 224 pixels has 3.2 MB: batches of 256.
    """
    batch = _SCORE_BATCH
    while batch > _LEAST_SCORE_BATCH and batch * _TENSORS_AT_ONCE * largest > _SCORING_BYTES:
        batch //= 2
    return batch


def trains_side_by_side(batch: int) -> bool:
    """Return whether several networks train faster in parallel, with one thread each, than one after the other.

    `batch` is the size of a training batch's largest activation in bytes; 0 if unknown.

    Example: ResNet-20 at 32 pixels has 64 KiB per image, 8 MiB in batches of 128: in parallel.
    """
    return 0 < batch <= _SMALL_BATCH


def lives_on(device: torch.device, data: int, free: int | None) -> bool:
    """Return whether `data` bytes are kept on a device with `free` bytes: if they take at most a quarter.

    Split into its parts, a data set is in memory about three times. Larger ones stay on the host, which copies batch by
    batch; results are the same.

    Example: CIFAR-10 has 184 MB, which a GPU with 1 GB free keeps.
    """
    return device.type == "cpu" or free is None or data <= free / _DATA_SHARE


def set_primitive_cache_capacity(capacity: int | None = None) -> int:
    """Set how many compiled operators oneDNN caches (default: the environment's or `PRIMITIVES`); return the number.

    oneDNN reads it when the first operator is compiled, so call it before. A full cache is searched for the entry to
    evict: a large cache that does not hold all shapes is slower than a small one.
    """
    if capacity is not None:
        os.environ[_PRIMITIVES_VARIABLE] = str(capacity)
    os.environ.setdefault(_PRIMITIVES_VARIABLE, str(PRIMITIVES))
    return primitive_cache_size()


def primitive_cache_size() -> int:
    """Return how many compiled operators oneDNN caches."""
    return int(os.environ.get(_PRIMITIVES_VARIABLE, PRIMITIVES))
