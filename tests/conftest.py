"""What every test needs: one thread, and torchvision where its compiled operators are missing."""

import os
import signal

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import hypothesis
import pytest
import torch
import torchvision_stand_ins
from altair.utils import schemapi
from processes import Processes

from bcnet.tflite import converter

torch.set_num_threads(1)  # there is a process for every core already
torchvision_stand_ins.install()
# Charts are validated as a whole by their own tests; their parts one by one take a tenth of a tiny search.
schemapi.disable_debug_mode()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts so what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

if not os.environ.get("CI"):  # there hypothesis has a profile of its own, without a deadline too
    hypothesis.settings.register_profile("any machine", deadline=None)
    hypothesis.settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def _one_thread():
    """What a test sets is its own: a test that leaves more threads slows all that follow it."""
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def processes():
    together = Processes(3)
    yield together
    together.close()


@pytest.fixture(scope="session")
def litert():
    """Skips where networks cannot be converted."""
    if not converter.is_installed():
        pytest.skip(f"litert-torch is not installed, neither here nor in {converter.PYTHON}")
