"""What the pages link to is there, every page can be reached, and the pages written from the code say what it says."""

import os
import re
import subprocess
import sys

import markdown
import pages
import pytest
import yaml

import bcnet
from bcnet.cli.app import app
from bcnet.run.settings import Settings
from bcnet.train import recipe_names

LINK = re.compile(r"\]\(([^)\s]+)\)")
NOTEBOOKS = {f"{path.stem}.md" for path in (pages.ROOT / "notebooks").glob("*.ipynb")}
MODULES = {"data", "distributed", "models"}  # among the public names
WRITTEN = {
    "api.md",
    "commands.md",
    "settings.md",
    "recipes.md",
    "examples.md",
    *NOTEBOOKS,
}  # by docs/generate.py, into the site alone


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it: a link or an anchor that leads nowhere fails."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=pages.ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_written_pages_say_what_the_code_says(site):
    def written(name):
        return (site / name / "index.html").read_text(encoding="utf-8")

    for command in app.registered_commands:
        assert f"<code>bcnet {command.name or command.callback.__name__}</code>" in written("commands")
    for setting in Settings.model_fields:
        assert f"<code>{setting}</code>" in written("settings")
    for recipe in recipe_names():
        assert f'id="{recipe}"' in written("recipes")
    for name in bcnet.__all__:
        assert f'.{name}"' in written("api") or name in MODULES, name
    for example in (pages.ROOT / "examples").glob("*.py"):
        assert f'id="{example.stem}"' in written("examples")


@pytest.mark.slow
def test_every_page_is_in_the_navigation(site):
    def files(part):
        return {part} if isinstance(part, str) else {file for inner in _inner(part) for file in files(inner)}

    listed = files(yaml.safe_load((pages.ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert listed == {page.name for page in (pages.ROOT / "docs").glob("*.md")} | WRITTEN
    for file in listed - {"index.md"}:
        assert (site / file.removesuffix(".md") / "index.html").is_file()


def _inner(part):
    return part.values() if isinstance(part, dict) else part


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_links_lead_somewhere_in_the_repository_too(page):
    """Pages are also read where no site was built: what is written into the site alone is not linked to."""
    for link in LINK.findall(pages.prose(page)):
        place, _, anchor = link.partition("#")
        if re.match(r"\w+:", link):
            continue
        target = (page.parent / place).resolve() if place else page
        assert target.is_relative_to(pages.ROOT), link
        assert target.exists(), f"{page.name} links to {link}, which is not there"
        assert not anchor or anchor in anchors(target), f"{link}: {target.name} has no such heading"


def anchors(page):
    parser = markdown.Markdown(extensions=["toc"])
    return set(re.findall(r'<h\d id="([^"]+)"', parser.convert(pages.prose(page))))


def test_the_front_page_leads_to_the_documentation():
    assert "docs/index.md" in LINK.findall(pages.text(pages.ROOT / "README.md"))
