"""Searching beyond the network's own widths: the supernet is wider, everything else is of the original."""

import pytest
from tiny_job import Recorder, StoppedError, TinyNetwork, tiny_data, traces
from tiny_job import tiny_supernet_search as tiny_search

import bcnet
from bcnet import Budget
from bcnet.errors import RecipeError

WIDER = {"budget": Budget(macs=1.0), "space": {"widen": 1.5, "num_choices": 12}}


@pytest.fixture(scope="module")
def wider(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "wider"
    return tiny_search(folder, report=True, **WIDER)


def test_a_search_at_the_cost_of_the_original(wider):
    networks = wider.result.networks
    assert networks["original"].widths == networks["uniform"].widths == (8, 12)
    assert networks["original"].macs_ratio == 1.0
    assert networks["searched"].macs <= networks["original"].macs
    assert any(w > own for c in wider.found.evaluations for w, own in zip(c.widths, (8, 12), strict=True))
    assert [group.max_width for group in wider.result.groups] == [8, 12]
    assert wider.found.evaluations[0].cost.macs <= networks["original"].macs


def test_the_original_is_trained_as_in_any_other_run(wider, tmp_path):
    tiny_search(tmp_path, space={"num_choices": 12})
    ours, theirs = (
        bcnet.run.finished.FinishedRun.read(run, TinyNetwork).network("original") for run in (wider.run_dir, tmp_path)
    )
    for name, tensor in ours.state_dict().items():
        assert tensor.equal(theirs.state_dict()[name])


def test_what_was_found_is_loaded_exported_and_reported(wider):
    network = bcnet.load(wider.run_dir, TinyNetwork)
    assert (network.first[0].out_channels, network.second[0].out_channels) == wider.widths
    export = bcnet.export_run(wider.run_dir, TinyNetwork, format="safetensors")
    assert bcnet.load(export.path, TinyNetwork).first[0].out_channels == wider.widths[0]
    assert bcnet.run.finished.FinishedRun.read(wider.run_dir, TinyNetwork).space().full == (12, 18)
    page = bcnet.write_report(wider.run_dir).read_text()
    assert '"domain":[0,1.5]' in page


def test_a_stopped_run_goes_on_to_the_same_end(wider, tmp_path):
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, reporter=Recorder(("supernet", 5)), **WIDER)
    tiny_search(tmp_path, report=True, **WIDER)
    assert traces(tmp_path) == traces(wider.run_dir)


def test_weights_of_the_network_do_not_fit_a_wider_supernet(tmp_path):
    for changes in ({"pretrained": TinyNetwork().state_dict()}, {"start": "original"}):
        with pytest.raises(RecipeError, match=r"start from fresh weights; got widen 1\.5 with trained ones"):
            tiny_search(tmp_path / "new", **changes, **WIDER)
    with pytest.raises(RecipeError, match="'widen'"):
        tiny_search(tmp_path / "new", data=tiny_data(), space={"widen": 0.5})
    assert not (tmp_path / "new").exists()
