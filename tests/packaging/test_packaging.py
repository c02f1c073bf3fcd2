"""The wheel, built from the sdist and installed into an environment that knows nothing of the source tree."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from bcnet.cli.help import TOPICS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "bcnet"
SMOKE = """
import sys
from importlib import metadata, resources
import bcnet
assert bcnet.__file__.startswith(sys.prefix), bcnet.__file__
assert bcnet.__version__ == metadata.version("bcnet")
assert resources.files("bcnet").joinpath("py.typed").is_file()
from bcnet.train import recipe_names
assert all(bcnet.train.load_recipe(name).epochs for name in recipe_names()) and len(recipe_names()) > 3
"""


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return kept | {"OMP_NUM_THREADS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def run(*command, cwd: Path) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=cwd, env=environment())
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    pytest.importorskip("build", reason="building needs the packages build and hatchling, of the extra test")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)  # the wheel of the sdist
    return folder


@pytest.mark.slow
def test_sdist_and_wheel_hold_the_whole_package_and_no_more(built):
    ours = {
        str(file.relative_to(PACKAGE.parent))
        for file in PACKAGE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    (wheel,) = built.glob("bcnet-*-py3-none-any.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    pages = {f"bcnet/help/{topic}.md" for topic in TOPICS}
    assert inside == ours | pages
    assert "bcnet/py.typed" in inside
    (sdist,) = built.glob("bcnet-*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in ours} | {"pyproject.toml", "README.md", "LICENSE"} <= names


@pytest.mark.slow
def test_the_installed_wheel_searches(built, tmp_path):
    home = tmp_path / "clean"
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=tmp_path)
    python = home / "bin" / "python"
    (site,) = home.glob("lib/python*/site-packages")
    # What bcnet needs comes from here, behind what is installed there: several GB are not fetched again.
    (site / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    (wheel,) = built.glob("*.whl")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    run(python, "-c", SMOKE, cwd=tmp_path)
    command = home / "bin" / "bcnet"
    assert "vgg19-cifar10" in run(command, "profile", "--list", cwd=tmp_path)
    options = ["--budget", "0.5", "--threads", "1", "--epochs", "1", "--effort", "small"]
    run(command, "search", "--model", "resnet_digits", "--data", "digits", *options, "--out", "run", cwd=tmp_path)
    assert (tmp_path / "run" / "report.html").exists()
    assert run(command, "help", "budgets", cwd=tmp_path) == (ROOT / "docs" / "budgets.md").read_text()
    assert "Wrote" in run(command, "export", "run", "--format", "safetensors", cwd=tmp_path)
