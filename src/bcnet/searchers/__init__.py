"""Searching widths: scores of a supernet, the prior over widths, and searchers that take any score."""

from bcnet.searchers.baselines import PriorOnly, Random, RegularizedEvolution
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
from bcnet.searchers.greedy import Greedy
from bcnet.searchers.greedy_evolution import GreedyEvolution
from bcnet.searchers.prior import Prior, learn_prior, prior_of_errors
from bcnet.searchers.problem import Problem
from bcnet.searchers.qcqp import QCQPSolution, solve
from bcnet.searchers.racing import BatchScore, Contest, Race
from bcnet.searchers.records import potential_errors, select_records
from bcnet.searchers.result import Candidate, SearchResult
from bcnet.searchers.search import Proposals, Searcher, search_widths
from bcnet.searchers.store import EvaluationStore

__all__ = [
    "BatchScore",
    "Candidate",
    "Contest",
    "EvaluationStore",
    "Evolution",
    "Greedy",
    "GreedyEvolution",
    "ImageScores",
    "Metric",
    "PerImage",
    "Prior",
    "PriorOnly",
    "Problem",
    "Proposals",
    "QCQPSolution",
    "Race",
    "Random",
    "RegularizedEvolution",
    "Rescored",
    "SearchResult",
    "Searcher",
    "SupernetEvaluator",
    "accuracy_interval",
    "confidence_interval",
    "learn_prior",
    "potential_errors",
    "prior_of_errors",
    "rescore",
    "search_widths",
    "select_records",
    "solve",
]
