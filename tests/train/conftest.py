import pytest
import torch
from tiny_supernet import TinyBatches, TinySupernet


@pytest.fixture
def tiny_supernet() -> TinySupernet:
    torch.manual_seed(0)
    return TinySupernet()


@pytest.fixture
def tiny_batches() -> TinyBatches:
    return TinyBatches()
