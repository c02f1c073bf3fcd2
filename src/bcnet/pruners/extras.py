"""The packages that pruners need, none of which bcnet needs otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Literal

from bcnet.errors import RecipeError

PrunerName = Literal["magnitude", "fastnas"]
PRUNERS: Mapping[PrunerName, tuple[str, ...]] = MappingProxyType(
    {"magnitude": ("torch_pruning",), "fastnas": ("modelopt", "torchprofile", "requests", "huggingface_hub")}
)
"""Pruner -> the modules it imports. The extra of the package that installs them has the pruner's name."""


def check_installed(pruner: PrunerName) -> None:
    """Make sure that a pruner can run here.

    Raises:
        RecipeError: a package is missing; the message says how to install it.
    """
    missing = [name for name in PRUNERS[pruner] if find_spec(name) is None]
    if missing:
        raise RecipeError(
            f"the baseline {pruner!r} needs packages that are not installed here, {', '.join(missing)}: "
            f"pip install 'bcnet[{pruner}]'"
        )
