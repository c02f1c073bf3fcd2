"""torchvision for studies that only trace or try its networks, also where its compiled operators are missing."""

from __future__ import annotations

from tests import torchvision_stand_ins


def let_torchvision_import() -> None:
    """Use the tests' stand-ins for operators that a CPU-only torch lacks; nothing happens where all are there."""
    torchvision_stand_ins.install()
