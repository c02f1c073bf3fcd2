"""The figures that are quoted from the paper are those of its tables, read from its LaTeX."""

import re
from pathlib import Path

import pytest

from bcnet.train.reported import reported_results
from studies.paper import numbers as paper_numbers
from studies.paper.numbers import TABLE_1, TABLE_2, TABLE_3, TABLE_8

PAPER = Path(__file__).parents[3] / "shared" / "paper" / "bcnet.tex"
NAMES = {"Uniform": "uniform", "Random": "random", "BCNet": "bcnet", "BCNet*": "bcnet-distilled"}
NAMES |= {"AutoSlim": "autoslim", "AutoSlim*": "autoslim"}
UNITS = {"M": 1e6, "G": 1e9}


def cells(line):
    """The cells of a line of a table, without what only sets them."""
    line = re.sub(r"\\multirow\{\d+\}\*\{[^}]*(\{[^}]*\})?[^}]*\}|\\cite\{[^}]*\}|\\cline\{[^}]*\}|\\hline", "", line)
    line = re.sub(r"\\textbf\{([^}]*)\}", r"\1", line).replace("\\%", "").replace("\\\\", "")
    return [cell.strip() for cell in line.split("&")]


def number(cell):
    match = re.fullmatch(r"([\d.]+)([MG]?)", cell)
    return None if match is None else round(float(match[1]) * UNITS.get(match[2], 1), 6)


@pytest.fixture(scope="module")
def table():
    """Method -> all figures that stand behind it in a line: costs and accuracies, in order."""
    if not PAPER.exists():
        pytest.skip(f"the paper's source is not at {PAPER}")
    found = {method: [] for method in NAMES.values()}
    for line in PAPER.read_text(encoding="utf-8").splitlines():
        row = cells(line)
        for place, cell in enumerate(row):
            if cell in NAMES:
                figures = []
                for other in row[place + 1 :]:
                    if not (other == "-" or number(other) is not None):
                        break
                    figures.append(number(other))
                found[NAMES[cell]].append(figures)
    assert min(map(len, found.values())) > 5
    return found


def among(rows, *wanted):
    """Whether one line has all of these figures, in this order."""
    for row in rows:
        rest = iter(row)
        if all(any(value == given for value in rest) for given in wanted):
            return True
    return False


def wanted_of(line):
    costs = [] if line in TABLE_2 else [float(line.budget)]
    params = [round(float(line.params) * 1e6)] if line.params else []
    return [*costs, *params, *(float(part) for part in (line.top1, line.top5) if part)]


@pytest.mark.parametrize("name", ["TABLE_1", "TABLE_2", "TABLE_3", "TABLE_8"])
def test_every_line_beside_ours_is_a_line_of_the_papers_table(name, table):
    lines = [line for line in getattr(paper_numbers, name) if line.budget is not None]
    assert lines
    for line in lines:
        assert among(table[line.method], *wanted_of(line)), line


def test_every_result_of_a_recipe_is_one_of_the_papers(table):
    for row in reported_results():
        macs = number(row.budget)
        exact = row.model not in ("torchvision:efficientnet_b0", "proxylessnas_mobile")  # these tables give no FLOPs
        for method, value in (
            ("bcnet", row.ours),
            ("uniform", row.uniform),
            ("random", row.random),
            ("bcnet-distilled", row.distilled),
        ):
            if value is not None:
                near = [macs] if not (row.recipe == "vgg19-cifar10" and macs == 197e6) else [macs, 199e6]
                assert any(among(table[method], *([m] if exact else []), value) for m in near), (row, method)


def test_a_wrong_figure_is_noticed(table):
    line = next(line for line in TABLE_1 if line.method == "bcnet")
    right = wanted_of(line)
    assert among(table["bcnet"], *right)
    for place in range(len(right)):
        assert not among(table["bcnet"], *(v + (0.1 if i == place else 0) for i, v in enumerate(right)))
    assert not among(table["uniform"], *right)
    assert TABLE_3
    assert TABLE_8
