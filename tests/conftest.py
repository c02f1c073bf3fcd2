"""What every test needs: few threads, and torchvision where its compiled operators are missing."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import hypothesis
import pytest
import torch
import torchvision_stand_ins
from processes import Processes

torch.set_num_threads(min(2, os.cpu_count() or 1))
torchvision_stand_ins.install()

if not os.environ.get("CI"):  # there hypothesis has a profile of its own, without a deadline too
    hypothesis.settings.register_profile("any machine", deadline=None)
    hypothesis.settings.load_profile("any machine")


@pytest.fixture(scope="session")
def processes():
    together = Processes(3)
    yield together
    together.close()
