"""What the parts of a report say, against the run itself."""

import dataclasses
import itertools
import math
import re

import altair as alt
import numpy as np
import pytest
from charts import data_of
from tiny_job import tiny_search

import bcnet
from bcnet.measurement import share_interval
from bcnet.report import layers, look
from bcnet.report.candidates import profile_rows
from bcnet.report.evidence import Curve, expected_macs, read_evidence
from bcnet.report.generations import generation_rows, worth_rows
from bcnet.report.html import MINUS, count, table
from bcnet.report.images import classes_section
from bcnet.report.layers import ratio_rows
from bcnet.report.losses import section as losses_section
from bcnet.report.provenance import machine_facts
from bcnet.report.supernet import cells, runs_of
from bcnet.run.score import chance, gain_text, trust_text
from bcnet.stages.scores import Scorer


@pytest.fixture(scope="module")
def evidence(finished):
    return read_evidence(finished.run_dir)


def test_evidence_is_what_the_run_found(finished, evidence):
    assert evidence.evaluations == finished.found.evaluations
    assert evidence.front == finished.found.front
    assert evidence.budget == finished.found.budget
    assert evidence.space.reference == finished.found.reference
    networks = finished.result.networks
    for key, network in evidence.networks.items():
        assert network.widths == networks[key].widths
        assert network.value == pytest.approx(networks[key].test["top1"])
        assert tuple(network.cost) == (networks[key].macs, networks[key].params)
    assert evidence.uniform == networks["uniform"].widths
    assert evidence.best == finished.widths


def test_classes_are_shown_by_what_is_lost(finished, evidence):
    networks = {
        key: dataclasses.replace(network, by_class={0: (60, 90.0), 1: (30, 80.0 - place), 2: (10, 50.0 + place)})
        for place, (key, network) in enumerate(evidence.networks.items())
    }
    named = dataclasses.replace(evidence, networks=networks, class_names=("cat", "<b>", "cow"))
    text = re.sub(r"\s*<[^>]+>\s*", "|", classes_section(named).body)
    assert "The largest class, cat, has 60 % of the test images" in text
    rows = re.findall(r"\|+(&lt;b&gt;|cat|cow)\|+(\d+)\|+([\d.]+)\|+([\d.]+)\|+([\d.]+)\|+(\S+?)\|", text)
    assert rows == [
        ("&lt;b&gt;", "30", "80.00", "79.00", "78.00", f"{MINUS}2.00"),
        ("cat", "60", "90.00", "90.00", "90.00", "+0.00"),
        ("cow", "10", "50.00", "51.00", "52.00", "+2.00"),
    ]
    many = {key: dataclasses.replace(n, by_class=dict.fromkeys(range(23), (1, 9.0))) for key, n in networks.items()}
    assert "The other 3 classes" in classes_section(dataclasses.replace(evidence, networks=many)).body
    none = {key: dataclasses.replace(network, by_class={}) for key, network in networks.items()}
    assert classes_section(dataclasses.replace(evidence, networks=none)) is None
    assert classes_section(dataclasses.replace(evidence, networks={})) is None


@pytest.mark.parametrize(
    ("searched", "uniform", "higher", "words"),
    [
        (
            80.0,
            70.0,
            True,
            "Searched 80.00 %, Uniform 70.00 % test top-1: 10.00 points better, a clear difference on 1,000",
        ),
        (70.0, 80.0, True, "10.00 points worse, a clear difference"),
        (70.0, 80.0, False, "10.00 points better, a clear difference"),
        (80.0, 79.0, True, "1.00 points better, no clear difference"),
        (80.0, 80.0, True, "test top-1: the same on 1,000 inputs."),
    ],
)
def test_the_closing_line_says_what_was_gained(finished, searched, uniform, higher, words):
    result = finished.result
    networks = {
        name: result.networks[name].model_copy(update={"test": {"top1": value}, "test_images": 1000})
        for name, value in (("searched", searched), ("uniform", uniform))
    }
    headline = dataclasses.replace(result.headline, higher=higher)
    assert headline.share, "Wilson's interval"
    task = result.task.model_copy(update={"headline": headline})
    told = gain_text(result.model_copy(update={"task": task, "networks": networks}))
    assert words in told
    assert told.endswith(" Take --method uniform --reuse RUN.") == ("worse, a clear" in words)


def test_a_difference_is_clear_beyond_newcombes_interval():
    # Newcombe (1998), table II, method 10: 56/70 - 48/80 = 0.2 has 0.0524 to 0.3339.
    one, two = ((100 * k / n, *share_interval(100 * k / n, n)) for k, n in ((56, 70), (48, 80)))
    low = 20 - math.hypot(one[0] - one[1], two[2] - two[0])
    assert low == pytest.approx(5.24, abs=0.01)
    assert chance(one, two) == chance(two, one) == pytest.approx(20 - low)


@pytest.mark.parametrize("verdict", ["much", "little", "nothing"])
@pytest.mark.parametrize("of_networks", [True, False])
def test_trust_is_a_word_and_what_to_do(verdict, of_networks):
    text = trust_text(verdict, of_networks=of_networks)
    word = {"much": "fair", "little": "low", "nothing": "none"}[verdict]
    assert text.startswith(f"Trust in the search: {word}. ")
    assert "--" in text


def test_layers_add_up_to_the_networks(finished, evidence):
    rows = layers.layer_rows(evidence.space, finished.widths)
    whole, networks = layers.total(rows), finished.result.networks
    for cost in ("macs", "params"):
        assert getattr(whole, cost) == tuple(getattr(networks[name], cost) for name in ("original", "searched"))
    assert [(row.name, row.group, row.width) for row in rows if row.width] == [
        ("first.0", "first.0", (8, finished.widths[0])),
        ("second.0", "second.0", (12, finished.widths[1])),
        ("head", "", (3, 3)),
    ]


def test_kept_ratios_are_those_of_the_widths(finished, evidence):
    rows = ratio_rows(evidence.space, finished.widths, evidence.uniform)
    assert [row["ratio"] for row in rows] == [finished.widths[0] / 8, finished.widths[1] / 12]
    assert [row["uniform"] for row in rows] == [evidence.uniform[0] / 8, evidence.uniform[1] / 12]
    assert [row["width"] for row in profile_rows(evidence.space, finished.widths, evidence.uniform)] == [
        row["width"] for row in rows
    ]


def test_generations_have_the_search_s_own_hypervolumes(finished, evidence):
    rows = generation_rows(evidence)
    assert [row["hypervolume"] for row in rows] == pytest.approx(list(finished.found.hypervolumes))
    assert rows[-1]["best"] == finished.found.best.score
    for row, start in zip(rows, range(0, len(evidence.evaluations), 4), strict=True):
        assert row["median"] == np.median([c.score for c in evidence.evaluations[start : start + 4]])
    assert all(row["low"] <= row["lower"] <= row["median"] <= row["upper"] <= row["high"] for row in rows)


def lawful(widths):
    return 2.0 * float(np.log2(widths[0])) + 0.5 * float(np.log2(widths[1]))


@pytest.fixture(scope="module")
def by_a_law(tmp_path_factory):
    """Of a search by a model, whose scores are a law of the widths."""
    folder = tmp_path_factory.mktemp("reports") / "law"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("bcnet.stages.trials.trial_scorer", lambda context: Scorer(lawful))
        method = bcnet.Trainings(effort="large")
        tiny_search(folder, training={"epochs": 1}, method=method, space={"num_choices": 8}, report=True)
    return read_evidence(folder)


def test_width_is_worth_what_the_scores_gain_by_it(by_a_law):
    rows = worth_rows(by_a_law)
    assert [row["group"] for row in rows] == [group.name for group in by_a_law.space.groups]
    assert [row["gain"] for row in rows] == pytest.approx([2.0, 0.5], abs=0.05)
    assert all(row["low"] <= row["gain"] <= row["high"] for row in rows)


def test_a_search_by_a_model_progresses_in_its_batches(by_a_law):
    rows = generation_rows(by_a_law)
    assert len(rows) == -(-len(by_a_law.evaluations) // 8)
    assert rows[-1]["best"] == max(c.score for c in by_a_law.evaluations)
    page = (by_a_law.path / "report.html").read_text()
    assert "candidates in batches of 8. The first, with the balanced and the Uniform widths in it: best " in page
    assert "What width is worth" in page
    assert "worth" in data_of(page)["charts"]
    assert "Hypervolume of the front" not in page


def test_the_configuration_tells_of_what_was_trained_alone(finished, by_a_law):
    epochs = {folder: configuration_facts(folder) for folder in (finished.run_dir, by_a_law.path)}
    assert epochs[finished.run_dir] == ("complementary", "networks 2, supernet 2")
    assert epochs[by_a_law.path] == (None, "networks 1, candidates 1")


def configuration_facts(folder):
    facts = machine_facts(read_evidence(folder))
    return facts.get("strategy"), facts["epochs"]


def test_the_report_of_an_evolution_has_no_model(evidence):
    page = (evidence.path / "report.html").read_text()
    assert "Hypervolume of the front" in page
    assert "What width is worth" not in page


def test_the_prior_s_cells_cover_every_row(evidence):
    rows = cells(evidence.prior)
    for group in evidence.space.groups:
        mine = [cell for cell in rows if cell["group"] == group.name]
        assert sum(cell["chance"] for cell in mine) == pytest.approx(1, abs=1e-4)
        assert [cell["start"] for cell in mine] == [0, *(cell["end"] for cell in mine[:-1])]
        assert mine[-1]["end"] == 1


def test_expected_macs_are_the_mean_over_all_candidates(evidence):
    prior, space = evidence.prior, evidence.space
    mean = sum(
        float(prior.rows[0][i] * prior.rows[1][j]) * space.cost((a, b)).macs
        for (i, a), (j, b) in itertools.product(*(enumerate(group.choices) for group in space.groups))
    )
    assert expected_macs(prior) == pytest.approx(mean)


@pytest.mark.parametrize("steps", [1, 7, 200, 1001])
def test_a_thinned_curve_keeps_mean_ends_and_extremes(steps):
    losses = np.random.default_rng(0).random(2 * steps) + np.linspace(2, 1, 2 * steps)
    curve = Curve.of(np.repeat(np.arange(steps), 2), losses, epochs=5, complete=True)
    assert len(curve.mean) == min(steps, 200)
    assert curve.epoch[-1] == 5
    assert (curve.low.min(), curve.high.max()) == (losses.min(), losses.max())
    sizes = np.diff([0, *np.round(curve.epoch / 5 * steps)])
    assert np.average(curve.mean, weights=sizes) == pytest.approx(losses.mean())


def test_a_curve_leaves_out_steps_without_a_record():
    curve = Curve.of([0, 3], [2.0, 1.0], epochs=1, complete=True)
    assert curve.epoch.tolist() == [0.25, 1.0]
    assert curve.mean.tolist() == [2.0, 1.0]


def test_losses_of_every_stage_are_shown(evidence):
    charts = losses_section(evidence).charts
    shown = {row["stage"] for chart in charts.values() for row in chart["data"]["values"]}
    assert shown == {"supernet", "original", "Uniform", "searched"}


@pytest.mark.parametrize("counts", [[4, 4, 4, 4], [5, 4, 4, 1], [1], [3, 2, 1]])
def test_counts_along_the_channels_are_exact(counts):
    rows = runs_of("group", np.array(counts))
    found = []
    for row, after in itertools.pairwise(rows):
        found += [row["count"]] * round((after["place"] - row["place"]) * len(counts))
    assert found == counts
    assert rows[-1]["count"] == counts[-1]


def test_fairness_is_told_where_it_holds_and_where_not(finished, other):
    page = (finished.run_dir / "report.html").read_text()
    assert "In all 2 groups every channel was trained exactly as often as every other." in page
    page = (other.run_dir / "report.html").read_text()
    assert "In 2 of 2 groups some channels were trained more often than others" in page


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def contrast(one: str, two: str) -> float:
    dark, light = sorted((luminance(one), luminance(two)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [look.LIGHT, look.DARK])
def test_text_and_marks_stand_out_from_the_paper(theme):
    for paper in ("paper", "raised"):
        assert min(contrast(theme[name], theme[paper]) for name in ("ink", "muted")) >= 4.5
    assert min(contrast(theme[name], theme["paper"]) for name in (*look.SERIES, "dot", "line")) >= 3


def test_every_series_has_a_colour_of_its_own():
    for theme in (look.LIGHT, look.DARK):
        assert len({theme[name] for name in look.SERIES}) == len(look.SERIES) == len(look.SHAPES)


@pytest.fixture
def loud_theme():
    """One that the user of a notebook may have chosen for all charts."""
    alt.theme.register("loud", enable=False)(lambda: {"background": "red", "padding": 90, "config": {"font": "Loud"}})
    with alt.theme.enable("loud"):
        yield
    alt.theme.unregister("loud")


def test_a_theme_of_the_users_stays_out_of_a_report(request):
    points = alt.Chart(look.inline([{"x": 1, "y": 2}])).mark_point().encode(x="x:Q", y="y:Q")
    usual = look.spec(points, "two numbers")
    request.getfixturevalue("loud_theme")
    assert points.to_dict()["background"] == "red"
    assert look.spec(points, "two numbers") == usual


@pytest.mark.parametrize(
    ("number", "text"), [(950, "950"), (96_602, "96.6k"), (4_951_104, "4.95M"), (4_089_000_000, "4.09G")]
)
def test_counts_are_short(number, text):
    assert count(number) == text


def test_a_table_takes_texts_as_texts():
    shown = str(table(("<i>", "n"), [("a & b", "<b>")], "c", strong=[0]))
    assert "&lt;i&gt;" in shown
    assert "a &amp; b" in shown
    assert "<b>" not in shown
