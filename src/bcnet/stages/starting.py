"""Initial weights of a network's training, and the short training (trial) that scores a candidate.

A network starts from random weights, from the supernet, from given weights, or from the trained original. A trial is
trained like a final network, with the same start, recipe and seed, but for fewer epochs, without the images that score
it, and by one process. If the best candidate's training continues, as the paper does for random networks
(`Random.continued`), trials are the first epochs of the whole recipe, at its learning rates, instead of a shorter
recipe.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import islice

from torch import nn

from bcnet.data.transfer import move
from bcnet.distributed import Loaded
from bcnet.errors import RecipeError
from bcnet.files.tensors import read_tensors
from bcnet.machine.defaults import place
from bcnet.methods import TrainingsMethod
from bcnet.methods.base import Kept
from bcnet.methods.trainings import for_epochs
from bcnet.space import Side, Widths
from bcnet.stages.base import Context
from bcnet.supernet import Order, Supernet, build, by_importance, recalibrate, reorder
from bcnet.train import EpochBatches, FirstBatches, Interrupted, NetworkLearner, derived_generator, train

CALIBRATION = 20  # batches for batch-norm statistics


def starting_network(context: Context, widths: Widths, kept: Kept = ()) -> nn.Module:
    """Return the network of the given widths before its training, on the run's device.

    "scratch": initialised as the original would be. "supernet": the first channels of every group. "pretrained" and
    "original": the most important channels of the given or the trained model (those that a pruner `kept` before all
    others), with batch-norm statistics of some training batches; training is then fine-tuning.


    Raises:
        RecipeError: `start="supernet"` in a run without one.
    """
    settings = context.settings
    if settings.start == "scratch":
        return from_scratch(context, widths)
    if settings.start == "supernet":
        if "supernet" not in context.names:
            raise RecipeError('start="supernet" needs a supernet, which this run does not train: take "scratch"')
        owner = context.output("supernet")[0]
    else:
        owner = sort_once(context, kept)
    network = _first_channels(context, owner, widths)
    return recalibrate_norms(network, context.workload.all_training, settings.training_seed)


def sort_once(context: Context, kept: Kept = ()) -> Supernet:
    """Return the sorted network from which all networks with trained weights are sliced.

    Sorting channels and checking the permutation takes seconds, so it is done once per run.
    """
    return context.remember(("sorted", kept), lambda: Supernet(_sort_channels(context, kept), context.workload.space))


def empty_network(context: Context, widths: Widths) -> nn.Module:
    """Return a network of the given widths on the run's device, whose weights are to be loaded."""
    workload = context.workload
    return _first_channels(context, Supernet(workload.model, workload.space), widths)


def from_scratch(context: Context, widths: Widths) -> nn.Module:
    """Return the network of the given widths, initialised as the original would be, on the run's device."""
    settings = context.settings
    workload = context.workload
    generator = derived_generator(settings.training_seed, "initial weights")
    network = build(workload.original, workload.space, widths, factory=workload.source.factory, generator=generator)
    return place(network, settings.options.device, workload.source.layout)


def _sort_channels(context: Context, kept: Kept) -> nn.Module:
    """Return the trained model with the channels first that a narrow network keeps."""

    def kept_first(orders: tuple[Order, ...]) -> tuple[Order, ...]:
        if not kept:
            return orders
        # the pruner's kept channels, then those it removed
        return tuple((*k, *(c for c in order if c not in {*k})) for k, order in zip(kept, orders, strict=True))

    return reorder_trained(context, kept_first)


def reorder_trained(context: Context, arrange: Callable[[tuple[Order, ...]], tuple[Order, ...]]) -> nn.Module:
    """Return the given or trained model with its channels reordered by `arrange`, given the order of importance."""
    workload = context.workload
    model = workload.model if context.settings.start == "pretrained" else context.output("original").network
    orders = arrange(by_importance(model, workload.space))
    device = next(model.parameters()).device
    return reorder(model, workload.space, orders, move(workload.source.example(), device))


def _first_channels(context: Context, owner: Supernet, widths: Widths) -> nn.Module:
    workload = context.workload
    network = build(workload.model, workload.space, widths, weights=(owner, Side.LEFT))
    return place(network, context.settings.options.device, workload.source.layout)


def recalibrate_norms(network: nn.Module, batches: EpochBatches, seed: int) -> nn.Module:
    """Return `network` with batch-norm statistics of some training `batches`, drawn with `seed`."""
    device = next(network.parameters()).device
    order = derived_generator(seed, "calibration")
    return recalibrate(network, (move(x, device) for x, _ in islice(batches.epoch(order), CALIBRATION)))


def trained_trial(context: Context, widths: Widths, epochs: float) -> nn.Module:
    """Return the network of these widths after a trial, resuming an interrupted one.

    A fraction of an epoch is that share of its batches, at the learning rates of a whole recipe. Checkpoints stay until
    `drop_trial` or `drop_trials`.
    """
    settings = context.settings
    workload = context.workload
    # the first epochs of the whole recipe if the best candidate's training continues, else a shorter recipe
    continues_best = isinstance(settings.method, TrainingsMethod) and settings.method.continues_best
    short = for_epochs(settings.training, epochs)
    recipe = for_epochs(settings.training, settings.training.epochs) if continues_best else short
    batches = workload.training_batches
    network = starting_network(context, widths)
    train(
        NetworkLearner(network, workload.source.task),
        batches if epochs >= 1 else FirstBatches(batches, epochs),
        recipe,
        seed=settings.training_seed,
        stage="final",
        checkpoints=context.directory.for_this_process().checkpoints(_name(widths, epochs), context.checkpoint_seconds),
        until=short.epochs,
    )
    return network


def interrupted_trial(context: Context, widths: Widths, epochs: int) -> Interrupted:
    """Return the trial of these widths, to be continued; it is trained again if its checkpoints are lost."""
    name = _name(widths, epochs)
    directory = context.directory.for_this_process()

    def state() -> Loaded:
        trained_trial(context, widths, epochs)  # no work if its last checkpoint exists
        return read_tensors(directory.checkpoint(name), directory.identity(name))

    found = context.world.tensors_from_rank_zero(state)
    assert found is not None
    return Interrupted(epochs, found)


def drop_trial(context: Context, widths: Widths, epochs: float) -> None:
    """Remove the checkpoints of a trial."""
    context.directory.for_this_process().drop_checkpoints(_name(widths, epochs))


def drop_trials(context: Context) -> None:
    """Remove the checkpoints of all trials."""
    context.directory.for_this_process().drop_checkpoints("trial-*")


def _name(widths: Widths, epochs: float) -> str:
    return "trial-" + hashlib.sha256(repr((tuple(widths), epochs)).encode()).hexdigest()[:12]
