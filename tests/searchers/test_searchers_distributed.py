"""Searches whose candidates are spread over processes or threads, against the same search on one."""

import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from bcnet.errors import SearchError
from bcnet.searchers import EvaluationStore, Evolution, Greedy, ModelBased, Random, search_widths
from bcnet.space import Budget
from bcnet.testing import toy_space
from bcnet.testing.searchers import smooth_score

HALF = Budget(macs=0.5)
SEARCHERS = {
    "evolution": Evolution(population=7, generations=4, parents=3),
    "random": Random(evaluations=30),
    "greedy": Greedy(evaluations=40),
    "model": ModelBased(evaluations=24),
}


def searched(world, name, path=None):
    """The search, and how many candidates this process scored itself."""
    calls = []
    space = toy_space(5)

    def score(widths):
        calls.append(widths)
        return smooth_score(widths)

    store = EvaluationStore(path, space) if path is not None and world.is_rank_zero else None
    result = search_widths(space, score, HALF, searcher=SEARCHERS[name], seed=2, mapper=world.map, store=store)
    if store is not None:
        store.close()
    return result, calls


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHERS)
def test_the_result_does_not_depend_on_the_number_of_processes(processes, name):
    alone = search_widths(toy_space(5), smooth_score, HALF, searcher=SEARCHERS[name], seed=2)
    for size in (2, 3):
        found = processes.run(size, searched, name)
        assert [result for result, _ in found] == [alone] * size
        scored = Counter(widths for _, calls in found for widths in calls)
        assert scored == Counter(c.widths for c in alone.evaluations)  # once each, whoever did it


def test_the_lead_stores_the_same_rows_as_one_process(processes, tmp_path):
    rows = []
    for size in (1, 3):
        path = tmp_path / f"{size}.sqlite"
        processes.run(size, searched, "evolution", path)
        connection = sqlite3.connect(path)
        rows.append(connection.execute("SELECT * FROM evaluations ORDER BY position").fetchall())
        connection.close()
    assert rows[0] == rows[1]
    assert len(rows[0]) == 28


def failing(world, path):
    space = toy_space(5)
    bad = EvaluationStore(path, space).evaluations[11].widths

    def score(widths):
        if widths == bad:
            raise ZeroDivisionError("no luck")
        return smooth_score(widths)

    seen = []
    try:
        search_widths(
            space,
            score,
            HALF,
            searcher=SEARCHERS["evolution"],
            seed=2,
            mapper=world.map,
            callback=lambda candidate, done, limit: seen.append(candidate.widths),
        )
    except SearchError as error:
        return bad, str(error), len(seen), world.gather("still here")
    return None


def test_a_failed_candidate_is_named_everywhere_and_what_came_before_it_is_kept(processes, tmp_path):
    path = tmp_path / "e.sqlite"
    processes.run(1, searched, "evolution", path)
    for bad, message, seen, together in processes.run(3, failing, path):
        assert message == f"the score of widths {bad} raised ZeroDivisionError: no luck"
        assert seen == 11
        assert together == ["still here"] * 3


def test_threads_do_as_well():
    alone = search_widths(toy_space(5), smooth_score, HALF, searcher=SEARCHERS["evolution"], seed=2)
    with ThreadPoolExecutor(3) as pool:
        found = search_widths(
            toy_space(5), smooth_score, HALF, searcher=SEARCHERS["evolution"], seed=2, mapper=pool.map
        )
    assert found == alone


def test_a_mapper_that_loses_scores_is_found_out():
    with pytest.raises(SearchError, match="a mapper must give a score for every candidate; got fewer than 7"):
        search_widths(
            toy_space(5),
            smooth_score,
            HALF,
            searcher=SEARCHERS["evolution"],
            mapper=lambda function, items: map(function, items[:-1]),
        )
