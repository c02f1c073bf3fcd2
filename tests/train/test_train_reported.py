import csv

import pytest

from bcnet.models import create
from bcnet.run.recipes import default_recipe
from bcnet.train import recipe_names
from bcnet.train.reported import measured_results, reported_results

FIELDS = [
    "configuration",
    "seed",
    "original_top1",
    "uniform_top1",
    "searched_top1",
    "supernet_epochs",
    "final_epochs",
    "further",
]


def test_the_papers_results_belong_to_recipes_and_models_that_there_are():
    rows = reported_results()
    others = {"digits", "scattered_digits", "resnet-cifar10", "imitation"}
    assert {row.recipe for row in rows} == set(recipe_names()) - others
    for row in rows:
        size = 32 if row.recipe.endswith("cifar10") else 224
        assert default_recipe(row.model, "", size) == row.recipe
        assert 50 < row.ours < 100
        assert row.uniform is None or row.ours > row.uniform > row.random
    ours = {row.model for row in rows if ":" not in row.model}
    assert ours == {"proxylessnas_mobile", "mobilenetv2", "vgg19"}
    for model in ours:
        create(model)


def test_ours_are_read_from_the_rows_of_finished_runs(tmp_path):
    with (tmp_path / "a.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        writer.writerow(["--model vgg19 --data cifar10 --budget 0.5x MACs", 2, 94, 93.5, 94.25, 3, 4, "x"])
        writer.writerow(["something else", 2, 94, 93.5, 94.25, 3, 4, "x"])
    (tmp_path / "b.csv").write_text("x,y\n1,2\n")
    (tmp_path / "c.csv").write_text("")
    (run,) = measured_results(tmp_path)
    assert (run.model, run.data, run.budget, run.seed, run.file) == ("vgg19", "cifar10", "0.5x MACs", 2, "a.csv")
    assert (run.original, run.uniform, run.searched) == (94, 93.5, 94.25)
    assert (run.supernet_epochs, run.final_epochs) == (3, 4)


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_can_be_printed_and_read_again(name, tmp_path):
    from typer.testing import CliRunner

    from bcnet.cli.app import app
    from bcnet.train import load_recipe

    shown = CliRunner().invoke(app, ["recipes", name])
    (tmp_path / "mine.yaml").write_text(shown.output)
    assert load_recipe(tmp_path / "mine.yaml") == load_recipe(name)
