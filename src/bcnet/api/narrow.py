"""Narrow a trained network in one call, keeping its most important channels."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Literal, get_args

import torch
from torch import nn

from bcnet.data.unlabelled import input_batches
from bcnet.errors import WidthError
from bcnet.space import Side, WidthSpace
from bcnet.space.compiled import undo_compile
from bcnet.supernet.build import build, narrow_in_place
from bcnet.supernet.calibration import recalibrate, run_batch
from bcnet.supernet.importance import by_importance, permute, reorder
from bcnet.supernet.reconstruction import reconstruct as restore_outputs

Weights = Literal["important", "first", "fresh"]


def narrow(
    model: nn.Module,
    space: WidthSpace,
    widths: Sequence[int],
    *,
    weights: Weights = "important",
    calibrate: Any = None,
    reconstruct: bool = False,
    factory: Callable[[], nn.Module] | None = None,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """Return a plain network of the model's own class at the given widths, in the mode of `model`.

    Args:
        model: the network `space` was traced from; it is not changed.
        space: its width space (`bcnet.trace`).
        widths: one per group, for instance from `space.balanced(...)`.
        weights: "important" keeps the channels of the largest magnitude (`by_importance`), in the model's own order,
            "first" the first ones, "fresh" initialises new weights as the model's constructor would.
        calibrate: some hundred network inputs for batch-norm statistics: a tensor or array `(batch, ...)`, a list of
            them, or a loader or data set of inputs or of pairs, whose targets are not read. All batches of a loader are
            read, and at most 1,024 items of a data set, evenly spaced. The first batch also verifies that moving
            channels leaves the outputs unchanged. Without `calibrate`, batch norms keep the statistics of the kept
            channels, which do not fit a narrower network.
        reconstruct: fit the weights of each layer so that its outputs match the original's on the inputs of `calibrate`
            (`bcnet.supernet.reconstruct`), instead of recomputing statistics. Both networks run on all inputs once per
            layer.
        factory, generator: for initial weights, as in `bcnet.supernet.build`.

    Raises:
        WidthError: the widths or the model do not fit the space, `weights` is unknown, or `reconstruct` is used without
            inputs or with fresh weights.
        DataError: `calibrate` holds no batch, or one that the model cannot take.

    Example: `narrow(model, space, space.balanced(macs=0.5), calibrate=[images], reconstruct=True)`
    """
    if not isinstance(model, nn.Module) or not isinstance(space, WidthSpace):
        got = f"{type(model).__name__} and {type(space).__name__}"
        raise WidthError(f"narrow takes a torch.nn.Module and the WidthSpace traced from it, in this order; got {got}")
    if weights not in get_args(Weights):
        raise WidthError(f"weights must be one of {', '.join(get_args(Weights))}; got {weights!r}")
    if reconstruct and (weights == "fresh" or calibrate is None):
        got = "fresh weights" if weights == "fresh" else "no inputs"
        raise WidthError(f"reconstruct needs weights of the model, and inputs (calibrate=); got {got}")
    space.check(widths)
    model = undo_compile(model)
    if weights == "fresh":
        network = build(model, space, widths, factory=factory, generator=generator)
        return network.train(model.training)
    batches = iter(()) if calibrate is None else input_batches(calibrate, model)
    # The first batch is needed before the others, to verify the sorted channels; it is calibrated with as well.
    first = next(batches, None)
    every = chain(() if first is None else (first,), batches)
    source = copy.deepcopy(model)
    if weights == "important":
        if first is not None:  # `reorder` takes it as fitting; the later steps check every batch themselves
            with torch.no_grad():
                run_batch(copy.deepcopy(model).eval(), first, 0)
        # Kept channels stay in the model's own order: code that couples neighbours (a convolution along the channels)
        # meets them as before, and the full widths give the model itself.
        ranked = zip(by_importance(model, space), widths, strict=True)
        orders = [(*sorted(order[:width]), *order[width:]) for order, width in ranked]
        source = permute(source, space, orders) if first is None else reorder(model, space, orders, first)
    # The left side of every group now holds its most important channels.
    network = narrow_in_place(copy.deepcopy(source) if reconstruct else source, space, widths, Side.LEFT)
    if reconstruct:
        network = restore_outputs(network, source, space, widths, list(every))
    elif calibrate is not None:
        network = recalibrate(network, every)
    return network.train(model.training)
