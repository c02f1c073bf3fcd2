"""The notebooks run from the first cell to the last, in a quick form, and are kept with their outputs."""

import re
from pathlib import Path

import pytest

import bcnet

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

FOLDER = Path(__file__).parents[2] / "notebooks"
QUICK = {
    "your_own_network": "EPOCHS = 2",
    "timm_to_onnx": 'MODEL, SIZE = "test_resnet", 32\nPICTURES, EPOCHS = 24, 1',
    "read_a_search": 'METHOD = "bcnet:epochs=2,population=4,generations=2,parents=2"',
}


def text_of(cell):
    """All that a cell printed or gave."""
    given = [output.get("text", "") + str(output.get("data", "")) for output in cell.outputs]
    return "\n".join(given)


def executed(name, folder):
    """The notebook after its cells, with the parameters of the quick form behind its own."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    (place,) = [n for n, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", ())]
    notebook.cells[place].source += f"\n{QUICK[name]}"
    here = f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\nimport torchvision_stand_ins"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(f"{here}\ntorchvision_stand_ins.install()"))
    client = nbclient.NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return notebook


def test_there_are_these_notebooks_with_their_outputs():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(QUICK)
    for path in FOLDER.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in cells] == list(range(1, 1 + len(cells))), f"run {path} anew, whole"
        assert any("image/png" in str(cell.outputs) for cell in cells), "a picture that needs no JavaScript"
        assert not re.search(r"/(home|root|tmp|Users)/|site-packages|Warning", str([cell.outputs for cell in cells])), (
            path
        )


@pytest.mark.slow
def test_a_network_of_ones_own(tmp_path):
    notebook = executed("your_own_network", tmp_path)
    told = "\n".join(text_of(cell) for cell in notebook.cells if cell.cell_type == "code")
    assert "Uniform" in told
    (same,) = [text_of(cell) for cell in notebook.cells if "torch.allclose(" in cell.source]
    assert "'True'" in same, "what was exported and loaded again answers as the network does"
    result = bcnet.Run.open(tmp_path / "runs" / "notebook").result
    assert result.networks["searched"].macs_ratio <= 0.5
    assert (tmp_path / "runs" / "notebook" / "report.html").exists()


@pytest.mark.slow
def test_a_timm_network_becomes_onnx(tmp_path):
    pytest.importorskip("timm")
    pytest.importorskip("onnxruntime")
    notebook = executed("timm_to_onnx", tmp_path)
    told = "\n".join(text_of(cell) for cell in notebook.cells if cell.cell_type == "code")
    assert "['circle', 'square', 'triangle']" in told
    assert "x multiply-adds" in told
    widths = bcnet.Run.open(tmp_path / "runs" / "notebook-timm").result.widths.values()
    assert all(width % 8 == 0 for width in widths)


@pytest.mark.slow
def test_a_search_is_read(tmp_path):
    notebook = executed("read_a_search", tmp_path)
    told = [text_of(cell) for cell in notebook.cells if cell.cell_type == "code"]
    assert any("prior" in text and "Uniform" in text for text in told)
    assert any("image/png" in text for text in told)
    assert any("searched" in text and " to " in text for text in told)
