"""Channel variables: whatever is tied keeps the same elements, whatever cannot be tied is fixed."""

from hypothesis import given
from hypothesis import strategies as st

from bcnet.space.layout import Segment, Side, length, spans
from bcnet.space.symbols import Dim, Piece, Reason, Symbols

WHY = Reason("test")


def _atoms(symbols: Symbols, dim: Dim) -> list[tuple[int, int] | None]:
    """Which atom each element belongs to (None: it is fixed)."""
    elements: list[tuple[int, int] | None] = []
    for piece in symbols.resolve(dim):
        fixed = symbols.reason(piece.variable) is not None
        elements += [None if fixed else (piece.variable, i // piece.repeat) for i in range(piece.size)]
    return elements


@st.composite
def dimensions(draw: st.DrawFn, size: int) -> list[tuple[int, int]]:
    """Pieces `(atoms, repeat)` that fill `size` elements."""
    pieces = []
    while size:
        repeat = draw(st.sampled_from([r for r in (1, 1, 1, 2, 3, 4) if r <= size]))
        atoms = draw(st.integers(1, size // repeat))
        pieces.append((atoms, repeat))
        size -= atoms * repeat
    return pieces


@given(st.integers(1, 24).flatmap(lambda n: st.lists(dimensions(n), min_size=2, max_size=4)))
def test_unified_dimensions_hold_the_same_atoms_everywhere(shapes: list[list[tuple[int, int]]]) -> None:
    symbols = Symbols()
    dims = [tuple(symbols.new_dim(atoms)[0]._replace(repeat=repeat) for atoms, repeat in pieces) for pieces in shapes]
    for dim in dims[1:]:
        symbols.unify(dims[0], dim, WHY)
    first = _atoms(symbols, dims[0])
    for dim in dims[1:]:
        others = _atoms(symbols, dim)
        assert len(others) == len(first)
        assert others == first


def test_aligned_dimensions_stay_free() -> None:
    symbols = Symbols()
    a, b = symbols.new_dim(6), symbols.new_dim(6)
    symbols.unify(a, b, WHY)
    assert symbols.resolve(a) == symbols.resolve(b)
    assert symbols.reason(symbols.resolve(a)[0].variable) is None


def test_a_seam_cuts_the_other_side() -> None:
    symbols = Symbols()
    left, right, both = symbols.new_dim(4), symbols.new_dim(6), symbols.new_dim(10)
    symbols.unify(left + right, both, WHY)
    assert [p.atoms for p in symbols.resolve(both)] == [4, 6]


def test_runs_of_elements_make_the_other_side_coarser() -> None:
    symbols = Symbols()
    grouped, plain = (symbols.new_dim(4)[0]._replace(repeat=3),), symbols.new_dim(12)
    symbols.unify(plain, grouped, WHY)
    assert symbols.resolve(plain) == symbols.resolve(grouped)
    assert (symbols.resolve(plain)[0].atoms, symbols.resolve(plain)[0].repeat) == (4, 3)


def test_what_meets_itself_shifted_is_fixed() -> None:
    symbols = Symbols()
    a = symbols.new_dim(4)
    symbols.unify(a, (Piece(a[0].variable, 2, 2),), WHY)
    assert symbols.reason(symbols.resolve(a)[0].variable) == WHY


def test_a_dimension_is_cut_into_thousands_of_parts() -> None:
    symbols = Symbols()
    (channels,) = symbols.new_dim(6000)
    parts = symbols.split((channels, channels), [3] * 4000, WHY)
    assert [sum(piece.size for piece in part) for part in parts] == [3] * 4000
    assert parts[:2000] == parts[2000:]
    assert symbols.resolve((channels,)) == tuple(p for q in parts[:2000] for p in q)


def test_fixing_reaches_everything_tied_before_and_after() -> None:
    symbols = Symbols()
    a, b, c = symbols.new_dim(5), symbols.new_dim(5), symbols.new_dim(5)
    symbols.unify(a, b, WHY)
    symbols.fix(b, WHY)
    symbols.unify(c, a, WHY)
    assert all(symbols.reason(symbols.resolve(dim)[0].variable) == WHY for dim in (a, b, c))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4), st.booleans()), min_size=1, max_size=5), st.randoms())
def test_sides_mirror_each_other(parts: list[tuple[int, int, bool]], random: object) -> None:
    layout = tuple(Segment(g if free else None, c * k, k) for g, (c, k, free) in enumerate(parts))
    widths = [random.randint(1, c) for c, _, _ in parts]
    size = sum(segment.size for segment in layout)

    def kept(side: Side, of: tuple[Segment, ...], at: list[int]) -> set[int]:
        return {i for start, n in spans(of, at, side) for i in range(start, start + n)}

    backwards = tuple(
        Segment(None if s.group is None else len(parts) - 1 - s.group, s.size, s.per_channel) for s in layout[::-1]
    )
    left = kept(Side.LEFT, layout, widths)
    assert len(left) == length(layout, widths)
    assert {size - 1 - i for i in left} == kept(Side.RIGHT, backwards, widths[::-1])
