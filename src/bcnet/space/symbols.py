"""Channel variables: the unknowns of tracing.

Notation: a variable stands for `n` atoms (channels that are kept or removed one by one). A dimension is a tuple of
pieces `(variable, atoms, repeat)`; each atom owns `repeat` consecutive elements. Two dimensions that must keep the same
elements are unified: a variable is bound to another one, split where the other side has a boundary, or made coarser
where the other side holds several elements together. What cannot be reconciled is pinned, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Piece(NamedTuple):
    """`atoms` channels of `variable`, each owning `repeat` consecutive elements."""

    variable: int
    atoms: int
    repeat: int = 1

    @property
    def size(self) -> int:
        """Number of elements in the piece."""
        return self.atoms * self.repeat


Dim = tuple[Piece, ...]


@dataclass(frozen=True)
class Reason:
    """Reason for a pinned variable: the rule, the operator, the source line, and a remedy."""

    text: str
    operator: str = ""
    where: str = ""
    remedy: str = ""


class Symbols:
    """Table of variables: what each is bound to, and why it is pinned, if it is."""

    def __init__(self) -> None:
        self._bindings: list[Dim | None] = []
        self._reasons: list[Reason | None] = []

    def new_dim(self, atoms: int, reason: Reason | None = None) -> Dim:
        """Return a new dimension of `atoms` elements, pinned from the start if a reason is given."""
        self._bindings.append(None)
        self._reasons.append(reason)
        return (Piece(len(self._bindings) - 1, atoms),)

    def resolve(self, dim: Dim) -> Dim:
        """Return the dimension in terms of unbound variables."""
        pieces: list[Piece] = []
        stack = list(reversed(dim))
        while stack:  # a variable that was split a thousand times is bound in as many steps
            piece = stack.pop()
            binding = self._bindings[piece.variable]
            if binding is None:
                pieces.append(piece)
            else:
                stack.extend(part._replace(repeat=part.repeat * piece.repeat) for part in reversed(binding))
        return tuple(pieces)

    def repeat(self, dim: Dim, times: int) -> Dim:
        """Return the dimension with every element `times` times, side by side."""
        return tuple(piece._replace(repeat=piece.repeat * times) for piece in self.resolve(dim))

    def reason(self, variable: int) -> Reason | None:
        """Return why an unbound variable is pinned, or None."""
        return self._reasons[variable]

    def fix(self, dim: Dim, reason: Reason) -> None:
        """Pin every variable of the dimension at full width; the first reason is kept."""
        for piece in self.resolve(dim):
            self._reasons[piece.variable] = self._reasons[piece.variable] or reason

    def unify(self, left: Dim, right: Dim, reason: Reason) -> None:
        """Make two dimensions of equal size keep the same elements; whatever must be pinned for it gets `reason`."""
        # Stacks of pieces, the first on top: the longer piece is split, and its rest stays on the stack.
        left_stack = list(self.resolve(left))[::-1]
        right_stack = list(self.resolve(right))[::-1]
        while left_stack and right_stack:
            a = self._refresh(left_stack)
            b = self._refresh(right_stack)
            if a.size == b.size:
                left_stack.pop(), right_stack.pop()
                self._tie(a, b, reason)
            else:
                longer, shorter = (left_stack, b) if a.size > b.size else (right_stack, a)
                if not self._cut(longer[-1], shorter.size):
                    self.fix((*left_stack, *right_stack), reason)
                    return

    def split(self, dim: Dim, sizes: Sequence[int], reason: Reason) -> list[Dim]:
        """Split the dimension into parts of the given sizes; pin it if a cut would divide an atom."""
        parts: list[Dim] = []
        stack = list(self.resolve(dim))[::-1]
        for size in sizes:
            part: list[Piece] = []
            missing = size
            while missing:
                piece = self._refresh(stack)
                if piece.size > missing:
                    if not self._cut(piece, missing):
                        self.fix(dim, reason)
                        return [self.new_dim(s, reason) for s in sizes]
                    piece = self._refresh(stack)
                part.append(stack.pop())
                missing -= piece.size
            parts.append(tuple(part))
        return parts

    def _refresh(self, stack: list[Piece]) -> Piece:
        """Resolve the piece on top of the stack, which an earlier step may have bound."""
        # Splitting or tying a piece binds its variable everywhere, including pieces still on the stack.
        top = stack.pop()
        stack.extend(reversed(self.resolve((top,))))
        return stack[-1]

    def _bind(self, variable: int, dim: Dim) -> None:
        held = self._reasons[variable]
        if held is not None:
            self.fix(dim, held)
        self._bindings[variable] = dim

    def _cut(self, piece: Piece, size: int) -> bool:
        """Split the piece's variable after `size` elements; return False if that would divide an atom."""
        if size % piece.repeat:
            return False
        head = size // piece.repeat
        self._bind(piece.variable, self.new_dim(head) + self.new_dim(piece.atoms - head))
        return True

    def _tie(self, a: Piece, b: Piece, reason: Reason) -> None:
        """Tie two pieces of equal size; the coarser atoms win."""
        if a == b:
            return
        # An atom is kept or removed whole on both sides, so it must span whole atoms of each.
        common = math.lcm(a.repeat, b.repeat)
        if a.variable == b.variable or a.size % common:
            self.fix((a, b), reason)
        elif a.repeat == b.repeat:
            # The older variable remains, so the name of tied groups does not depend on the order of ties.
            older, newer = sorted((a, b))
            self._bind(newer.variable, (Piece(older.variable, older.atoms),))
        else:
            shared = self.new_dim(a.size // common)[0]
            for piece in (a, b):
                self._bind(piece.variable, (shared._replace(repeat=common // piece.repeat),))
