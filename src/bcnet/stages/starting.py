"""The start of a network's training, and the short training that scores one.

A network starts from fresh weights, from the supernet's, from those that the model was given, or from those of the
trained original. A trial is trained as a final network would be, from the same start, by the same recipe and seed, but
for fewer epochs and without the images that score it, by one process. Where the best one's own training is gone on
with, as the paper has it of random networks (`Random.continued`), trials are the first epochs of the whole
recipe, at its learning rates, and not a recipe that is shorter.
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
from bcnet.train import Begun, EpochBatches, FirstBatches, NetworkLearner, derived_generator, train

CALIBRATION = 20  # batches for the statistics of batch norm


def starting_network(context: Context, widths: Widths, kept: Kept = ()) -> nn.Module:
    """Return the network of the given widths before its training, on the run's device.

    From "scratch" it is freshly initialised as the original would be. From "supernet" it holds the first channels of
    every group, from "pretrained" or "original" the most important ones of the model as it was given or as it was
    trained, those that a pruner `kept` before all others; with batch-norm statistics of some training batches. Training
    then is fine-tuning.

    Raises:
        RecipeError: it is to start from a supernet, and the run has none.
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
    """Return what networks that start from trained weights are cut from.

    Sorting the channels and checking the permutation takes seconds: once for all candidates of a run.
    """
    return context.once(("sorted", kept), lambda: Supernet(_sort_channels(context, kept), context.workload.space))


def empty_network(context: Context, widths: Widths) -> nn.Module:
    """Return a network of the given widths on the run's device, for weights to be loaded into."""
    workload = context.workload
    return _first_channels(context, Supernet(workload.model, workload.space), widths)


def from_scratch(context: Context, widths: Widths) -> nn.Module:
    """Return the network of the given widths, freshly initialised as the original would be, on the run's device."""
    settings = context.settings
    workload = context.workload
    generator = derived_generator(settings.training_seed, "initial weights")
    network = build(workload.original, workload.space, widths, factory=workload.source.factory, generator=generator)
    return place(network, settings.options.device, workload.source.layout)


def _sort_channels(context: Context, kept: Kept) -> nn.Module:
    """The trained model with the channels first that a narrow network keeps."""

    def kept_first(orders: tuple[Order, ...]) -> tuple[Order, ...]:
        if not kept:
            return orders
        # The pruner's own choice; what it has cut comes after it.
        return tuple((*k, *(c for c in order if c not in {*k})) for k, order in zip(kept, orders, strict=True))

    return reorder_trained(context, kept_first)


def reorder_trained(context: Context, arrange: Callable[[tuple[Order, ...]], tuple[Order, ...]]) -> nn.Module:
    """The model as it was given or as it was trained, its channels in an order made from that of their importance."""
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
    """`network` with the batch-norm statistics of some training `batches`, drawn by `seed`."""
    device = next(network.parameters()).device
    order = derived_generator(seed, "calibration")
    return recalibrate(network, (move(x, device) for x, _ in islice(batches.epoch(order), CALIBRATION)))


def trained_trial(context: Context, widths: Widths, epochs: float) -> nn.Module:
    """Return the network of these widths after a trial, which goes on where this process stopped it.

    A part of an epoch is so many of its batches, at the rates of a whole recipe.
    Its checkpoints stay until `drop_trial` or `drop_trials`.
    """
    settings = context.settings
    workload = context.workload
    # The first epochs of the whole recipe where the best one's own training goes on, else a recipe that is shorter.
    goes_on = isinstance(settings.method, TrainingsMethod) and settings.method.goes_on
    short = for_epochs(settings.training, epochs)
    recipe = for_epochs(settings.training, settings.training.epochs) if goes_on else short
    batches = workload.training_batches
    network = starting_network(context, widths)
    train(
        NetworkLearner(network, workload.source.task),
        batches if epochs >= 1 else FirstBatches(batches, epochs),
        recipe,
        seed=settings.training_seed,
        stage="final",
        checkpoints=context.directory.alone().checkpoints(_name(widths, epochs), context.checkpoint_seconds),
        until=short.epochs,
    )
    return network


def begun_trial(context: Context, widths: Widths, epochs: int) -> Begun:
    """Return the trial of these widths, to be gone on with; it is trained again where its checkpoints are lost."""
    name = _name(widths, epochs)
    directory = context.directory.alone()

    def state() -> Loaded:
        trained_trial(context, widths, epochs)  # no work where its last checkpoint is there
        return read_tensors(directory.checkpoint(name), directory.identity(name))

    found = context.world.tensors_from_rank_zero(state)
    assert found is not None
    return Begun(epochs, found)


def drop_trial(context: Context, widths: Widths, epochs: float) -> None:
    """Remove the checkpoints of a trial."""
    context.directory.alone().drop_checkpoints(_name(widths, epochs))


def drop_trials(context: Context) -> None:
    """Remove those of all trials."""
    context.directory.alone().drop_checkpoints("trial-*")


def _name(widths: Widths, epochs: float) -> str:
    return "trial-" + hashlib.sha256(repr((tuple(widths), epochs)).encode()).hexdigest()[:12]
