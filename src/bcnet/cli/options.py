"""Options of the commands. Those for settings are made from the fields of `Settings`, under their sections' titles."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

_Command = TypeVar("_Command", bound=Callable[..., None])

TRAINING = "Training"
MACHINE = "Machine"

Model = Annotated[str | None, typer.Option(help="Name, torchvision:NAME, timm:NAME or package.module:factory.")]
Data = Annotated[
    str | None, typer.Option(help="Data set: digits, cifar10, parquet:PATH, ..., or package.module:function.")
]
Task = Annotated[
    str | None,
    typer.Option(help="What it is trained for: segmentation:classes=21, ..., or package.module:factory."),
]
Out = Annotated[Path | None, typer.Option(help="Run directory, new or to go on with.")]
BudgetText = Annotated[
    str | None,
    typer.Option(help="Most MACs: a ratio (0.5) or a count (150M); several measures as macs=0.5,memory=320KiB."),
]
ParamsBudget = Annotated[str | None, typer.Option(help="Most parameters, as well or instead: a ratio or a count.")]
LatencyFile = Annotated[
    Path | None, typer.Option(help="What `bcnet calibrate` wrote, for a budget of latency=2ms; else measured first.")
]
InputShape = Annotated[
    list[str] | None,
    typer.Option("--input", help="Shape of an input, 3x224x224, or 128:int64 for tokens; repeatable.", metavar="SHAPE"),
]
RecipeName = Annotated[
    str | None, typer.Option(help="Recipe name or YAML file (default: by model and data).", rich_help_panel=TRAINING)
]
Effort = Annotated[
    str | None,
    typer.Option(
        help="What to spend: small, medium or large, about 1, 3 or 10 trainings of the original (medium, unless an "
        "option says how to search)."
    ),
]
Preset = Annotated[str | None, typer.Option(help="paper: the search as the paper has it, on a supernet.")]
Epochs = Annotated[int | None, typer.Option(help="Of every training.")]
SupernetEpochs = Annotated[int | None, typer.Option(help="Of the supernet.", rich_help_panel=TRAINING)]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="key=value in the recipe, supernet.key and final.key for one; repeatable.",
        rich_help_panel=TRAINING,
    ),
]
Pretrained = Annotated[
    Path | None, typer.Option(help="Weights to start from, a safetensors file.", rich_help_panel=TRAINING)
]
TakeFrom = Annotated[list[Path] | None, typer.Option(help="Another run, what it has finished and shares; repeatable.")]
Precision = Annotated[str | None, typer.Option(help="auto, fp32, bf16 or fp16.", rich_help_panel=MACHINE)]
CheckpointSeconds = Annotated[float, typer.Option(help="Most training to lose when killed.", rich_help_panel=MACHINE)]
Log = Annotated[
    str, typer.Option(help="Progress: auto, bars, lines, json (a line an event) or quiet.", rich_help_panel=MACHINE)
]
WithTensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Write scalars to OUT/tensorboard.", rich_help_panel=MACHINE)
]
Allocator = Annotated[
    str, typer.Option(help="keep lets glibc keep freed memory, system leaves it alone.", rich_help_panel=MACHINE)
]
Primitives = Annotated[
    int | None,
    typer.Option("--primitive-cache", help="Compiled operators that oneDNN keeps.", rich_help_panel=MACHINE, min=0),
]
NewOut = Annotated[Path | None, typer.Option(help="Directory of the new run, where a setting is another.")]
Run = Annotated[Path, typer.Argument(help="Run directory.")]

COMMON = ("seed", "image_size", "searcher", "threads", "device")
"""Settings that most people want: listed first, without a section."""


def with_settings(
    *names: str, sections: tuple[str, ...] = (), but: tuple[str, ...] = ()
) -> Callable[[_Command], _Command]:
    """Let a command take settings as options: single ones by name, and those of whole sections.

    It gets them as keyword arguments, None where they were not given. The options are made when the program is
    (`widened`), so that the module of a command imports nothing heavy.
    """

    def noted(command: _Command) -> _Command:
        command.settings = (names, sections, but)  # type: ignore[attr-defined]
        return command

    return noted


def widened(command: Callable[..., None], *, options: bool = True) -> Callable[..., None]:
    """The command with the options of its settings: each is called as its setting, and its help is the setting's line.

    With `options` off they are left out, where only the command's help is wanted.
    """
    if not hasattr(command, "settings"):
        return command
    names, sections, but = command.settings
    own = inspect.signature(command, eval_str=True)
    parameters = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    if options:
        from bcnet.run.settings import SECTION_OF, in_sections

        wanted = (in_sections(*sections) | set(names)) - set(but)
        # The common ones follow the command's own; the others come by section, in the sections' order.
        ordered = dict.fromkeys(name for name in (*COMMON, *SECTION_OF) if name in wanted)
        parameters += [_parameter(name) for name in ordered]
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]

    @functools.wraps(command)
    def with_options(**arguments: Any) -> None:
        command(**arguments)

    with_options.__signature__ = own.replace(parameters=keywords)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in keywords}
    return with_options


def given(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that a person gave: those left out are None, or empty where they can be repeated."""
    values = {name: value for name, value in settings.items() if value is not None and value != []}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _parameter(name: str) -> inspect.Parameter:
    from bcnet.run.settings import SECTION_OF

    part = SECTION_OF[name]
    field = part.model_fields[name]
    kind, repeatable = _plain(field.annotation)
    usual = "" if field.default in (None, ()) else f" [default: {field.default}]"
    again = "; repeatable" if repeatable else ""
    text = f"{(field.description or '').removesuffix('.')}{again}.{usual}"
    panel = None if name in COMMON else part.title
    own: dict[str, Any] = {} if kind is not _NumberOrWord else {"parser": _number_or_word, "metavar": "INTEGER|TEXT"}
    option = typer.Option(f"--{name.replace('_', '-')}", help=text, rich_help_panel=panel, show_default=False, **own)
    annotation: Any = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


class _NumberOrWord:
    """The type of a setting that is a number or says where it comes from."""


def _number_or_word(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdecimal() else text


def _plain(annotation: Any) -> tuple[Any, bool]:
    """The type that a person types a setting as, and whether it can be repeated."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        inner = [part for part in typing.get_args(annotation) if part is not type(None)]
        word = any(typing.get_origin(part) is Literal for part in inner[1:])
        return (_NumberOrWord, False) if word else _plain(inner[0])
    if origin is Annotated:
        return _plain(typing.get_args(annotation)[0])
    if origin is Literal:
        return str, False
    if origin is tuple:
        return list[str], True
    return annotation, False
