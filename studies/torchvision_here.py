"""torchvision for studies that only trace or try its networks, also where its compiled operators are missing."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def let_torchvision_import() -> None:
    """Use the tests' stand-ins for operators that a CPU-only torch lacks; nothing happens where all are there."""
    sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
    importlib.import_module("torchvision_stand_ins").install()
