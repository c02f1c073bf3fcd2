"""Options of widths become the settings that they name."""

import pytest
from typer.testing import CliRunner

from bcnet.cli.app import app
from bcnet.cli.options import space_options


def given(*texts):
    return space_options(None, None, [*texts], None, None, None)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((), {}),
        (("16",), {"min_width": 16}),
        (("layer4.*=64", "stem=8"), {"min_width": {"layer4.*": 64, "stem": 8}}),
    ],
)
def test_smallest_widths_are_a_number_or_one_for_each_pattern(texts, expected):
    assert given(*texts) == expected


@pytest.mark.parametrize("text", ["wide", "stem=", "=8", "stem=-4", "16.5"])
def test_what_is_no_smallest_width_is_refused(text):
    result = CliRunner().invoke(app, ["profile", "resnet_digits", "--min-width", text])
    assert result.exit_code == 2
    assert f"PATTERN=NUMBER of layers; got {text!r}" in " ".join(result.output.split())


def test_one_number_for_all_and_patterns_exclude_each_other():
    result = CliRunner().invoke(app, ["profile", "resnet_digits", "--min-width", "1", "--min-width", "stem*=4"])
    assert result.exit_code == 2
