"""Rules for products of tensors without layers: matrix products, einsum, attention, and recurrent layers.

Every product is written in einsum letters, one per dimension. Equal letters hold the same channels. A product of two
operands takes as many multiply-adds as there are combinations of all their different letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bcnet.space.labels import Labels, Propagation
from bcnet.space.rules.pointwise import broadcast
from bcnet.space.rules.table import count_nothing, out_shape, rule, unknown
from bcnet.space.symbols import Dim

_MET = "is multiplied with channels that are pinned at full width or have no label"
_RECURRENT = "a recurrent layer keeps its number of features"
_READ = "a recurrent layer reads channels that are pinned at full width"
_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@rule("mm", "bmm", "mv", "dot", "vdot", "matmul")
def _matmul(p: Propagation, node: Any, a: Labels, b: Labels) -> Labels:
    return _contract(p, node, _matmul_letters(len(a.shape), len(b.shape)), a, b)


def _matmul_letters(first: int, second: int) -> str:
    """Return the subscripts of `matmul` for these numbers of dimensions, with batch dimensions aligned at the end.

    Example: `_matmul_letters(3, 2) == "ayz,zx->ayx"`.
    """
    batch = _ALPHABET[: max(first, second, 2) - 2]
    left = "z" if first == 1 else batch[len(batch) - (first - 2) :] + "yz"
    right = "z" if second == 1 else batch[len(batch) - (second - 2) :] + "zx"
    out = batch + ("y" if first > 1 else "") + ("x" if second > 1 else "")
    return f"{left},{right}->{out}"


@rule("inner")
def _inner(p: Propagation, node: Any, a: Labels, b: Labels) -> Any:
    if not a.shape or not b.shape:
        return broadcast(p, node, a, b)
    first, second = _ALPHABET[: len(a.shape) - 1], _ALPHABET[-len(b.shape) :][1:]
    return _contract(p, node, f"{first}z,{second}z->{first}{second}", a, b)


@rule("outer", "ger")
def _outer(p: Propagation, node: Any, a: Labels, b: Labels) -> Labels:
    return Labels(out_shape(node), (*a.dims, *b.dims))  # elementwise products, which count nothing


@rule("tensordot")
def _tensordot(p: Propagation, node: Any, a: Labels, b: Labels, left: Sequence[int], right: Sequence[int]) -> Labels:
    first = [*_ALPHABET[: len(a.shape)]]
    second = [*_ALPHABET[len(a.shape) : len(a.shape) + len(b.shape)]]
    for one, other in zip(left, right, strict=True):
        second[other] = first[one]
    gone = {first[d] for d in left}
    out = [letter for letter in (*first, *second) if letter not in gone]
    return _contract(p, node, f"{''.join(first)},{''.join(second)}->{''.join(out)}", a, b)


@rule("addmm", "baddbmm")
def _add_product(p: Propagation, node: Any, bias: Labels, a: Labels, b: Labels, **scales: Any) -> Labels:
    product: Labels = _matmul(p, node, a, b)
    return broadcast(p, node, bias, product)  # type: ignore[no-any-return]


@rule("einsum")
def _einsum(p: Propagation, node: Any, equation: str, operands: Sequence[Labels], **options: Any) -> Labels:
    if not all(isinstance(operand, Labels) for operand in operands):
        return unknown(p, node, [o for o in operands if isinstance(o, Labels)])  # type: ignore[no-any-return]
    return _contract(p, node, _without_dots(equation.replace(" ", ""), operands), *operands)


def _without_dots(equation: str, operands: Sequence[Labels]) -> str:
    """Return the equation with letters in place of every "...", and with an explicit result."""
    free = [letter for letter in reversed(_ALPHABET) if letter not in equation]
    inputs, arrow, out = equation.partition("->")
    longest = ""
    terms = []
    for term, operand in zip(inputs.split(","), operands, strict=True):
        count = len(operand.shape) - len(term.replace("...", "")) if "..." in term else 0
        dots = "".join(free[:count][::-1])  # aligned at the end, as in broadcasting
        longest = max(longest, dots, key=len)
        terms.append(term.replace("...", dots))
    if not arrow:
        once = sorted(letter for letter in set(inputs) - {",", "."} if inputs.count(letter) == 1)
        out = "..." + "".join(once) if longest else "".join(once)
    return f"{','.join(terms)}->{out.replace('...', longest)}"


@rule("cdist")
def _distances(p: Propagation, node: Any, a: Labels, b: Labels, *rest: Any) -> Labels:
    """Return a distance for each pair of rows with the same features; it counts no multiply-adds."""
    p.unify(a.dims[-1], b.dims[-1], "is compared with channels that are pinned at full width or have no label")
    count_nothing(p, node)
    rows = Labels((*a.shape[:-1], 1), (*a.dims[:-1], None))
    columns = Labels((*b.shape[:-2], 1, b.shape[-2]), (*b.dims[:-2], None, b.dims[-2]))
    return broadcast(p, node, rows, columns)  # type: ignore[no-any-return]


@rule("scaled_dot_product_attention")
def _attention(
    p: Propagation, node: Any, query: Labels, key: Labels, value: Labels, mask: Labels | None = None, *rest: Any,
    enable_gqa: bool = False, **options: Any,
) -> Labels:  # fmt: skip
    """Handle softmax(q k^T) v, with dimensions heads and batch, positions, features."""
    operands = [labels for labels in (query, key, value, mask) if labels is not None]
    if enable_gqa or len({len(labels.shape) for labels in (query, key, value)}) > 1:
        return unknown(p, node, operands)  # type: ignore[no-any-return]
    batch = _ALPHABET[: len(query.shape) - 2]
    if mask is not None:
        for labels in operands:
            for dim in labels.dims[:-1]:
                p.fix(dim, p.reason("attends under a mask of fixed size"))
    scores = _multiply(p, f"{batch}lf,{batch}sf->{batch}ls", query, key)
    return Labels(out_shape(node), _multiply(p, f"{batch}ls,{batch}sv->{batch}lv", scores, value).dims)


@rule("gru", "lstm", "rnn_tanh", "rnn_relu")
def _recurrent(p: Propagation, node: Any, x: Labels, state: Any, weights: Any, *rest: Any) -> Any:
    """Every weight is used at every position of the sequence.

    The first layer's input may be narrowed, the state not.
    """
    matrices = []
    if _is_padded(weights):
        matrices = [w for w in weights if isinstance(w, Labels) and len(w.shape) == 2]
    if not matrices:  # the length of a packed sequence depends on the data
        return unknown(p, node, [labels for labels in (x, state, weights) if isinstance(labels, Labels)])
    positions = x.drop_axis(len(x.shape) - 1)
    _, layers, _, _, bidirectional, *_ = rest
    each = len(weights) // (layers * (2 if bidirectional else 1))  # weights of a layer in one direction
    _hold_states(p, x, [weights[0], weights[each]] if bidirectional else [weights[0]], (state, weights))
    for weight in matrices:
        p.count_macs(positions, weight, None)
    value = node.meta["val"]
    return tuple(Labels(tuple(v.shape), (None,) * len(v.shape)) for v in value)


def _is_padded(weights: Any) -> bool:
    return isinstance(weights, (tuple, list))


@rule("gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell")
def _cell(p: Propagation, node: Any, x: Labels, state: Any, *weights: Any) -> Any:
    _hold_states(p, x, weights[:1], (state, weights))
    for weight in _labels_in(weights):
        if len(weight.shape) == 2:
            p.count_macs(x.drop_axis(len(x.shape) - 1), weight, None)
    value = node.meta["val"]
    if isinstance(value, (tuple, list)):
        return tuple(Labels(tuple(v.shape), (None,) * len(v.shape)) for v in value)
    return Labels(tuple(value.shape), (None,) * len(value.shape))


def _hold_states(p: Propagation, x: Labels, readers: Sequence[Labels], others: Any) -> None:
    """Tie the features of `x` to those that the first weights read, and pin all other dimensions."""
    for weight in readers:
        p.unify(x.dims[-1], weight.dims[1], _READ)
    read = [dim for weight in readers for dim in weight.dims[1:]]
    for labels in (x.drop_axis(len(x.shape) - 1), *_labels_in(others)):
        for dim in labels.dims:
            if all(dim is not one for one in read):
                p.fix(dim, p.reason(_RECURRENT))


def _labels_in(items: Any) -> Iterator[Labels]:
    if isinstance(items, Labels):
        yield items
    elif isinstance(items, (tuple, list)):
        for item in items:
            yield from _labels_in(item)


def _contract(p: Propagation, node: Any, equation: str, *operands: Labels) -> Labels:
    return Labels(out_shape(node), _multiply(p, equation, *operands).dims)


def _multiply(p: Propagation, equation: str, *operands: Labels) -> Labels:
    """Tie dimensions with equal letters, and count the products from left to right, as torch computes them."""
    inputs, _, out = equation.partition("->")
    terms = inputs.split(",")
    sizes: dict[str, int] = {}
    met: dict[str, list[Dim | None]] = {}
    for term, operand in zip(terms, operands, strict=True):
        for letter, size, dim in zip(term, operand.shape, operand.dims, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
            met.setdefault(letter, [])
            if size > 1:  # a broadcast dimension is tied to nothing
                met[letter].append(dim)
    dims = {letter: p.join(held, _MET) for letter, held in met.items()}
    known = terms[0]
    for number, term in enumerate(terms[1:], 1):
        # A letter of only one operand that is not in the result is summed before the multiplication.
        later = set("".join(terms[number + 1 :]) + out)
        together = "".join(dict.fromkeys(known + term))
        together = "".join(letter for letter in together if letter in later or (letter in known and letter in term))
        p.count_macs(_labels(together, sizes, dims), Labels((), ()), None)
        known = "".join(letter for letter in together if letter in later)
    return _labels(out, sizes, dims)


def _labels(letters: str, sizes: Mapping[str, int], dims: Mapping[str, Dim | None]) -> Labels:
    return Labels(tuple(sizes[letter] for letter in letters), tuple(dims[letter] for letter in letters))
