"""A higher lower bound where the Lagrangian leaves a gap: branch and bound over mean widths.

Notation as in `qcqp` and `mccormick`. The Lagrangian's minimum mixes whole candidates. Where these differ in
neighbouring groups, no independent rows may reach what the mixture does. A node of the tree holds the means of some
groups to intervals. Estimates of the cost that the node's mixture breaks join its constraints and its Lagrangian is
maximised again. The interval of the group whose products are most underestimated is cut in two. The smallest bound over
the leaves is a lower bound on the QCQP; the candidates met are starts for better rows.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count

import numpy as np

from bcnet.prior.certificate.dual import Cut, DualMaximum
from bcnet.prior.certificate.lagrangian import Lagrangian
from bcnet.prior.certificate.mccormick import Estimates, Interval, Mixture, mean_at_least, mean_at_most
from bcnet.prior.certificate.recovery import Recovery
from bcnet.prior.expected_cost import ExpectedCost, Rows
from bcnet.space import WidthSpace
from bcnet.space.problem import FloatArray

_NODES = 40  # that are cut in two
_ROUNDS = 4  # of estimates per node
_BROKEN = 1e-6  # an estimate is broken from this much over the limit
_DUAL_SHARE = 0.1  # of the tolerance, for the multipliers of a node
_MARGIN = 0.2  # an interval is cut no nearer to its ends than this share of its length


@dataclass(frozen=True)
class _Node:
    """Means held to `intervals` (one per group), the `costs` that say so, and the maximum of their Lagrangian.

    `excess`, shape `(groups,)`, is how much its mixture underestimates the products of a group.
    """

    intervals: tuple[Interval, ...]
    costs: tuple[ExpectedCost, ...]
    found: DualMaximum
    bound: float
    excess: FloatArray

    @property
    def mixture(self) -> Mixture | None:
        """The candidates mixed at the maximum; None where the node holds nothing better than the rows known."""
        return _mixture(self.found)


def raised_bound(
    root: Lagrangian, dual: DualMaximum, space: WidthSpace, rows: Rows, recovery: Recovery, tolerance: float
) -> tuple[float, Rows]:
    """A lower bound and feasible rows, no worse than `dual` and `rows`.

    Ends when they are no more than `tolerance` apart, or after a bounded number of nodes.
    """
    tree = _Tree(root, space, tolerance)
    number = count()
    leaves = [(dual.bound, next(number), tree.root(dual, recovery.objective(rows)))]
    for _ in range(_NODES):
        node = leaves[0][2]
        if node.bound >= recovery.objective(rows) - tolerance or node.excess.max() <= 0:
            break
        heapq.heappop(leaves)
        for child in tree.halves(node, recovery.objective(rows)):
            if child.mixture is not None:
                rows = recovery.better(rows, child.mixture.points)
            heapq.heappush(leaves, (child.bound, next(number), child))
    return min(leaves[0][2].bound, recovery.objective(rows)), rows


class _Tree:
    """The state that all nodes share."""

    def __init__(self, lagrangian: Lagrangian, space: WidthSpace, tolerance: float) -> None:
        self._lagrangian = lagrangian
        self._tolerance = tolerance
        self._choices = [np.array(group.choices, dtype=np.float64) for group in space.groups]
        self._estimates = [Estimates(cost, self._choices) for cost in lagrangian.costs]

    def root(self, dual: DualMaximum, objective: float) -> _Node:
        """The node without intervals."""
        widest = tuple((float(c[0]), float(c[-1])) for c in self._choices)
        return self._tightened(_Node(widest, self._lagrangian.costs, dual, dual.bound, np.zeros(0)), objective)

    def halves(self, node: _Node, objective: float) -> tuple[_Node, _Node]:
        """The node's two halves, of interest as far as they are below `objective`."""
        assert node.mixture is not None
        lengths = [(high - low) / c[-1] for (low, high), c in zip(node.intervals, self._choices, strict=True)]
        group = int(np.argmax(node.excess * lengths))
        low, high = node.intervals[group]
        mean = float(node.mixture.weights @ node.mixture.widths(self._choices)[:, group])
        margin = _MARGIN * (high - low)
        middle = min(max(mean, low + margin), high - margin)
        lower = self._child(node, group, (low, middle), mean_at_most(group, middle, self._choices), objective)
        upper = self._child(node, group, (middle, high), mean_at_least(group, middle, self._choices), objective)
        return lower, upper

    def _child(self, node: _Node, group: int, interval: Interval, limit: ExpectedCost, objective: float) -> _Node:
        intervals = (*node.intervals[:group], interval, *node.intervals[group + 1 :])
        child = _Node(intervals, (*node.costs, limit), node.found, node.bound, node.excess)
        return self._tightened(self._solved(child, objective), objective)

    def _solved(self, node: _Node, objective: float) -> _Node:
        """The maximum of the node's Lagrangian, as far as it is below `objective`; known points are tried first."""
        lagrangian = self._lagrangian.with_costs(node.costs)
        incumbent = Cut(objective, np.zeros(len(node.costs)), None)
        known = [lagrangian.cut(np.asarray(cut.point)) for cut in node.found.cuts if cut.point is not None]
        found = lagrangian.maximise(_DUAL_SHARE * self._tolerance, [incumbent, *known])
        return _Node(node.intervals, node.costs, found, max(node.bound, found.bound), node.excess)

    def _tightened(self, node: _Node, objective: float) -> _Node:
        """The node with the estimates that its mixture breaks, as long as that helps."""
        for _ in range(_ROUNDS):
            mixture = node.mixture
            if mixture is None or node.bound >= objective - self._tolerance:
                break
            found = [estimates.largest(mixture, node.intervals) for estimates in self._estimates]
            broken = tuple(cost for cost, _ in found if mixture(cost) > 1 + _BROKEN)
            excess = np.sum([excess for _, excess in found], axis=0)
            node = _Node(node.intervals, (*node.costs, *broken), node.found, node.bound, excess)
            if not broken:
                break
            node = self._solved(node, objective)
        return node


def _mixture(found: DualMaximum) -> Mixture | None:
    pairs = zip(found.weights, found.cuts, strict=True)
    kept = [(weight, cut.point) for weight, cut in pairs if weight > 1e-9 and cut.point is not None]
    if not kept:
        return None
    weights = np.array([weight for weight, _ in kept])
    return Mixture(weights / weights.sum(), np.array([point for _, point in kept], dtype=np.int64))
