"""A stage and a searcher from outside the package: run, stored, resumed, refused where they changed, reused."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from tiny_job import Recorder, StoppedError, TinyNetwork, supernet_method, tiny_data
from tiny_job import tiny_supernet_search as tiny_search

import bcnet
from bcnet import Given
from bcnet.errors import ModelError, RecipeError, RunError
from bcnet.files.documents import read_document
from bcnet.run.status import read_status
from bcnet.stages.base import Context, in_order
from bcnet.stages.plan import stages_of


class Checked(bcnet.Stage):
    """The share of validation images that the searched network gets right."""

    name: ClassVar[str] = "checked"
    file: ClassVar[str] = "checked.json"
    needs: ClassVar[tuple[str, ...]] = ("searched",)
    runs = 0

    def reads(self, settings):
        return ("method.score",)

    def run(self, context):
        type(self).runs += 1
        network = context.output("searched").network
        with context.work(self.name, len(context.workload.validation), "batches") as advance, torch.no_grad():
            right = []
            for done, (x, y) in enumerate(context.workload.validation, 1):
                right += (network(x).argmax(dim=1) == y).tolist()
                advance(done, f"{np.mean(right):.2f} right")
        context.directory.write(self.file, {"right": float(np.mean(right)), "images": len(right)})

    def load(self, context):
        return context.directory.read(self.file)["right"]


class First(Checked):
    """Comes before the prior, and is not told of."""

    name: ClassVar[str] = "first"
    file: ClassVar[str] = "first.json"
    needs: ClassVar[tuple[str, ...]] = ("supernet",)

    def plan(self, settings, workload):
        return None

    def run(self, context):
        assert not context.directory.has("original.safetensors")
        context.directory.write(self.file, {"right": 1.0})


def test_a_stage_of_ones_own_is_run_once_and_told_of(tmp_path):
    Checked.runs = 0
    recorder = Recorder()
    tiny_search(tmp_path, stages=[Checked()], reporter=recorder)
    assert recorder.stages[-1] == "checked"
    found = read_document(tmp_path / "checked.json")
    assert 0 <= found["right"] <= 1
    assert found["images"] > 0
    assert read_status(tmp_path).stages[-1].record.name == "checked"
    assert read_status(tmp_path).stages[-1].state == "finished"
    assert "checked" in read_document(tmp_path / "result.json")["seconds"]
    tiny_search(tmp_path, stages=[Checked()])
    assert Checked.runs == 1


def test_a_run_with_a_stage_goes_on_with_it_and_is_refused_without(tmp_path):
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, stages=[Checked()], reporter=Recorder(("original", 3)))
    with pytest.raises(RunError, match=r"of another configuration: own_stages is \['checked'\] there and \[\] here"):
        tiny_search(tmp_path)
    tiny_search(tmp_path, stages=[Checked()])
    assert (tmp_path / "checked.json").exists()


def test_a_stage_is_taken_over_where_what_it_reads_is_the_same(tmp_path):
    tiny_search(tmp_path / "one", stages=[Checked()])
    Checked.runs = 0
    tiny_search(tmp_path / "two", stages=[Checked()], reuse=[tmp_path / "one"], method=supernet_method(generations=3))
    assert Checked.runs == 0, "it says that it depends on the score alone"
    tiny_search(tmp_path / "three", stages=[Checked()], reuse=[tmp_path / "one"], method=supernet_method(score="loss"))
    assert Checked.runs == 1


def test_stages_come_after_what_they_need(tmp_path):
    order = in_order([Checked(), First(), *stages_of(settings := tiny_settings(tmp_path))])
    names = [stage.name for stage in order]
    assert names.index("first") > names.index("supernet")
    assert names.index("checked") > names.index("searched")
    assert [n for n in names if n not in ("first", "checked")] == [stage.name for stage in stages_of(settings)]


def tiny_settings(folder):
    from bcnet.api import resolve

    asked = {"budget": bcnet.Budget(macs=0.5), "run_dir": folder / "none", "method": supernet_method()}
    return resolve(TinyNetwork, tiny_data(), **asked, options={"threads": 1})[1]


def test_what_is_no_stage_is_refused(tmp_path):
    class Uniform(Checked):
        name = "Uniform"

    class Circle(Checked):
        name, needs = "circle", ("checked",)

    class Back(Checked):
        name, needs = "checked", ("circle",)

    with pytest.raises(RecipeError, match=r"subclasses of bcnet.Stage; got <class .*: give Mine\(\), not Mine"):
        tiny_search(tmp_path / "run", stages=[Checked])
    with pytest.raises(RunError, match="got two of the name 'Uniform': rename yours"):
        tiny_search(tmp_path / "run", stages=[Uniform()])
    with pytest.raises(RunError, match="need each other in a circle: circle, checked"):
        tiny_search(tmp_path / "run", stages=[Circle(), Back()])
    assert not (tmp_path / "run").exists()


@dataclass(frozen=True)
class Blind(bcnet.Searcher):
    """Random widths near the budget."""

    evaluations: int = 6
    batch: int = 3

    @property
    def limit(self):
        return self.evaluations

    def proposals(self, problem):
        rng = np.random.default_rng(problem.seed)
        known = set()
        while batch := problem.fill(self.batch, known, rng):
            known.update(batch)
            yield batch


@dataclass(frozen=True)
class Likely(bcnet.Searcher):
    """The most probable widths of the prior that the run learns."""

    prior: bcnet.prior.Prior | None = None

    @property
    def limit(self):
        return 4

    def proposals(self, problem):
        yield list(self.prior.sample(4, problem.budget, np.random.default_rng(0)).widths)


def test_a_searcher_of_ones_own_is_the_same_object_everywhere(tmp_path):
    outcome = tiny_search(tmp_path, method=supernet_method(searcher=Blind(5)), report=True)
    assert len(outcome.found.evaluations) == 5
    stored = read_document(tmp_path / "settings.json")["method"]["searcher"]
    assert stored == 'test_stages_own.Blind {"batch": 3, "evaluations": 5}'
    assert "prior" not in [stage.record.name for stage in read_status(tmp_path).stages]
    assert (tmp_path / "report.html").exists()


def test_one_with_an_open_prior_gets_the_runs(tmp_path):
    outcome = tiny_search(tmp_path, method=supernet_method(searcher=Likely()))
    assert (tmp_path / "prior.json").exists()
    assert 0 < len(outcome.found.evaluations) <= 4


def test_a_searcher_resumes_and_is_refused_where_it_changed(tmp_path):
    with pytest.raises(StoppedError):
        tiny_search(tmp_path / "killed", reporter=Recorder(("evolution", 4)), method=supernet_method(searcher=Blind()))
    with pytest.raises(
        RunError, match=r"configuration: method.searcher is 'test_stages_own.Blind .*\"evaluations\": 6"
    ):
        tiny_search(tmp_path / "killed", method=supernet_method(searcher=Blind(7)))
    with pytest.raises(RunError, match=r"another configuration: method\.searcher is"):
        tiny_search(tmp_path / "killed")
    resumed = tiny_search(tmp_path / "killed", method=supernet_method(searcher=Blind()))
    assert resumed.found == tiny_search(tmp_path / "whole", method=supernet_method(searcher=Blind())).found


def test_another_run_reuses_the_supernet_for_one(tmp_path):
    tiny_search(tmp_path / "run", method=supernet_method(searcher=Blind()))
    recorder = Recorder()
    asked = {"method": supernet_method(searcher=Blind(4)), "reuse": tmp_path / "run", "reporter": recorder}
    again = tiny_search(tmp_path / "new", **asked)
    assert len(again.found.evaluations) == 4
    assert "supernet" not in recorder.stages


@pytest.mark.parametrize("wrong", [Blind, 3, object(), "x"])
def test_what_is_no_searcher_is_refused(tmp_path, wrong):
    with pytest.raises(RecipeError, match=r"'searcher' must be one of evolution, .*, or a bcnet.Searcher of your own"):
        tiny_search(tmp_path / "run", method=supernet_method(searcher=wrong))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_what_the_stages_of_a_run_are_given_can_be_had_again(tmp_path):
    asked = {"method": Given([4] * 6), "space": {"num_choices": 4}, "seed": 3, "training": {"epochs": 1}}
    bcnet.search("resnet_digits", "digits", run_dir=tmp_path / "run", options={"threads": 1}, progress=False, **asked)
    context = Context.of_run(tmp_path / "run", seed=4)
    assert (context.settings.seed, context.settings.space.num_choices) == (4, 4)
    assert len(context.workload.space.groups) == 6
    assert context.directory.path == tmp_path / "run"
    context = Context.of_run(tmp_path / "run")
    context = dataclasses.replace(context, stages=stages_of(context.settings))
    assert context.output("searched").widths == (4,) * 6
    changed = context.settings.model_copy(update={"method": Given((8,) * 6)})
    with pytest.raises(RunError, match=r"holds widths \[4, 4"):
        dataclasses.replace(context, settings=changed).output("searched")  # not taken for its own


def test_what_only_the_users_code_has_cannot_be_had_again(tmp_path):
    tiny_search(tmp_path / "run")
    with pytest.raises(ModelError, match=r"a model must be a name of ours.*; got 'TinyNetwork from a factory'"):
        Context.of_run(tmp_path / "run")
