"""The page as a whole, without a browser."""

import dataclasses
import json
import re

import pytest
from charts import data_of
from tiny_job import Recorder, StoppedError
from tiny_job import tiny_supernet_search as tiny_search

from bcnet import write_comparison, write_report
from bcnet.errors import RunError
from bcnet.report.comparison import comparison_page, run_names
from bcnet.report.evidence import read_evidence
from bcnet.report.page import plotting_library, script_json
from bcnet.report.single import report_page

EVIL = "</script><script>window.hacked = 1</script><img src=x onerror=window.hacked=1>"
CHARTS = {
    "networks", "candidates", "profile", "ratios", "scores", "hypervolume", "prior", "loss-supernet", "loss-networks",
    "fairness", "latency-0",
}  # fmt: skip


def own(page: str) -> str:
    """The page without the plotting library."""
    assert page.count(plotting_library()) == 1
    return page.replace(plotting_library(), "")


def renamed(evidence, name):
    """The evidence of a run whose model, data and groups have `name`."""
    space = evidence.space
    groups = tuple(dataclasses.replace(g, name=f"{name}{n}") for n, g in enumerate(space.groups))
    layers = tuple(dataclasses.replace(layer, name=f"{name}{layer.name}") for layer in space.layers)
    return dataclasses.replace(
        evidence,
        settings=evidence.settings.model_copy(update={"model": name, "data": name}),
        space=dataclasses.replace(space, groups=groups, layers=layers),
    )


def test_a_finished_run_has_every_part(finished):
    page = (finished.run_dir / "report.html").read_text()
    assert set(data_of(page)["charts"]) == CHARTS
    assert set(re.findall(r'data-chart="([\w-]+)"', page)) == CHARTS
    assert re.findall(r'class="missing">(.{12})', own(page)) == ["The charts n"]
    searched, original = (finished.result.networks[name] for name in ("searched", "original"))
    headline = re.search(r'<p class="headline">(.*?)</p>', page)[1]
    assert f"{100 * searched.macs_ratio:.1f} % of the multiply-adds" in headline
    assert f"{searched.test['top1']:.2f} % test top-1 against {original.test['top1']:.2f} %" in headline
    for text in ("its expected MACs", "lower bound for any prior", "Time spent per stage", "torch", "seed"):
        assert text in page


def test_free_widths_are_said_to_cost_time(finished):
    evidence = read_evidence(finished.run_dir)
    assert "any number of channels" not in report_page(evidence)
    free = evidence.settings.space.model_copy(update={"multiple_of": 1})
    settings = evidence.settings.model_copy(update={"space": free})
    assert "any number of channels (multiple_of=1)" in report_page(dataclasses.replace(evidence, settings=settings))


def test_measured_latency_is_shown(finished, tmp_path):
    evidence = read_evidence(finished.run_dir)
    assert "Not measured yet" in report_page(dataclasses.replace(evidence, latencies=()))
    measured = {
        "backend": "torch", "device": "a processor", "threads": 2, "batch": 1,
        "verdict": "Multiples of 8 are faster here.",
        "milliseconds": {
            name: {"median": median, "low": median - 1, "high": median + 2, "count": 20}
            for name, median in (("original", 12.0), ("uniform", 6.0), ("searched", 4.0), ("rounded", 3.0))
        },
        "macs_ratio": {"original": 1.0, "uniform": 0.5, "searched": 0.4, "rounded": 0.41},
    }  # fmt: skip
    page = report_page(dataclasses.replace(evidence, latencies=(measured,)))
    assert "Not measured yet" not in page
    for text in (
        "PyTorch on a processor, 2 threads, batches of 1",
        "3.00x",
        "2.50x",
        "Multiples of 8 are faster here.",
    ):
        assert text in page
    rows = data_of(page)["charts"]["latency-0"]["data"]["values"]
    assert [row["median"] for row in rows] == [12.0, 6.0, 4.0, 3.0]


def test_every_candidate_is_in_the_chart(finished):
    rows = data_of((finished.run_dir / "report.html").read_text())["charts"]["candidates"]["data"]["values"]
    assert [tuple(row["widths"]) for row in rows] == [c.widths for c in finished.found.evaluations]
    assert [row["score"] for row in rows] == [c.score for c in finished.found.evaluations]
    assert [tuple(row["widths"]) for row in rows if row["trained"]] == [finished.widths]
    assert {tuple(row["widths"]) for row in rows if row["front"]} == {c.widths for c in finished.found.front}


def test_the_page_needs_nothing_else(finished):
    page = own((finished.run_dir / "report.html").read_text())
    assert not re.search(r"<link|\ssrc=(?!\"data:image/png;base64,)|@import|url\(|fetch\(|import\(", page)
    (name,) = set(re.findall(r"https?://[^\"\s<]+", page))
    assert re.fullmatch(r"https://vega\.github\.io/schema/vega-lite/v6[\d.]*\.json", name)  # nothing fetches it
    assert "</script" not in plotting_library()


def test_charts_are_told_to_those_who_cannot_see_them(finished):
    page = (finished.run_dir / "report.html").read_text()
    assert len(re.findall(r'<div class="chart[^>]*role="img" aria-label="[^"]{20,}"', page)) == len(CHARTS)
    assert '<html lang="en">' in page
    assert re.search(r"<title>.+ on .+</title>", page)
    assert all(chart["description"] for chart in data_of(page)["charts"].values())


def test_names_are_never_markup(finished):
    evidence = renamed(read_evidence(finished.run_dir), EVIL)
    rows = [[{**cell, "words": EVIL} for cell in row] for row in evidence.examples["rows"]]
    evidence = dataclasses.replace(evidence, examples={**evidence.examples, "columns": [EVIL] * 5, "rows": rows})
    for page in (report_page(evidence), comparison_page([evidence, evidence])):
        assert "<script>window" not in page
        assert not re.search('<img (?!src="data:image/png;base64,)', own(page))
        assert "&lt;script&gt;window" in page
        assert EVIL in json.dumps(data_of(page))


def test_json_cannot_end_its_script():
    assert json.loads(script_json({"a": EVIL})) == {"a": EVIL}
    assert "<" not in script_json({"a": EVIL})


@pytest.mark.parametrize(
    ("stop", "there", "missing"),
    [
        pytest.param(("supernet", 1), set(), "No candidate has been scored yet.", marks=pytest.mark.slow),
        (("prior", 1), {"loss-supernet", "fairness", "prior"}, "No candidate has been scored yet."),
        (("evolution", 3), {"candidates", "profile", "ratios", "scores"}, "No network has been trained to its end"),
        pytest.param(("Uniform", 2), {"networks", "candidates", "loss-networks"}, None, marks=pytest.mark.slow),
        (("searched", 3), {"networks", "candidates", "loss-networks"}, None),
    ],
)
def test_a_stopped_run_has_a_report_of_what_there_is(tmp_path, stop, there, missing):
    with pytest.raises(StoppedError):
        tiny_search(tmp_path, reporter=Recorder(stop), report=True)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    page = write_report(tmp_path).read_text()
    assert there <= set(data_of(page)["charts"])
    assert "This run is not finished" in page
    assert missing is None or missing in page
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    tiny_search(tmp_path, report=True)
    assert "This run is not finished" not in (tmp_path / "report.html").read_text()


def test_a_run_that_has_only_settings_has_a_report(finished, tmp_path):
    (tmp_path / "settings.json").write_bytes((finished.run_dir / "settings.json").read_bytes())
    page = write_report(tmp_path).read_text()
    assert "has not traced its network yet" in page
    assert data_of(page)["charts"] == {}


def test_what_is_no_run_has_no_report(tmp_path):
    with pytest.raises(RunError, match=r"no settings\.json"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["counts.safetensors", "final_losses.safetensors", "space.json", "evaluations.sqlite"])
def test_damaged_files_are_not_reported(finished, tmp_path, name):
    for file in finished.run_dir.iterdir():
        if file.is_file() and file.name != "report.html":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    content = bytearray((tmp_path / name).read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RunError, match=name):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_runs_side_by_side(finished, other, tmp_path):
    page = write_comparison([finished.run_dir, other.run_dir], tmp_path / "c.html").read_text()
    assert set(data_of(page)["charts"]) == {"trained", "fronts", "widths"}
    settings = page[page.index('id="settings"') : page.index('id="time"')]
    assert re.findall(r'<th scope="row">([\w.]+)</th>', settings) == ["method.strategy", "seed"]
    for outcome in (finished, other):
        assert f"{outcome.result.networks['searched'].macs:,}" in page
    rows = data_of(page)["charts"]["fronts"]["data"]["values"]
    fronts = {name: [r["macs"] for r in rows if r["run"] == name] for name in ("whole", "other")}
    assert fronts["whole"] == [c.cost.macs for c in finished.found.front]
    assert fronts["other"] == [c.cost.macs for c in other.found.front]


def test_runs_are_named_by_what_tells_them_apart(finished, other):
    one, two = read_evidence(finished.run_dir), read_evidence(other.run_dir)
    assert run_names([one, two]) == ["whole", "other"]
    here = dataclasses.replace(one, path=one.path / "a" / "x")
    there = dataclasses.replace(one, path=one.path / "b" / "x")
    assert run_names([here, there]) == ["a/x", "b/x"]
    assert run_names([one, one])[1].endswith("whole (2)")


@pytest.mark.parametrize("runs", [[], "runs/half"])
def test_a_comparison_takes_a_list_of_runs(runs, tmp_path):
    with pytest.raises(RunError, match="must be a list of run directories; got"):
        write_comparison(runs, tmp_path / "c.html")
