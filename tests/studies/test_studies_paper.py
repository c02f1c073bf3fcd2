"""The paper's experiments: their cells are those of the paper, and every study runs in its quick form."""

import dataclasses
import json
from contextlib import contextmanager

import pytest
import torch
import typer

import bcnet
from bcnet.searchers import Candidate, Random, search_widths
from bcnet.tasks import Measurement
from studies.paper import __main__ as paper
from studies.paper.jobs import Job, _figures, _searched, budget_of
from studies.paper.networks import (
    MOBILENETV2,
    RESNET50,
    SCALES,
    VGG19,
    WIDE_DIGITS,
    WIDE_MOBILENETV2,
)
from studies.paper.numbers import TABLE_1, TABLE_3
from studies.paper.tables import STUDIES, cells_of, jobs_at
from studies.paper.times import Speed, pieces, speed_of
from studies.paper.workshop import Workshop
from studies.shared.deadline import Deadline, TimeIsOver
from studies.shared.provenance import ROOT, append_row, provenance, rows


def jobs(name, **changes):
    return jobs_at(STUDIES[name], **({"stand_in": False, "seeds": 1} | changes))


def test_the_cells_of_a_study_differ_in_their_keys_and_share_their_columns(tmp_path):
    for name, study in STUDIES.items():
        for scale in (SCALES["paper"], SCALES["quick"]):
            cells = cells_of(study, Workshop(scale, tmp_path, {}), seeds=1)
            assert len({cell.name for cell in cells}) == len(cells)
            assert len({tuple(cell.key) for cell in cells}) == 1
            if scale.stand_in is None:
                assert len(cells) == len(study.jobs), name


def test_the_documented_work_is_that_of_the_studies():
    page = (ROOT / "docs" / "studies.md").read_text()
    for name, study in STUDIES.items():
        (line,) = (line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert line.endswith(f"| {' | '.join(map(str, study.work.values()))} |")
    for name in SCALES:
        assert f"\n| `{name}` |" in page


def test_every_budget_of_the_paper_has_its_uniform_and_random_networks():
    for line in (*TABLE_1, *TABLE_3):
        if line.method == "bcnet" and (line.network, line.budget) != (VGG19, 197_000_000):
            same = {r.method for r in (*TABLE_1, *TABLE_3) if (r.network, r.budget) == (line.network, line.budget)}
            assert {"uniform", "random", "bcnet"} <= same


def test_a_stand_in_gets_the_same_share_of_its_own_macs(tmp_path):
    paper_scale, digits = (Workshop(SCALES[name], tmp_path, {}) for name in ("paper", "digits"))
    assert budget_of(Job(RESNET50, "bcnet", 2 * 10**9), paper_scale).macs == 2 * 10**9
    assert budget_of(Job(RESNET50, "bcnet", RESNET50.macs // 2), digits).macs == 1_189_344 // 2
    widened = Job(WIDE_MOBILENETV2, "bcnet", WIDE_MOBILENETV2.macs)
    assert budget_of(widened, digits).macs == 1_189_344
    space = digits.space(SCALES["digits"].network(WIDE_MOBILENETV2))
    assert space.reference.macs > 1_700_000


def test_epochs_and_candidates_follow_the_recipe_and_the_plan():
    paper_scale = SCALES["paper"]
    assert paper_scale.training_epochs(MOBILENETV2, 2.0) == 600
    assert paper_scale.final_epochs(VGG19) == 400
    assert paper_scale.population * paper_scale.searching_generations(2.0) == 4000
    assert SCALES["quick"].training_epochs(RESNET50, 0.1) == 1


def test_published_widths_have_no_stand_in():
    left = [job for name in STUDIES for job in jobs(name, stand_in=True)]
    assert left
    assert not any(job.published for job in left)


def test_missing_images_fail_their_cells_and_say_how_to_get_them(tmp_path, capsys):
    with pytest.raises(typer.Exit):
        paper.main("figure3", only=["searcher=evolution"], results=tmp_path, runs=tmp_path, imagenet=tmp_path / "none")
    assert "ask for ILSVRC 2012 at https://image-net.org" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.csv"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"study": "table7"}, "a study is one of table1"),
        ({"study": "table1", "scale": "big"}, "a scale is one of paper"),
        ({"study": "table1", "only": ["budget"]}, "--only is COLUMN=VALUE"),
        ({"study": "table1", "only": ["network=VGGNet"]}, "network=MobileNetV2"),
    ],
)
def test_mistakes_are_named(arguments, message, tmp_path):
    with pytest.raises(typer.BadParameter, match=message):
        paper.main(**arguments, results=tmp_path, runs=tmp_path)


def test_the_best_of_the_first_candidates_is_taken(tmp_path, monkeypatch):
    workshop = Workshop(SCALES["quick"], tmp_path, {})
    job = Job(RESNET50, "search", 2 * 10**9, first=0.5)
    space = workshop.space(SCALES["quick"].network(RESNET50))
    found = search_widths(space, lambda widths: -sum(widths), budget_of(job, workshop), searcher=Random(8))
    outcome = type("FoundWidths", (), {"found": found, "widths": found.evaluations[7].widths})
    monkeypatch.setattr(Workshop, "search", lambda *_: outcome)
    half, chosen = _searched(job, workshop), _searched(dataclasses.replace(job, first=None), workshop)
    assert half.score == max(c.score for c in found.evaluations[:4])
    assert len(half.evaluations) == 4
    assert chosen.widths == found.evaluations[7].widths


@pytest.mark.studies
def test_a_distilled_network_learns_from_a_teacher(tmp_path):
    workshop = Workshop(SCALES["quick"], tmp_path, {"digits": "digits"}, threads=1)
    network = SCALES["quick"].network(RESNET50)
    widths = workshop.space(network).scaled(0.5)
    alone = workshop.train(network, widths, 0)
    taught = workshop.train(network, widths, 0, distilled=True)
    assert alone.widths == taught.widths
    pairs = zip(alone.network.parameters(), taught.network.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in pairs)
    (folder,) = (file.parent for file in tmp_path.glob("*/original.safetensors"))  # the teacher's
    assert json.loads((folder / "settings.json").read_text())["training"]["distillation"] is not None
    assert len(list(tmp_path.glob("*/final.safetensors"))) == 2
    assert workshop._siblings(network) == [folder]
    assert not workshop._siblings(dataclasses.replace(network, image_size=2 * network.image_size))
    began = (folder / "seconds.json").stat().st_mtime
    again = workshop.train(network, workshop.space(network).scaled(0.25), 0, distilled=True)
    (other,) = (file.parent for file in tmp_path.glob("*/original.safetensors") if file.parent != folder)
    assert again.widths != taught.widths
    seconds = [json.loads((run / "seconds.json").read_text())["original"] for run in (folder, other)]
    assert seconds[0] == seconds[1]  # reused, with the time it took
    assert (folder / "seconds.json").stat().st_mtime == began


@pytest.mark.studies
def test_the_training_of_the_best_random_network_goes_on(tmp_path):
    workshop = Workshop(SCALES["quick"], tmp_path, {"digits": "digits"}, threads=1)
    job = Job(RESNET50, "random", 2 * 10**9)
    figures = _figures(job, workshop)
    (run,) = (file.parent for file in tmp_path.glob("*/final.safetensors"))
    (piece,) = pieces(job, workshop, None, None)
    assert piece.run == run
    assert piece.taken > 0
    assert bcnet.Run.open(run).settings.method.continued
    assert not [*run.glob("original*"), *run.glob("uniform*")]
    assert figures["evaluations"] == 2
    again = workshop.continued(SCALES["quick"].network(RESNET50), budget_of(job, workshop), 0)
    assert round(again.test.figures["top1"], 3) == figures["top1"]


@pytest.mark.parametrize("method", ["bcnet", "bcnet-distilled"])
def test_only_what_is_called_so_is_distilled(method, tmp_path, monkeypatch):
    asked = []

    def trained(self, network, widths, seed, *, distilled=False):
        asked.append(distilled)
        return type("Trained", (), {"test": Measurement({"top1": 61.5, "top5": 90.0}, {}, 200)})

    workshop = Workshop(SCALES["quick"], tmp_path, {})
    space = workshop.space(SCALES["quick"].network(RESNET50))
    candidate = Candidate(space.full, 1.0, space.cost(space.full))
    found = type("FoundWidths", (), {"found": type("F", (), {"evaluations": (candidate,)}), "widths": space.full})
    monkeypatch.setattr(Workshop, "search", lambda *_: found)
    monkeypatch.setattr(Workshop, "train", trained)
    figures = _figures(Job(RESNET50, method, 2 * 10**9), workshop)
    assert asked == [method == "bcnet-distilled"]
    assert (figures["top1"], figures["top5"]) == (61.5, 90.0)


def speed_table(path, network, device):
    """What the benchmark of a GPU writes: two batches, of which one is near the recipe's."""
    figures = {"supernet training (channels-last bf16)": 2e3, "full-width training (channels-last bf16)": 4e3}
    figures |= {"scoring (channels-last bf16)": 8e3, "supernet step / full-width step": 2.0}
    for batch, faster in ((512, 10), (128, 1)):
        for figure, value in figures.items():
            row = {"section": "gpu training", "network": network, "configuration": f"batch {batch} of 32x32"}
            append_row(path, row | {"figure": figure, "value": faster * value, "cpu": device})
    return path


@pytest.mark.slow
def test_pieces_are_estimated_by_multiply_adds_and_throughput(tmp_path):
    table = speed_table(tmp_path / "speed.csv", "vgg19", provenance()["cpu"])
    workshop = Workshop(SCALES["paper"], tmp_path, {"cifar10": "none"})
    speed = speed_of(VGG19, "cpu", table)
    assert speed == Speed(2e3, 4e3, 8e3)
    assert speed_of(MOBILENETV2, "cpu", table) is None
    assert speed_of(VGG19, "cpu", tmp_path / "none.csv") is None
    searched = list(pieces(Job(VGG19, "bcnet", VGG19.macs // 4), workshop, None, speed))
    assert [(piece.what, piece.expected, piece.taken) for piece in searched] == [
        ("supernet", 400 * 40_000 / 2e3, None),
        ("search", 2000 * 2 * 5_000 / 8e3, None),
        ("network", pytest.approx(400 * 50_000 / 4 / 4e3), None),
    ]
    (original,) = pieces(Job(VGG19, "original"), workshop, None, speed)
    assert original.expected == 400 * 50_000 / 4e3
    (uniform,) = pieces(Job(VGG19, "uniform", VGG19.macs // 2), workshop, None, None)
    assert uniform.expected is None
    assert uniform.run == workshop.network_run(VGG19, workshop.space(VGG19).uniform(macs=0.5), 0)


@pytest.mark.slow
def test_a_study_in_pieces_ends_as_if_it_had_run_at_once(tmp_path, capsys, monkeypatch):
    done = []

    @contextmanager
    def only_two(self, name, total, unit):
        """The minutes are over whenever two stages have ended: one may be replayed."""
        if len(done) == 2:
            raise TimeIsOver
        yield lambda count, detail: None
        done.append(name)

    monkeypatch.setattr(Deadline, "stage", only_two)
    for name, minutes in (("whole", None), ("pieces", 9)):
        job = {"quick": True, "only": ["method=bcnet"], "runs": tmp_path / name, "results": tmp_path / name}
        stopped = 0
        while stopped < 20:
            done.clear()
            paper.main("table3", threads=1, minutes=minutes, **job)
            if "9 minutes are over, and 1 cells are left" not in capsys.readouterr().err:
                break
            stopped += 1
        assert (minutes is not None) == (0 < stopped < 20)
    paths = [tmp_path / name / "table3-quick.csv" for name in ("whole", "pieces")]
    assert paths[0].read_text() == paths[1].read_text()
    paper.main("table3", threads=1, device="cpu", listed=True, **job)
    shown = capsys.readouterr().out
    assert "supernet: estimated unknown, took" in shown
    assert "network: estimated unknown, took" in shown
    assert f"in {tmp_path / 'pieces' / 'quick'}" in shown


def test_a_deadline_ends_work_between_two_units(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("studies.shared.deadline.time.monotonic", lambda: now[0])
    deadline = Deadline.after(0.5)
    with deadline.stage("training", 3, "steps") as advance:
        now[0] = 129.9
        advance(1, "")
        now[0] = 130.0
        with pytest.raises(TimeIsOver):
            advance(2, "")
    with pytest.raises(TimeIsOver), deadline.stage("search", 3, "candidates"):
        raise AssertionError("no stage begins")


@pytest.mark.studies
@pytest.mark.parametrize("name", STUDIES)
def test_every_study_runs_in_its_quick_form(name, tmp_path_factory, tmp_path):
    runs = tmp_path_factory.getbasetemp() / "paper"  # as for a person, all studies share their supernets and networks
    paper.main(name, quick=True, runs=runs, results=tmp_path, threads=1)
    (file,), (picture,) = tmp_path.glob("*.csv"), tmp_path.glob("*.svg")
    found = rows(file)
    assert len(found) == len(cells_of(STUDIES[name], Workshop(SCALES["quick"], runs, {}), seeds=1, one_of_each=True))
    assert all(row["top1"] for row in found if row["final_epochs"])
    assert picture.read_text().count("<g") > 20
    before = file.read_bytes(), picture.read_bytes()
    paper.main(name, quick=True, runs=runs, results=tmp_path, threads=1)
    assert (file.read_bytes(), picture.read_bytes()) == before


@pytest.mark.studies
@pytest.mark.parametrize("network", [WIDE_MOBILENETV2, WIDE_DIGITS], ids=lambda network: network.name)
def test_a_widened_supernet_has_half_as_many_macs_again(network, tmp_path):
    pytest.importorskip("torchvision")
    workshop = Workshop(SCALES["paper"], tmp_path, {})
    space, original = workshop.space(network), workshop.space(dataclasses.replace(network, model=network.original))
    assert original.reference.macs == network.macs
    assert 1.47 < space.reference.macs / network.macs < 1.515
    assert len(space.groups) == len(original.groups)


@pytest.mark.studies
@pytest.mark.parametrize("name", ["figure5", "figure7", "figure10"])
def test_published_widths_are_shown_without_any_images(name, tmp_path):
    pytest.importorskip("torchvision")
    paper.main(name, only=["method=published"], runs=tmp_path, results=tmp_path)
    found = rows(tmp_path / f"{name}-paper.csv")
    assert len(found) == len([job for job in jobs(name) if job.published])
    for row in found:
        assert len(row["widths"].split()) == len(row["original_widths"].split())
