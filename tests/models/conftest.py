from functools import cache

import pytest
import torch

from bcnet import models
from bcnet.space import WidthSpace


@pytest.fixture(scope="session")
def traced_ours():
    """Name of a network of ours -> its space, the network and its input size; each is traced once."""

    @cache
    def trace(name):
        spec = models.create(name)
        model = spec.build()
        return WidthSpace.trace(model, torch.randn(2, *spec.input_size)), model, spec.input_size

    return trace
