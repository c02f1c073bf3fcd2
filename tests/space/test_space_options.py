"""What a user asks of a space is done, or refused with what could be asked."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import TRICKY
from properties import check_path_equals_built
from torch import nn

from bcnet.errors import TraceError, WidthError
from bcnet.space import Budget, WidthSpace
from bcnet.space.groups import WidthGroup
from bcnet.space.options import SpaceOptions, matches

X = torch.zeros(2, 3, 16, 16)


class Branches(nn.Module):
    """Two blocks of two convolutions each, so that patterns have something to tell apart."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.first = nn.Sequential(nn.Conv2d(8, 6, 1), nn.ReLU(), nn.Conv2d(6, 8, 1))
        self.second = nn.Sequential(nn.Conv2d(8, 6, 1), nn.ReLU(), nn.Conv2d(6, 8, 1))
        self.last = nn.Conv2d(8, 10, 1)
        self.head = nn.Linear(10, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = x + self.first(x)
        x = x + self.second(x)
        return self.head(torch.relu(self.last(x)).mean((2, 3)))


def names(**options: object) -> list[str]:
    return [group.name for group in WidthSpace.trace(Branches(), X, **options).groups]


def test_without_wishes_everything_is_searched() -> None:
    assert names() == ["stem", "first.0", "second.0", "last"]


@pytest.mark.parametrize("ignore", ["first", ["first.*"], ("first.2.weight",), ["f*"]])
def test_ignored_layers_take_their_whole_group_with_them(ignore: object) -> None:
    found = names(ignore=ignore)
    assert ("first.0" in found) == (ignore == ("first.2.weight",))
    assert "stem" not in found, "first.2 is tied to the stem"
    assert {"second.0", "last"} <= set(found)


def test_only_keeps_groups_whose_layers_all_match() -> None:
    assert names(only=["last"]) == ["last"]
    assert names(only=["second"]) == ["second.0"], "second.2 shares a group with layers outside"
    assert names(only=["*.0", "last"], ignore="first") == ["second.0", "last"]


def test_only_says_which_layer_of_a_group_is_outside() -> None:
    with pytest.raises(TraceError, match=r"stem is not among only=\('second.2',\)"):
        names(only=["second.2"])


def test_what_is_excluded_says_by_which_pattern() -> None:
    space = WidthSpace.trace(Branches(), X, ignore=["last"])
    assert any(f.name == "last.weight" and f.reason == "excluded by ignore='last'" for f in space.fixed)


def test_ties_make_one_group_of_several() -> None:
    model = Branches().double()
    space = WidthSpace.trace(model, X.double(), ties=[("first.0", "second.0")])
    assert [group.name for group in space.groups] == ["stem", "first.0", "last"]
    assert {"first.0.weight", "second.0.weight"} <= set(space.groups[1].members)
    check_path_equals_built(model, space, torch.randn(2, 3, 16, 16, dtype=torch.float64), (3, 2, 7))


def test_own_choices_and_grid_settings() -> None:
    space = WidthSpace.trace(Branches(), X, choices={"last": [2, 4]}, multiple_of=2, min_ratio=0.5, num_choices=4)
    assert [group.choices for group in space.groups] == [(4, 6, 8), (4, 6), (4, 6), (2, 4)]


def test_outputs_vary_where_asked() -> None:
    backbone = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 6, 1))
    assert [g.max_width for g in WidthSpace.trace(backbone, X).groups] == [8]
    assert [g.max_width for g in WidthSpace.trace(backbone, X, vary_outputs=True).groups] == [8, 6]


def test_a_widened_budget_reference_is_the_full_network() -> None:
    space = WidthSpace.trace(Branches(), X)
    assert space.reference == space.cost(space.full)


@pytest.mark.parametrize("kind", ["ignore", "only", "ties"])
def test_patterns_that_name_nothing_list_what_there_is(kind: str) -> None:
    patterns = [("stem", "frist")] if kind == "ties" else ["frist"]
    with pytest.raises(TraceError, match=f"{kind} must name layers of the network; got 'frist'.*first.0"):
        names(**{kind: patterns})


def test_layers_of_different_width_cannot_be_tied() -> None:
    with pytest.raises(TraceError, match=r"ties need layers of equal width; got \[6, 10\]"):
        names(ties=[("first.0", "last")])


def test_excluding_everything_is_an_error() -> None:
    with pytest.raises(TraceError, match=r"nothing|none"):
        names(ignore=["*"])


@pytest.mark.parametrize("options", [{"ignore": [3]}, {"only": [None]}, {"min_ratio": True}])
def test_wishes_of_the_wrong_type_say_so(options: dict[str, object]) -> None:
    with pytest.raises(WidthError, match=f"{next(iter(options))} must be .*got"):
        names(**options)


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("layer4", True),
        ("layer4.*.conv1", True),
        ("layer4.0.conv1.weight", True),
        ("layer4.1", False),
        ("conv1", False),
    ],
)
def test_patterns_match_parameters_layers_and_modules(pattern: str, matched: bool) -> None:
    assert matches(pattern, "layer4.0.conv1.weight") is matched


def test_what_is_held_says_what_to_do() -> None:
    space = WidthSpace.trace(TRICKY["StoredNumber"](), X)
    assert any("read numbers of channels off the tensor" in f.remedy for f in space.fixed)


@pytest.mark.parametrize("macs", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("multiple", [1, 4, 8])
def test_widths_by_formula_are_multiples_too(multiple, macs):
    """Uniform is the widest of one ratio on the grid; nothing wider fits within what balanced leaves."""
    space = WidthSpace.trace(nn.Sequential(*layers(20, 33, 64)), torch.zeros(2, 3, 8, 8), multiple_of=multiple)
    budget = Budget(macs=macs)
    limit = budget.resolve(space.reference)
    for widths in (space.uniform(budget), space.balanced(budget)):
        assert limit.admits(space.cost(widths))
        assert all(w == g.max_width or w % multiple == 0 for w, g in zip(widths, space.groups, strict=True))
    balanced = space.balanced(budget)
    for number, (group, width) in enumerate(zip(space.groups, balanced, strict=True)):
        if width < group.max_width:
            wider = [*balanced]
            wider[number] = group.wider(width)
            assert wider[number] > width
            assert not limit.admits(space.cost(tuple(wider)))


def layers(*channels):
    """A chain of convolutions with a head of ten classes."""
    before = 3
    for width in channels:
        yield from (nn.Conv2d(before, width, 3, padding=1), nn.ReLU())
        before = width
    yield from (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


@pytest.mark.parametrize(
    ("min_width", "least"),
    [(12, (12, 12, 12)), ({"2": 30}, (1, 30, 1)), ({"*": 8, "4*": 99}, (8, 8, 64)), ({}, (1,) * 3)],
)
def test_no_width_is_below_the_smallest_that_was_asked_for(min_width, least):
    space = WidthSpace.trace(nn.Sequential(*layers(20, 33, 64)), torch.zeros(2, 3, 8, 8), min_width=min_width)
    assert tuple(g.least for g in space.groups) == least
    assert all(g.choices[0] >= low for g, low in zip(space.groups, least, strict=True))
    for budget in (Budget(macs=0.5), Budget(macs=space.cost(space.floor([0] * 3)).macs)):
        found = [space.uniform(budget), space.balanced(budget)]
        assert all(w >= low for widths in found for w, low in zip(widths, least, strict=True))


@pytest.mark.parametrize(
    ("min_width", "error", "message"),
    [
        ({"nowhere": 4}, TraceError, "min_width must name layers"),
        ({"2": 0}, WidthError, "min_width must be a positive int"),
        (2.5, WidthError, "min_width must be a positive int"),
    ],
)
def test_smallest_widths_that_mean_nothing_are_refused(min_width, error, message):
    with pytest.raises(error, match=message):
        WidthSpace.trace(nn.Sequential(*layers(20, 33, 64)), torch.zeros(2, 3, 8, 8), min_width=min_width)


@pytest.mark.parametrize(
    ("width", "unit", "expected"),
    [(8, 1, 1), (15, 1, 1), (16, 1, 4), (63, 1, 4), (64, 1, 8), (512, 1, 8), (96, 32, 32), (48, 3, 12), (24, 3, 6)],
)
def test_fast_multiples_by_width(width, unit, expected):
    group = SpaceOptions().with_choices(WidthGroup("g", width, unit, (width,)))
    assert group.step == expected
    assert all(choice % expected == 0 for choice in group.choices[:-1])
    free = SpaceOptions(multiple_of=1).with_choices(group)
    assert free.step == unit
    assert set(group.choices) <= set(free.choices) | {w - w % expected for w in free.choices}


@cache
def in_multiples_and_free():
    model, example = nn.Sequential(*layers(16, 32, 64, 128)), torch.zeros(2, 3, 8, 8)
    return WidthSpace.trace(model, example), WidthSpace.trace(model, example, multiple_of=1)


@settings(max_examples=25)
@given(st.floats(0.1, 0.95))
def test_uniform_in_multiples_spends_what_rounding_leaves_over(macs):
    space, free = in_multiples_and_free()
    widths = space.uniform(macs=macs)
    cost, limit = space.cost(widths).macs, int(macs * space.reference.macs)
    assert cost <= limit
    exact = np.array(free.uniform(macs=macs))
    for group, width, real in zip(space.groups, widths, exact, strict=True):
        assert width % group.step == 0 or width == group.max_width
        assert abs(width - real) < 2 * group.step, "one ratio, to a step"
    left = [space.groups[g].wider(w) for g, w in enumerate(widths)]
    affordable = [
        g
        for g, wider in enumerate(left)
        if widths[g] < exact[g] and space.cost((*widths[:g], wider, *widths[g + 1 :])).macs <= limit
    ]
    assert not affordable, "no width that is below the ratio has a step left that the budget allows"
