"""Stages of a run. A stage reads its output from the run directory if it is finished, and computes it otherwise.

To add a stage, subclass `Stage` in one file.
"""

from bcnet.stages.base import Context, Stage
from bcnet.stages.finalists import pooled_choice
from bcnet.stages.plan import stages_of
from bcnet.stages.scores import Scorer, network_evaluator, supernet_evaluator, supernet_scorer
from bcnet.stages.starting import recalibrate_norms
from bcnet.stages.trials import trial_scorer

__all__ = [
    "Context",
    "Scorer",
    "Stage",
    "network_evaluator",
    "pooled_choice",
    "recalibrate_norms",
    "stages_of",
    "supernet_evaluator",
    "supernet_scorer",
    "trial_scorer",
]
