"""Baselines: other ways to find widths than a search, each with the settings that make it and the words for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Baseline:
    """One of them, as `bcnet.baseline` and `bcnet baseline` take its `name`.

    `settings` make a run one of it. `help` says in a few words what it does, `narrowed` what was done to the network,
    `origin` in a sentence where the widths come from that no score has chosen.
    """

    name: str
    settings: Mapping[str, Any]
    help: str
    narrowed: str
    origin: str = ""


SLIMMING: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "autoslim": {"strategy": "sandwich", "searcher": "greedy"},
        "unilateral": {"strategy": "unilateral", "searcher": "greedy"},
    }
)
"""Baselines that slim greedily on a supernet of one side, by their names."""
BASELINES: Mapping[str, Baseline] = MappingProxyType(
    {
        baseline.name: baseline
        for baseline in (
            Baseline(
                "uniform",
                {"baseline": "uniform"},
                "one ratio for all layers",
                "narrowed alike in all layers",
                "All layers were narrowed alike.",
            ),
            Baseline(
                "balanced",
                {"baseline": "balanced"},
                "a formula that looks at neither data nor weights",
                "narrowed by a formula that balances its layers",
                "The widths are those of a formula, which looks at neither data nor weights.",
            ),
            Baseline(
                "random",
                {"baseline": "random"},
                "the best of 20 random networks after a short training each",
                "narrowed to the best of some random widths",
            ),
            Baseline(
                "autoslim",
                SLIMMING["autoslim"],
                "AutoSlim: sandwich rule, in-place distillation, greedy slimming",
                "narrowed by AutoSlim's greedy slimming",
            ),
            Baseline(
                "unilateral",
                SLIMMING["unilateral"],
                "greedy slimming on a supernet of random left paths",
                "narrowed by greedy slimming on a unilateral supernet",
            ),
            Baseline(
                "magnitude",
                {"baseline": "magnitude"},
                "what magnitude pruning leaves of the trained original; pip install 'bcnet[magnitude]'",
                "narrowed to what magnitude pruning leaves of the original",
                "The widths are what magnitude pruning left of the original.",
            ),
            Baseline(
                "taylor",
                {"baseline": "taylor"},
                "what pruning by the loss's Taylor terms leaves of it; pip install 'bcnet[magnitude]'",
                "narrowed to what Taylor pruning leaves of the original",
                "The widths are what pruning by the loss's Taylor terms left of the original.",
            ),
            Baseline(
                "fastnas",
                {"baseline": "fastnas"},
                "what NVIDIA's FastNAS leaves of it; pip install 'bcnet[fastnas]'",
                "narrowed to what FastNAS leaves of the original",
                "The widths are what FastNAS left of the original.",
            ),
        )
    }
)
