"""Pages that MkDocs writes from the code and from `results/`, so that they cannot say what is no longer true."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import bcnet
from bcnet import tasks
from bcnet.methods import METHODS
from bcnet.run.settings import RunOptions, Settings, SpaceSettings
from bcnet.train import recipe, recipe_names

_ROOT = Path(__file__).parents[1]
_API_OPENING = (
    "What `import bcnet` gives, and the tasks of `bcnet.tasks`. Fields of methods, of `space` and of `options` are on "
    "the page of [settings](settings.md)."
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the written pages, and the tables and pictures of `results/` that pages refer to."""
    pages = {"commands": _commands(), "settings": _settings(), "recipes": _recipes(), "examples": _examples()}
    pages |= {"api": _api()}
    pages |= {path.stem: _notebook(path) for path in sorted((_ROOT / "notebooks").glob("*.ipynb"))}
    for name, text in pages.items():
        files.append(File.generated(config, f"{name}.md", content=text))
    for path in sorted(path for path in (_ROOT / "results").rglob("*") if path.is_file()):
        files.append(File.generated(config, path.relative_to(_ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to what is beside this folder in the repository stay inside the site."""
    markdown = re.sub(r"\]\(\.\./notebooks/(\w+)\.ipynb\)", r"](\1.md)", markdown)
    inside = re.sub(r"\]\(\.\./examples/(\w+)\.py\)", r"](examples.md#\1)", markdown)
    return inside.replace("](../results/", "](results/")


def _commands() -> str:
    words = ["-m", "typer", "--app", "app", "bcnet.cli.app", "utils", "docs", "--name", "bcnet", "--title", "Commands"]
    run = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if run.returncode:
        raise PluginError(f"the commands cannot be written down: {run.stderr}")
    # Examples are paragraphs that start with a command: show them as code.
    return re.sub(r"^(bcnet .+)$", r"    \1", run.stdout, flags=re.MULTILINE)


_API = {
    "Searching": ("api",),
    "Methods": ("methods",),
    "Runs and results": ("run",),
    "Data": ("data",),
    "Tasks": ("tasks", "measurement"),
    "Budgets and costs": ("costs", "latency"),
    "Width spaces": ("space",),
    "Supernets and training": ("supernet", "train", "prior"),
    "Searchers": ("searchers",),
    "Export and report": ("export", "report"),
    "Stages and listeners of your own": ("stages.base", "progress"),
    "Errors": ("errors",),
}


def _api() -> str:
    """All public names, by what they are for; mkdocstrings puts their docstrings there."""
    given = {name: getattr(bcnet, name) for name in bcnet.__all__}
    homes = {name: value.__module__ for name, value in given.items() if not inspect.ismethod(value)}  # trace is one
    of_tasks = {name: getattr(tasks, name) for name in tasks.__all__}
    homes |= {
        n: v.__module__ for n, v in of_tasks.items() if n not in homes and (inspect.isclass(v) or inspect.isfunction(v))
    }
    page, written = ["# Python", _API_OPENING], set()
    for title, rooms in _API.items():
        mine = [n for n, home in sorted(homes.items()) if any(f"{home}.".startswith(f"bcnet.{r}.") for r in rooms)]
        written.update(mine)
        page += [f"## {title}", *(f"::: {homes[name]}.{name}" for name in mine)]
    if written != homes.keys():
        raise PluginError(f"the page of the API has no place for {', '.join(sorted(homes.keys() - written))}")
    return "\n\n".join(page) + "\n"


def _settings() -> str:
    opening = (
        "# Settings\n\nWhat a run depends on, as `settings.json` stores it. In Python the fields of a method are "
        "arguments of its class, those of the width space and the options are `space={...}` and `options={...}`, those "
        "of a recipe are `training={...}`. On the command line they are `--method NAME:key=value`, options of their "
        "own or `--option key=value`, and `--set key=value` for the recipe, with a dot to reach inside: "
        "`--set schedule.final_lr=0.001`.\n"
    )
    parts = [_section(part.title, part) for part in (Settings, SpaceSettings, RunOptions)]
    methods = [_section(f"Method {name}", method) for name, method in METHODS.items()]
    kinds = (recipe.Recipe, recipe.Cosine, recipe.Steps, recipe.Exponential, recipe.Distillation, recipe.Crop)
    tables = [_table(kind.__name__, kind) for kind in (*kinds, recipe.AreaCrop)]
    return "\n".join((opening, *parts, *methods, *tables))


def _section(title: str, part: type[BaseModel]) -> str:
    """A table of fields with their own lines."""
    rows = [
        f"| `{name}` | {_usual(field)} | {' '.join((field.description or '').split())} |".replace(" | None", " or None")
        for name, field in part.model_fields.items()
    ]
    head = "| setting | default | what it is |\n|---|---|---|\n"
    return f"## {title}\n\n{inspect.getdoc(part)}\n\n" + (head + "\n".join(rows) + "\n" if rows else "")


def _usual(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "none"
    return "required" if field.default is PydanticUndefined else f"`{field.default!r}`"


def _table(title: str, model: type[BaseModel]) -> str:
    rows = []
    for name, field in model.model_fields.items():
        kind = field.annotation.__name__ if isinstance(field.annotation, type) else str(field.annotation)
        bounds = ", ".join(str(limit) for limit in field.metadata if not callable(limit))
        usual = _usual(field)
        shown = re.sub(r"\b(typing|annotated_types|pydantic\.\w+|bcnet[\w.]*)\.", "", f"{kind} {bounds}").strip()
        rows.append(f"| `{name}` | `{shown}` | {usual} |".replace(" | None", " or None").replace("|None", " or None"))
    rows = [row if row.count("|") == 4 else re.sub(r"(?<=\S) \| (?=\w)", " or ", row) for row in rows]
    text = inspect.getdoc(model) or ""
    return f"## {title}\n\n{text}\n\n| setting | type | default |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _recipes() -> str:
    pages = [
        "# Recipes\n\nHow the supernet and the final networks are trained. `bcnet recipes` lists these with what the "
        "paper reports, `bcnet recipes NAME` prints one to change; a run without `--recipe` takes the one that suits "
        "its model and data. A file of your own goes to `--recipe FILE.yaml`.\n"
    ]
    shelf = _ROOT / "src" / "bcnet" / "train" / "recipes"
    for name in recipe_names():
        text = (shelf / f"{name}.yaml").read_text(encoding="utf-8")
        pages.append(f"## {name}\n\n```yaml\n{text.rstrip()}\n```\n")
    return "\n".join(pages)


def _notebook(path: Path) -> str:
    """Its cells as a page, and where it is."""
    title, *cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    where = f"As a notebook in the repository: `notebooks/{path.name}`.\n"
    parts = ["".join(title["source"]), where]
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```\n")
        parts += [_output(output) for output in cell.get("outputs", ())]
    return "\n\n".join(parts)


def _output(output: dict[str, Any]) -> str:
    """The output of a cell: a picture, a table, or text."""
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img src="data:image/png;base64,{"".join(data["image/png"]).strip()}" alt="What the cell draws">'
    if "<iframe" in "".join(data.get("text/html", "")):
        return ""  # the report, which is on the reader's machine
    if "text/html" in data:
        return "".join(data["text/html"])
    return "```text\n" + "".join(output.get("text") or data.get("text/plain", "")).rstrip() + "\n```\n"


def _examples() -> str:
    pages = ["# Examples\n\nThe scripts of the folder `examples/`, each short enough to start your own from.\n"]
    for path in sorted((_ROOT / "examples").glob("*.py")):
        pages.append(f"## {path.stem}\n\n```python\n{path.read_text(encoding='utf-8').rstrip()}\n```\n")
    return "\n".join(pages)
