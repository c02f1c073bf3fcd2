"""What a final network starts from: fresh weights, the supernet's, or the model's own (spec, section 6)."""

from __future__ import annotations

from itertools import islice

import torch
from torch import nn

from bcnet.errors import RecipeError
from bcnet.run.settings import Settings
from bcnet.run.subject import Subject
from bcnet.space import Side, Widths
from bcnet.supernet import Supernet, build, recalibrate
from bcnet.train import EpochBatches, derived_generator

_CALIBRATION = 20  # batches for the statistics of batch norm


def starting_network(settings: Settings, subject: Subject, supernet: Supernet | None, widths: Widths) -> nn.Module:
    """The network of the given widths before its training, on the run's device.

    From "scratch" it is freshly initialised as the original would be. From "supernet" or "pretrained" it holds the
    first channels of every group of the supernet, or of the model as it was given, with batch-norm statistics of some
    training batches: training then is fine-tuning.

    Raises:
        RecipeError: it is to start from a supernet, and the run has none since its widths were given.
    """
    if settings.final_from == "scratch":
        generator = derived_generator(settings.seed_of_networks, "initial weights")
        network = build(subject.original, subject.space, widths, factory=subject.source.factory, generator=generator)
        return _placed(network, settings)
    owner = supernet if settings.final_from == "supernet" else Supernet(subject.model, subject.space)
    if owner is None:
        raise RecipeError(
            'final_from="supernet" needs a supernet, which a run of given widths has none of: take "scratch"'
        )
    network = first_channels(settings, subject, owner, widths)
    return calibrated(network, subject.all_training, settings.seed_of_networks)


def first_channels(settings: Settings, subject: Subject, owner: Supernet, widths: Widths) -> nn.Module:
    """A network of the given widths with the first channels of every group, on the run's device."""
    return _placed(build(subject.model, subject.space, widths, weights=(owner, Side.LEFT)), settings)


def calibrated(network: nn.Module, batches: EpochBatches, seed: int) -> nn.Module:
    """`network` with the batch-norm statistics of some training `batches`, drawn by `seed`."""
    device, order = next(network.parameters()).device, derived_generator(seed, "calibration")
    return recalibrate(network, (x.to(device) for x, _ in islice(batches.epoch(order), _CALIBRATION)))


def _placed(network: nn.Module, settings: Settings) -> nn.Module:
    return network.to(settings.device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
