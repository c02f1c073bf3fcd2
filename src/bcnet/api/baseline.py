"""Baselines: other ways to find widths, with the run directory, the final training and the report of a search."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bcnet.api.search import search
from bcnet.errors import RecipeError
from bcnet.run.settings import AUTOSLIM
from bcnet.run.subject import DataLike, ModelLike
from bcnet.space import Budget
from bcnet.stages.course import SearchOutcome

BASELINES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "uniform": {"baseline": "uniform"},
        "random": {"baseline": "random"},
        "autoslim": dict(zip(("strategy", "searcher"), AUTOSLIM, strict=True)),
        "magnitude": {"baseline": "magnitude"},
        "fastnas": {"baseline": "fastnas"},
    }
)
"""Baseline -> the settings that make a run one of it."""


def baseline(
    name: str, model: ModelLike, data: DataLike, *, budget: Budget, run_dir: str | Path, **options: Any
) -> SearchOutcome:
    """Find widths of `model` under `budget` by another method than `search`, then train and compare them as it does.

    Recipe, seeds and order of the images of the final training are those of `search` with the same options, so that the
    networks compare at equal cost; no method sees test images. It resumes as `search` does.

    - "uniform": one ratio for all layers, as large as the budget allows.
    - "random": `random_networks` (20) widths near the budget, each trained for `random_epochs` on what a supernet
      learns from, the best on the validation images then trained by the full schedule on all training images.
    - "autoslim": greedy slimming on a unilateral supernet (Yu and Huang, 2019).
    - "magnitude": what global magnitude pruning of the trained original leaves; `pip install 'bcnet[magnitude]'`.
    - "fastnas": what FastNAS of NVIDIA's Model Optimizer leaves of it; `pip install 'bcnet[fastnas]'`.

    Args:
        name: one of these.
        model, data, budget, run_dir: as in `search`.
        **options: the other arguments of `search`; with `take_from` the original is not trained again.

    Raises:
        RecipeError: no such baseline, or one whose package is not installed.
        ModelError: a pruner of others cut layers differently that must keep the same channels.
        BCNetError: as `search`.

    Example: `baseline("random", "resnet20", "cifar10", budget=Budget(macs=0.5), run_dir="runs/random")`
    """
    if name not in BASELINES:
        raise RecipeError(f"a baseline is one of {', '.join(BASELINES)}; got {name!r}")
    fixed = BASELINES[name]
    clash = sorted(set(fixed) & set(options))
    if clash:
        raise RecipeError(f"the baseline {name!r} settles {', '.join(clash)}: leave it out, or call bcnet.search")
    return search(model, data, budget=budget, run_dir=run_dir, **fixed, **options)
