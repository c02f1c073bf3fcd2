"""The oldest versions of what bcnet needs, as `pyproject.toml` says them; the newest are what all other tests run on.

torch is not among them: other releases of it are several GB.
"""

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEARCH = (
    *("search", "--model", "resnet_digits", "--data", "digits", "--budget", "0.5", "--threads", "1", "--epochs", "1"),
    *("--log", "quiet"),
)
# One process for all commands: half of the time of each is importing torch.
COMMANDS = """
import json, sys
from typer.testing import CliRunner
from bcnet.cli.app import app
for words in json.load(sys.stdin):
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0, found.output
    print(found.output)
"""
TABLES = """
import datasets, numpy, os
os.mkdir("tables")
from PIL import Image
pixels = numpy.random.default_rng(0).integers(0, 255, (40, 8, 8, 3), dtype=numpy.uint8)
for part in ("train", "test"):
    rows = {"img": [Image.fromarray(p) for p in pixels], "label": [n % 4 for n in range(40)]}
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(num_classes=4)})
    datasets.Dataset.from_dict(rows, features=features).to_parquet(f"tables/{part}.parquet")
"""


def oldest() -> list[str]:
    """The requirements of the package at their lowest, with what reads parquet files, but for torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = project["dependencies"] + project["optional-dependencies"]["hub"]
    assert all(">=" in requirement for requirement in requirements)
    return [requirement.replace(">=", "==") for requirement in requirements if not requirement.startswith("torch>")]


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """A Python that has the oldest versions before what is installed here."""
    home = tmp_path_factory.mktemp("oldest") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python = home / "bin" / "python"
    words = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--only-binary", ":all:", *oldest()]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode and "Could not find a version" not in done.stderr:
        pytest.skip(f"the packages cannot be fetched here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    (site,) = home.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(f"{ROOT / 'src'}\n{sysconfig.get_paths()['purelib']}\n")
    return python


def run(python, code, cwd, given=None):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(python), "-c", code], input=given, capture_output=True, text=True, check=False, cwd=cwd, env=environment
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_the_oldest_versions_do(python, tmp_path):
    listed = "from importlib import metadata; print(*(f'{n}=={metadata.version(n)}' for n in %r))"
    names = [requirement.partition("==")[0] for requirement in oldest()]
    found = dict(pair.split("==") for pair in run(python, listed % names, tmp_path).split())
    for requirement in oldest():
        name, _, version = requirement.partition("==")
        numbers = [[*map(int, text.split("."))] for text in (version, found[name])]
        assert numbers[1][: len(numbers[0])] == numbers[0], f"{name} {found[name]} is not {version}"
    run(python, TABLES, tmp_path)
    parquet = [word if word != "digits" else "parquet:tables" for word in SEARCH]
    short = ["--method", "bcnet:population=4,generations=2,parents=2"]
    commands = [
        [*SEARCH, *short, "--out", "run"],
        [*parquet, "--effort", "small", "--set", "batch_size=8", "--out", "modelled"],
        ["status", "run"],
        ["export", "run", "--format", "safetensors"],
        ["report", "run", "modelled"],
    ]
    shown = run(python, COMMANDS, tmp_path, json.dumps(commands))
    assert (tmp_path / "run" / "report.html").exists()
    assert "searched" in shown
    assert "Wrote" in shown
