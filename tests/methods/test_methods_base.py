"""Methods as values: what they are read from, what they store, and one of the user's own."""

import pytest
from tiny_job import NETWORKS, Recorder, TinyNetwork, supernet_method, tiny_data, tiny_search

import bcnet
from bcnet.cli.options import EFFORTS as EFFORT_NAMES
from bcnet.cli.options import METHOD_NAMES, STARTS
from bcnet.errors import RecipeError, RunError, WidthError
from bcnet.files.tensors import read_tensors
from bcnet.methods import METHODS, parse_method
from bcnet.methods.base import CustomMethod, Start, method_from_document
from bcnet.methods.trainings import EFFORTS
from bcnet.report.write import write_report
from bcnet.run.directory import RunDirectory, read_settings

VALUES = [
    bcnet.Trainings(effort="small", networks=9),
    bcnet.BCNet(epochs=8, training={"lr": 0.1}),
    bcnet.BCNet.paper(population=5),
    bcnet.AutoSlim(strategy="unilateral"),
    bcnet.Random(7, continued=True),
    bcnet.Uniform(),
    bcnet.Balanced(exponent=0.5),
    bcnet.Pruned("taylor"),
    bcnet.Given((4, 6)),
    bcnet.Given({"a": 3}),
    bcnet.Given("published:0.5x"),
]


class Half(bcnet.Method):
    """Every group at a share of its width."""

    name = "half"
    origin = "Every layer is halved."
    share: float = 0.5

    def widths(self, context):
        groups = context.workload.space.groups
        return tuple(min(g.choices, key=lambda c: (abs(c - self.share * g.max_width), c)) for g in groups)


class Scored(Half):
    """The same with the stages of a search beside it."""

    name = "scored"

    def stages(self):
        return (Count(),)


class Count(bcnet.Stage):
    name, file = "count", "count.json"

    def run(self, context):
        context.directory.write(self.file, {"groups": len(context.workload.space.groups)})

    def load(self, context):
        return context.directory.read(self.file)["groups"]


@pytest.mark.parametrize("method", VALUES, ids=lambda m: f"{m.name}-{len(str(m))}")
def test_a_method_survives_a_document(method):
    document = method.model_dump(mode="json")
    assert document["name"] == method.name
    assert method_from_document(document) == method


def test_every_method_of_the_library_is_tried_here_and_completed_by_a_shell():
    assert {type(method) for method in VALUES} == set(METHODS.values())
    assert tuple(METHODS) == METHOD_NAMES
    assert tuple(EFFORTS) == EFFORT_NAMES
    assert Start.__args__ == STARTS


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("uniform", bcnet.Uniform()),
        ("bcnet:epochs=8,generations=20", bcnet.BCNet(epochs=8, generations=20)),
        ("bcnet:training.lr=0.1,training.epochs=3", bcnet.BCNet(training={"lr": 0.1, "epochs": 3})),
        ("given:values=[4,6]", bcnet.Given((4, 6))),
        ("given:values=24", bcnet.Given((24,))),
        ("given:values=published:0.5x", bcnet.Given("published:0.5x")),
        ("pruned:criterion=taylor", bcnet.Pruned("taylor")),
        ("test_methods_base:Half", None),
        (f"{__name__}.x:Half", None),
    ],
)
def test_a_method_is_read_from_text(text, method):
    if method is not None:
        assert parse_method(text) == method


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bcnt", r"a method must be one of trainings, bcnet, .*got 'bcnt' \(did you mean 'bcnet'\?\)"),
        ("bcnet:speed=3", "BCNet: unknown key 'speed'"),
        ("bcnet:epochs", r"key=value with commas between \(it has .*\); got 'epochs'"),
        ("bcnet:epochs=many", "'epochs' must be .*; got 'many'"),
        ("trainings:population=4", "Trainings: unknown key 'population'"),
        ("given", r"--method given needs values: given:values=\.\.\.; got 'given'"),
        ("given:values=3.5", "a list of widths, a mapping of groups to widths, or text; got 3.5"),
        ("pruned:taylor", r"key=value .*\(it has criterion\); got 'taylor'"),
        ("pruned:method=taylor", "Pruned: unknown key 'method'"),
        ("collections.abc:Mapping", "a method must be a subclass of bcnet.Method"),
    ],
)
def test_a_text_that_names_no_method_is_refused(text, message):
    with pytest.raises(RecipeError, match=message):
        parse_method(text)


def test_a_combination_that_makes_no_sense_cannot_be_written():
    for wrong in (
        lambda: bcnet.Trainings(population=4),
        lambda: bcnet.BCNet(effort="small"),
        lambda: bcnet.Uniform(networks=3),
        lambda: bcnet.AutoSlim(searcher="evolution"),
        lambda: bcnet.AutoSlim(strategy="complementary"),
        lambda: bcnet.BCNet(score="taste"),
        lambda: bcnet.Trainings(searcher="evolution"),
    ):
        with pytest.raises(RecipeError, match=r"got|unknown key"):
            wrong()


def test_evolution_is_taken_apart():
    assert bcnet.BCNet(searcher=bcnet.Evolution(8, 5, 4)) == bcnet.BCNet(population=8, generations=5, parents=4)


def test_a_method_of_your_own_is_run_stored_resumed_and_reported(tmp_path):
    budget = bcnet.Budget(macs=0.9)
    outcome = tiny_search(tmp_path, method=Half(share=0.75), budget=budget, report=True)
    assert outcome.widths == Half(share=0.75).widths(_context(outcome.space))
    assert outcome.result.method == "half"
    assert "Every layer is halved." in (tmp_path / "result.json").read_text()
    assert (tmp_path / "report.html").exists()
    stored = read_settings(tmp_path)
    assert isinstance(stored.method, CustomMethod)
    assert stored.method.model_dump() == {"name": "half", "share": 0.75}
    recorder = Recorder()
    assert tiny_search(tmp_path, method=Half(share=0.75), budget=budget, reporter=recorder).widths == outcome.widths
    assert recorder.stages == []
    with pytest.raises(RunError, match=r"method.share is 0.75 there and 0.5 here"):
        tiny_search(tmp_path, method=Half(), budget=budget)
    with pytest.raises(RunError, match=r"method.name"):
        tiny_search(tmp_path, budget=budget)


def _context(space):
    class Context:
        class workload:  # noqa: N801
            pass

    Context.workload.space = space
    return Context


def test_a_method_of_your_own_may_have_stages(tmp_path):
    recorder = Recorder()
    tiny_search(tmp_path, method=Scored(), reporter=recorder)
    assert (tmp_path / "count.json").exists()
    assert recorder.stages == ["original", "Uniform", "searched"]


def test_widths_over_the_budget_are_refused(tmp_path):
    with pytest.raises(RunError, match=r"a method must give widths within the budget.*half gave"):
        tiny_search(tmp_path, method=Half(share=1.0))

    class Wrong(Half):
        def widths(self, context):
            return (1,)

    with pytest.raises(WidthError):
        tiny_search(tmp_path / "wrong", method=Wrong())


@pytest.mark.parametrize("wrong", [Half, 3, CustomMethod(kind="x")])
def test_a_method_is_a_value(tmp_path, wrong):
    with pytest.raises(RecipeError, match=r"a method must be a value of bcnet.Trainings"):
        tiny_search(tmp_path, method=wrong)


@pytest.mark.parametrize("method", [bcnet.Uniform(), bcnet.Balanced(), bcnet.Random(3), supernet_method()])
def test_every_method_ends_with_the_same_original(tmp_path, method):
    weights = []
    for name, chosen in (("default", bcnet.Trainings(effort="small")), ("other", method)):
        tiny_search(tmp_path / name, method=chosen, start="original")
        directory = RunDirectory(tmp_path / name, read_settings(tmp_path / name))
        weights.append(read_tensors(tmp_path / name / f"{NETWORKS[0]}.safetensors", directory.identity("original"))[0])
    assert all(weights[0][key].equal(weights[1][key]) for key in weights[0])


@pytest.mark.parametrize("method", [bcnet.Trainings(effort="small"), supernet_method()])
def test_the_network_is_traced_once(tmp_path, monkeypatch, method):
    traced = []
    own = bcnet.WidthSpace.trace

    def counted(*args, **kwargs):
        traced.append(args)
        return own(*args, **kwargs)

    monkeypatch.setattr(bcnet.WidthSpace, "trace", counted)
    tiny_search(tmp_path, method=method)
    assert len(traced) == 1


def test_until_goes_on_step_by_step(tmp_path):
    method = supernet_method()
    prior = tiny_search(tmp_path, method=method, until="prior")
    assert (prior.widths, prior.network, prior.result) == (None, None, None)
    assert prior.supernet is not None
    assert prior.prior.effective_widths >= 1
    found = tiny_search(tmp_path, method=method, until="widths")
    assert found.network is None
    assert len(found.found.evaluations) == 8
    recorder = Recorder()
    network = tiny_search(tmp_path, method=method, until="network", reporter=recorder)
    assert recorder.stages[-1] == "searched"
    assert network.widths == found.widths
    assert 0 <= network.test.figures["top1"] <= 100
    whole = tiny_search(tmp_path, method=method)
    assert whole.widths == found.widths
    assert str(whole).count("\n") == 5
    assert whole.reliability.verdict
    with pytest.raises(RecipeError, match=r"until='prior' needs a method with a supernet"):
        tiny_search(tmp_path / "other", until="prior")
    with pytest.raises(RecipeError, match="until must be one of prior, widths, network; got 'end'"):
        tiny_search(tmp_path / "other", until="end")


def test_another_budget_reuses_the_original(tmp_path):
    tiny_search(tmp_path / "half")
    recorder = Recorder()
    tiny_search(tmp_path / "less", budget=bcnet.Budget(macs=0.4), reuse=tmp_path / "half", reporter=recorder)
    assert "original" not in recorder.stages
    assert "trials" in recorder.stages


@pytest.mark.parametrize(("first", "then"), [("macs", "memory"), ("memory", "macs"), ("memory", "size")])
def test_an_original_of_a_run_under_another_measure_has_the_costs_of_this_one(tmp_path, first, then):
    tiny_search(tmp_path / "a", method="uniform", budget=bcnet.Budget(**{first: 0.5}))
    budget = bcnet.Budget(**{then: 0.5})
    tiny_search(tmp_path / "b", method="uniform", budget=budget, reuse=tmp_path / "a")
    run = bcnet.Run.open(tmp_path / "b")
    told = {then} - {"macs"}
    assert all(set(network.cost.others) == told for network in run.networks.values())
    assert run.networks["original"].cost == run.space.reference
    assert run.result.networks["original"].others == run.space.reference.others
    write_report(tmp_path / "b")


def test_another_budget_searches_on_the_same_supernet(tmp_path):
    method = supernet_method()
    tiny_search(tmp_path / "half", method=method)
    recorder = Recorder()
    tiny_search(
        tmp_path / "less", method=method, budget=bcnet.Budget(macs=0.4), reuse=[tmp_path / "half"], reporter=recorder
    )
    assert recorder.stages == ["prior", "evolution", "reliability", "Uniform", "searched"]


def test_given_widths_are_their_own_budget(tmp_path):
    outcome = bcnet.search(
        TinyNetwork,
        tiny_data(),
        run_dir=tmp_path,
        method=bcnet.Given((4, 6)),
        epochs=1,
        options={"threads": 1},
        progress=False,
    )
    assert outcome.widths == (4, 6)
    assert outcome.result.budget.macs == outcome.space.cost((4, 6)).macs
    from_run = tiny_search(tmp_path / "again", budget=None, method=bcnet.Given(tmp_path), space={"num_choices": 20})
    assert from_run.widths == (4, 6)
