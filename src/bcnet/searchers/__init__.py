"""Search of widths: scores from a supernet, and searchers that work with any score."""

from bcnet.searchers.base import Proposals, Searcher
from bcnet.searchers.baselines import Greedy, PriorOnly, Random
from bcnet.searchers.evaluator import (
    ImageScores,
    Metric,
    PerImage,
    Rescored,
    SupernetEvaluator,
    accuracy_interval,
    confidence_interval,
    rescore,
)
from bcnet.searchers.evolution import Evolution
from bcnet.searchers.model_based import TRUST_IN_PATHS, ModelBased, heuristic_widths
from bcnet.searchers.result import Candidate, SearchResult, hypervolume, pareto_front
from bcnet.searchers.score_model import EXPONENTS, ScoreModel, closed_slopes
from bcnet.searchers.search import search_widths
from bcnet.searchers.store import EvaluationStore
from bcnet.searchers.study import Study

__all__ = [
    "EXPONENTS",
    "TRUST_IN_PATHS",
    "Candidate",
    "EvaluationStore",
    "Evolution",
    "Greedy",
    "ImageScores",
    "Metric",
    "ModelBased",
    "PerImage",
    "PriorOnly",
    "Proposals",
    "Random",
    "Rescored",
    "ScoreModel",
    "SearchResult",
    "Searcher",
    "Study",
    "SupernetEvaluator",
    "accuracy_interval",
    "closed_slopes",
    "confidence_interval",
    "heuristic_widths",
    "hypervolume",
    "pareto_front",
    "rescore",
    "search_widths",
]
