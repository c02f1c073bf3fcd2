"""How a run's supernet is trained: by its settings' strategy, two paths to a pass where that is faster."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bcnet.errors import RecipeError
from bcnet.run.settings import Settings
from bcnet.supernet import Supernet
from bcnet.supernet.pairs import Pairs, UnpairableError, worthwhile
from bcnet.train import STRATEGIES, SupernetTrainee


def supernet_trainee(supernet: Supernet, settings: Settings, image_shape: Sequence[int]) -> SupernetTrainee:
    """The supernet as the settings train it, on images `(channels, height, width)`.

    Raises:
        RecipeError: the settings ask for pairs, and the network's paths cannot share a pass.
    """
    strategy = STRATEGIES[settings.strategy]()
    batch = settings.supernet.batch_size
    if settings.pairs == "off" or (settings.pairs == "auto" and not worthwhile(supernet.space, batch)):
        return SupernetTrainee(supernet, strategy)
    x = torch.randn(2, *image_shape, generator=torch.Generator().manual_seed(0))
    try:
        pairs = Pairs.verified(supernet.network, supernet.space, x)
    except UnpairableError as error:
        if settings.pairs == "on":
            raise RecipeError(
                f"pairs=on needs a network whose channels stay apart in its forward; got {settings.model}: {error}: "
                "leave pairs at auto"
            ) from None
        pairs = None
    return SupernetTrainee(supernet, strategy, pairs)
