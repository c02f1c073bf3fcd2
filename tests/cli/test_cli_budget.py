import pytest
from typer.testing import CliRunner

from bcnet.cli import parse
from bcnet.cli.app import app
from bcnet.errors import BudgetError
from bcnet.space import Budget


@pytest.mark.parametrize(
    ("macs", "params", "budget"),
    [
        ("0.5", None, Budget(macs=0.5)),
        (None, "20k", Budget(params=20_000)),
        ("150M", "0.5", Budget(macs=150_000_000, params=0.5)),
    ],
)
def test_either_limit_makes_a_budget(macs, params, budget):
    assert parse.budget(macs, params) == budget


def test_a_mistaken_limit_is_named():
    with pytest.raises(BudgetError, match="a limit on params must be a ratio"):
        parse.budget(None, "half")


def test_a_search_without_a_budget_is_refused(tmp_path):
    search = ["search", "--model", "resnet_digits", "--data", "digits", "--out", str(tmp_path / "run")]
    outcome = CliRunner().invoke(app, search)
    assert outcome.exit_code == 2
    assert "a search needs a budget; got none: give --budget 0.5" in outcome.stderr
    assert list(tmp_path.iterdir()) == []
