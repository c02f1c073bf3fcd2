"""A run as one object: what it holds at any time, and what it makes of it."""

import pytest
import torch
from tiny_job import Recorder, StoppedError, TinyNetwork, tiny_data
from tiny_job import tiny_supernet_search as tiny_search

import bcnet
from bcnet.errors import ModelError, RunError
from bcnet.searchers import SupernetEvaluator


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    return tiny_search(tmp_path_factory.mktemp("run"))


def test_a_finished_run_holds_everything(outcome):
    run = bcnet.Run.open(outcome.run_dir)
    assert run.settings.method.population == 4
    assert run.status.state == "finished"
    assert (
        run.space.fingerprint()
        == bcnet.run.finished.FinishedRun.read(outcome.run_dir, TinyNetwork).space().fingerprint()
    )
    assert run.evaluations == outcome.found.evaluations
    assert run.networks["searched"].widths == outcome.widths
    assert run.networks["searched"].value == outcome.result.networks["searched"].test["top1"]
    assert run.result == outcome.result
    assert run.prior.budget.macs == outcome.result.budget.macs
    assert len(run.records.losses) > 0
    assert [len(counts) for counts in run.counts] == [8, 12]
    assert run.seconds["supernet"] > 0
    taken, trainings = run.search_cost
    assert taken == pytest.approx(
        sum(run.seconds.values()) - sum(run.seconds[n] for n in ("original", "Uniform", "searched"))
    )
    assert trainings == pytest.approx(taken / run.seconds["original"])
    assert "supernet" in run._repr_html_()


def test_networks_and_supernet_are_made_again(outcome):
    run = bcnet.Run.open(outcome.run_dir)
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(run.network("searched", TinyNetwork)(x), outcome.network(x), atol=1e-6)
    supernet = run.supernet(TinyNetwork)
    data = tiny_data()
    score = SupernetEvaluator(supernet, [(data.normaliser(data.train.pixels[:40]), data.train.labels[:40])])
    assert 0 <= score(outcome.widths) <= 100
    assert not supernet.training


def test_a_run_that_was_stopped_holds_what_it_has(tmp_path):
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, reporter=Recorder(("evolution", 3)))
    run = bcnet.Run.open(tmp_path)
    assert run.status.state == "failed"
    assert run.result is None
    assert not run.networks
    assert run.prior is not None
    assert 0 < len(run.evaluations) <= 3
    with pytest.raises(RunError, match="has no result yet"):
        run.network("searched", TinyNetwork)


def test_what_only_the_users_code_can_make_is_asked_for(outcome, tmp_path):
    run = bcnet.Run.open(outcome.run_dir)
    with pytest.raises(ModelError, match="which only your code can make"):
        run.supernet()
    with pytest.raises(ModelError, match="got one of another space"):
        run.supernet(lambda: TinyNetwork(10))
    with pytest.raises(RunError, match="is not a run directory"):
        bcnet.Run.open(tmp_path)
