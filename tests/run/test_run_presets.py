"""The search as the paper has it, under one name; and what a search starts from where nobody says."""

import numpy as np
import pytest
from tiny_job import tiny_search

import bcnet
from bcnet.errors import RecipeError
from bcnet.prior import learn_prior
from bcnet.run.presets import PRESETS, with_preset
from bcnet.run.settings import Settings
from bcnet.searchers import heuristic_widths
from bcnet.space import Budget
from bcnet.space.problem import Problem
from bcnet.testing.searchers import toy_space

LARGER = {"num_choices": 8, "population": 6, "generations": 2}


def test_the_papers_search_is_what_its_settings_say(tmp_path):
    tiny_search(tmp_path, preset="paper", **LARGER)
    run = bcnet.Run.open(tmp_path)
    settings = run.settings.flat()
    assert all(settings[name] == value for name, value in PRESETS["paper"].items())
    usual = {name: Settings.model_fields[name].default for name in PRESETS["paper"]}
    assert all(usual[name] != value for name, value in PRESETS["paper"].items())  # else it would say nothing
    result = run.result
    assert len(result["search"]["rescored"]) == 1
    inside = [c for c in run.evaluations if c.cost.macs <= run.result["budget"]["macs"]]
    assert tuple(result["networks"]["searched"]["widths"]) in {
        c.widths for c in inside if c.score == max(c.score for c in inside)
    }


def test_a_search_starts_from_what_needs_no_scores_unless_it_is_the_papers(tmp_path):
    tiny_search(tmp_path / "usual", **LARGER)
    run = bcnet.Run.open(tmp_path / "usual")
    free = heuristic_widths(Problem.of(run.space, Budget(macs=0.5)))
    met = [c.widths for c in run.evaluations]
    assert met[: len(free)] == list(free.values())
    tiny_search(tmp_path / "slimmed", searcher="greedy-evolution", **LARGER | {"population": 12})
    assert set(free.values()) <= {c.widths for c in bcnet.Run.open(tmp_path / "slimmed").evaluations}
    tiny_search(tmp_path / "paper", preset="paper", **LARGER)
    assert [c.widths for c in bcnet.Run.open(tmp_path / "paper").evaluations][: len(free)] != list(free.values())


@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.9])
def test_what_needs_no_scores_is_within_the_budget_and_uses_it(ratio):
    space = toy_space(6, channels=64, choices=16)
    problem = Problem.of(space, Budget(macs=ratio))
    balanced, uniform = heuristic_widths(problem).values()
    for widths in (balanced, uniform):
        assert all(w in g.choices for w, g in zip(widths, space.groups, strict=True))
        assert problem.feasible(problem.indices([widths]))[0]
    assert space.cost(balanced).macs > 0.95 * ratio * space.reference.macs
    assert len({w / g.max_width for w, g in zip(uniform, space.groups, strict=True)}) == 1


def test_an_untightened_prior_holds_the_budget_itself():
    space, budget = toy_space(6), Budget(macs=0.4)
    rng = np.random.default_rng(0)
    widths = np.array([[rng.choice(g.choices) for g in space.groups] for _ in range(400)])
    losses = -np.log(widths).sum(axis=1) + rng.normal(0, 0.1, 400)  # the wider the better: the budget binds
    priors = [learn_prior(space, np.arange(400), widths, losses, budget, tightened=t) for t in (True, False)]
    limit = space.feasible(budget).macs

    def expected(prior):
        draws = np.random.default_rng(1)
        choices = [np.array(g.choices) for g in space.groups]
        sample = np.stack(
            [draws.choice(c, 20_000, p=r / r.sum()) for c, r in zip(choices, prior.rows, strict=True)], axis=1
        )
        return space.cost(sample).macs.mean() / limit

    tightened, as_it_is = map(expected, priors)
    assert as_it_is == pytest.approx(1.0, abs=0.02)
    assert tightened <= as_it_is + 0.01


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"preset": "papper"}, "a preset is one of paper; got 'papper'"),
        ({"preset": "paper", "tournament": "score"}, "preset='paper' has tournament 'rank'; got 'score' beside it"),
        ({"preset": "paper", "effort": "small"}, "effort='small' decides how.*got preset beside it"),
        ({"tournament": "luck"}, "'tournament' must be 'score' or 'rank'; got 'luck'"),
        ({"first_generation": "best"}, "'first_generation' must be 'balanced' or 'prior'"),
        ({"macs_from": 1.5}, "'macs_from' must be less than or equal to 1"),
    ],
)
def test_what_contradicts_a_preset_is_refused(arguments, message, tmp_path):
    with pytest.raises(RecipeError, match=message):
        tiny_search(tmp_path / "run", **arguments)
    assert not (tmp_path / "run").exists()


def test_what_agrees_with_a_preset_is_not():
    assert with_preset("paper", {"keep_records": 100, "seed": 3})["seed"] == 3


def test_what_needs_no_search_is_told_beside_what_was_found(tmp_path):
    tiny_search(tmp_path, **LARGER)
    run = bcnet.Run.open(tmp_path)
    told = run.result["search"]["heuristics"]
    scores = {c.widths: c.score for c in run.evaluations}
    free = heuristic_widths(Problem.of(run.space, Budget(macs=0.5)))
    assert list(free) == ["balanced", "Uniform, in choices"]
    assert {row["name"]: tuple(row["widths"]) for row in told} == free
    assert [row["score"] for row in told] == [scores[widths] for widths in free.values()]
    page = (tmp_path / "report.html").read_text()
    assert "Widths that need no search, by the same scores: balanced" in page
    tiny_search(tmp_path / "paper", searcher="greedy", **LARGER | {"generations": 1})
    assert isinstance(bcnet.Run.open(tmp_path / "paper").result["search"]["heuristics"], list)
