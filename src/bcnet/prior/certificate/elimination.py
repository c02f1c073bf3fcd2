"""Minimise a sum of factors over discrete variables by variable elimination, exactly where the graph allows it.

Notation: variables `0..n-1`, variable `v` has `sizes[v]` values; `minimum over x of sum_f table_f[x restricted to f]`.

Variables are eliminated in order of least degree. The factors and messages that contain the eliminated variable form a
bucket. Their sum is minimised over that variable and passed on as a message. A bucket whose joint table would exceed
`max_cells` is split into mini-buckets that are minimised separately (Dechter and Rish, "Mini-buckets", JACM 2003). A
sum of minima is at most the minimum of the sum, so the result is a lower bound; it is exact if no bucket was split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcnet.space.problem import FloatArray, IntArray

Scope = tuple[int, ...]


@dataclass(frozen=True)
class _Input:
    """A factor (`number` is its index) or message (`number` is the index of its bucket), laid out for its bucket."""

    number: int
    is_message: bool
    axes: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _Bucket:
    """Minimises the sum of its inputs over `scope[0]`; the message over `scope[1:]` goes to `parent`."""

    scope: Scope
    inputs: tuple[_Input, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Minimum:
    """A lower bound on the minimum, an assignment `(variables,)`, and the cell of each factor used in the bound.

    If `exact`, the bound is the minimum, the assignment attains it, and every factor's `cells` agree with it.
    """

    bound: float
    assignment: IntArray
    cells: tuple[tuple[int, ...], ...]


class Elimination:
    """A plan for minimising sums of factors of fixed scopes, made once and run for many tables.

    Example: `Elimination([(0,), (0, 1)], sizes=[3, 4]).minimise([unary, pair]).bound`.
    """

    def __init__(self, scopes: Sequence[Scope], sizes: Sequence[int], max_cells: int = 200_000) -> None:
        self.sizes = tuple(int(s) for s in sizes)
        self._scopes = [tuple(s) for s in scopes]
        self._buckets: list[_Bucket] = []
        self._parents: list[int | None] = []
        self.exact = True
        self._plan(max_cells)

    def _plan(self, max_cells: int) -> None:
        pieces: list[tuple[Scope, int, bool]] = [(s, number, False) for number, s in enumerate(self._scopes)]
        for variable in least_degree_order(self._scopes, len(self.sizes)):
            mine = [p for p in pieces if variable in p[0]]
            pieces = [p for p in pieces if variable not in p[0]]
            # Mini-buckets: minimising parts of a sum separately gives a lower bound with tables of bounded size.
            groups = self._split(mine, max_cells)
            self.exact &= len(groups) <= 1
            for members in groups:
                rest = sorted({v for scope, _, _ in members for v in scope} - {variable})
                self._add_bucket((variable, *rest), members)
                if rest:
                    pieces.append((tuple(rest), len(self._buckets) - 1, True))

    def _split(self, pieces: list[tuple[Scope, int, bool]], max_cells: int) -> list[list[tuple[Scope, int, bool]]]:
        groups: list[list[tuple[Scope, int, bool]]] = []
        unions: list[set[int]] = []
        for piece in sorted(pieces, key=lambda p: -len(p[0])):  # large scopes first; small ones fit in beside them
            for members, union in zip(groups, unions, strict=True):
                if self._cells(union | set(piece[0])) <= max_cells:
                    members.append(piece)
                    union.update(piece[0])
                    break
            else:
                groups.append([piece])
                unions.append(set(piece[0]))
        return groups

    def _cells(self, scope: set[int]) -> float:
        return float(np.prod([float(self.sizes[v]) for v in scope]))

    def _add_bucket(self, scope: Scope, members: list[tuple[Scope, int, bool]]) -> None:
        inputs = []
        for piece, number, is_message in members:
            order = sorted(range(len(piece)), key=lambda axis: scope.index(piece[axis]))
            shape = tuple(self.sizes[v] if v in piece else 1 for v in scope)
            inputs.append(_Input(number, is_message, tuple(order), shape))
            if is_message:
                self._parents[number] = len(self._buckets)
        self._buckets.append(_Bucket(scope, tuple(inputs), tuple(self.sizes[v] for v in scope)))
        self._parents.append(None)

    def minimise(self, tables: Sequence[FloatArray]) -> Minimum:
        """Return bound and assignment for `tables`, one per scope, axes in the order of the scope."""
        messages: list[FloatArray] = []
        choices: list[IntArray] = []
        bound = 0.0
        for bucket, parent in zip(self._buckets, self._parents, strict=True):
            total = np.zeros(bucket.shape)
            for item in bucket.inputs:
                source = messages[item.number] if item.is_message else tables[item.number]
                total += source.transpose(item.axes).reshape(item.shape)
            choices.append(total.argmin(axis=0))
            messages.append(total.min(axis=0))
            if parent is None:
                bound += float(messages[-1])
        return self._decode(bound, choices)

    def _decode(self, bound: float, choices: list[IntArray]) -> Minimum:
        assignment = np.full(len(self.sizes), -1, dtype=np.int64)
        values: list[dict[int, int]] = [{} for _ in self._buckets]
        cells: list[tuple[int, ...]] = [()] * len(self._scopes)
        for number in range(len(self._buckets) - 1, -1, -1):
            bucket = self._buckets[number]
            parent = self._parents[number]
            known = values[parent] if parent is not None else {}
            # Buckets are decoded in reverse, so that the variables which a bucket's choice depends on are known.
            mine = {v: known[v] for v in bucket.scope[1:]}
            mine[bucket.scope[0]] = int(choices[number][tuple(mine.values())])
            values[number] = mine
            assignment[bucket.scope[0]] = mine[bucket.scope[0]]
            for item in bucket.inputs:
                if not item.is_message:
                    cells[item.number] = tuple(mine[v] for v in self._scopes[item.number])
        return Minimum(bound, assignment, tuple(cells))


def least_degree_order(scopes: Sequence[Scope], count: int) -> list[int]:
    """Return the elimination order: always the variable with the fewest remaining neighbours (the first of equals)."""
    neighbours: list[set[int]] = [set() for _ in range(count)]
    for scope in scopes:
        for v in scope:
            neighbours[v].update(scope)
    remaining = set(range(count))
    order = []
    while remaining:
        best = min(remaining, key=lambda v: (len(neighbours[v]), v))
        remaining.remove(best)
        others = neighbours[best] - {best}
        # Eliminating a variable connects its neighbours with each other.
        for v in others:
            neighbours[v] |= others
            neighbours[v].discard(best)
        order.append(best)
    return order
