"""Prior over widths: from training records to an initial population (Eq. 12-14)."""

from bcnet.prior.certificate.qcqp import QCQPSolution, solve
from bcnet.prior.expected_cost import ExpectedCost, expected_costs
from bcnet.prior.prior import Prior, learn_prior, prior_of_errors
from bcnet.prior.records import potential_errors, select_records

__all__ = [
    "ExpectedCost",
    "Prior",
    "QCQPSolution",
    "expected_costs",
    "learn_prior",
    "potential_errors",
    "prior_of_errors",
    "select_records",
    "solve",
]
