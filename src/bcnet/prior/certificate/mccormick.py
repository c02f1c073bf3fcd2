"""Lower estimates of an expected cost that hold for independent rows, in the form of expected costs themselves.

Notation as in `qcqp`; `m_g = P[g] . c_g` is the mean width of group `g`, held to an interval `a_g <= m_g <= b_g`.

A mixture of whole candidates is correlated: it costs `E[c_g c_h]` where independent rows cost `m_g * m_h`, and it may
cost less. But independent rows also cost at least (McCormick, 1976)

    a_h * m_g + a_g * m_h - a_g * a_h      and      b_h * m_g + b_g * m_h - b_g * b_h

which are exact where a mean is at the end of its interval. Of these three, every product may have its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcnet.prior.expected_cost import ExpectedCost, Factor
from bcnet.space.problem import FloatArray, IntArray

Interval = tuple[float, float]


@dataclass(frozen=True)
class Mixture:
    """Candidates `points` `(points, groups)`, as choice indices, with `weights` `(points,)` that add up to 1."""

    weights: FloatArray
    points: IntArray

    def __call__(self, cost: ExpectedCost) -> float:
        """Expected cost over the limit."""
        return float(self.weights @ [cost.of_indices(point) for point in self.points])

    def widths(self, choices: Sequence[FloatArray]) -> FloatArray:
        """Widths of the points, `(points, groups)`."""
        return np.stack([c[index] for c, index in zip(choices, self.points.T, strict=True)], axis=1)


class Estimates:
    """The estimates of one `cost` over the `choices` of every group."""

    def __init__(self, cost: ExpectedCost, choices: Sequence[FloatArray]) -> None:
        self._cost = cost
        self._choices = choices
        products = {factor.groups: _coefficient(factor, choices) for factor in cost.factors}
        self._coefficients = {groups: found for groups, found in products.items() if found is not None}

    def largest(self, mixture: Mixture, intervals: Sequence[Interval]) -> tuple[ExpectedCost, FloatArray]:
        """The largest estimate at `mixture`, and how much more independent rows of the same means would cost.

        The excess is shared out to the groups of the products it comes from, shape `(groups,)`.
        """
        widths = mixture.widths(self._choices)
        means = mixture.weights @ widths
        unary = [vector.copy() for vector in self._cost.unary]
        constant = self._cost.constant
        excess = np.zeros(len(unary))
        correlated = []
        for factor in self._cost.factors:
            coefficient = self._coefficients.get(factor.groups)
            if coefficient is None:
                correlated.append(factor)
                continue
            g, h = factor.groups
            ends = zip(intervals[g], intervals[h], strict=True)
            value, at_g, at_h = max((b * means[g] + a * means[h] - a * b, a, b) for a, b in ends)
            joint = float(mixture.weights @ (widths[:, g] * widths[:, h]))
            excess[[g, h]] += coefficient * max(0.0, means[g] * means[h] - max(value, joint))
            if joint >= value:
                correlated.append(factor)
            else:
                unary[g] += coefficient * at_h * self._choices[g]
                unary[h] += coefficient * at_g * self._choices[h]
                constant -= coefficient * at_g * at_h
        return ExpectedCost(constant, tuple(unary), tuple(correlated)), excess


def _coefficient(factor: Factor, choices: Sequence[FloatArray]) -> float | None:
    """`k` where the factor is `k * c_g * c_h`; None for anything else, which stays correlated."""
    if len(factor.groups) != 2:
        return None
    widths = np.multiply.outer(*(choices[g] for g in factor.groups))
    coefficient = float(factor.table[-1, -1] / widths[-1, -1])
    return coefficient if np.allclose(factor.table, coefficient * widths, rtol=1e-9, atol=0.0) else None


def mean_at_least(group: int, bound: float, choices: Sequence[FloatArray]) -> ExpectedCost:
    """`m_group >= bound` in the form of a cost, relative to the largest width."""
    return _linear(group, -1.0, bound, choices)


def mean_at_most(group: int, bound: float, choices: Sequence[FloatArray]) -> ExpectedCost:
    """`m_group <= bound` in the form of a cost, relative to the largest width."""
    return _linear(group, 1.0, bound, choices)


def _linear(group: int, sign: float, bound: float, choices: Sequence[FloatArray]) -> ExpectedCost:
    unary = [np.zeros(len(c)) for c in choices]
    unary[group] = sign * choices[group] / choices[group][-1]
    return ExpectedCost(1 - sign * bound / float(choices[group][-1]), tuple(unary), ())
