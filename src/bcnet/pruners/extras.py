"""Packages required by pruners only."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType

from bcnet.errors import RecipeError

PRUNERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "magnitude": ("torch_pruning",),
        "taylor": ("torch_pruning",),
        "fastnas": ("modelopt", "torchprofile", "requests", "huggingface_hub"),
    }
)
"""Modules that each pruner imports."""
_EXTRAS = {"taylor": "magnitude"}  # extras that install them, if not named like the pruner


def check_installed(pruner: str) -> None:
    """Check that a pruner can run here.

    Raises:
        RecipeError: a package is missing; the message says how to install it.
    """
    missing = [name for name in PRUNERS[pruner] if find_spec(name) is None]
    if missing:
        raise RecipeError(
            f"the baseline {pruner!r} needs packages that are not installed here, {', '.join(missing)}: "
            f"pip install 'bcnet[{_EXTRAS.get(pruner, pruner)}]'"
        )
