"""The messages that a page explains are those of the code, word for word."""

import ast
import re

import pages
import pytest

QUOTED = re.findall(r"^\| `([^`]+)` \|", pages.text(pages.ROOT / "docs" / "trouble.md"), re.MULTILINE)


@pytest.fixture(scope="module")
def texts():
    """Every text of the package, with `...` where it has a value."""
    sources = sorted((pages.ROOT / "src" / "bcnet").rglob("*.py"))
    return [said(node) for source in sources for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))]


def said(node):
    if isinstance(node, ast.JoinedStr):
        return "".join(said(part) for part in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "..." if isinstance(node, ast.FormattedValue) else ""


def test_there_are_messages():
    assert len(QUOTED) > 10


@pytest.mark.parametrize("message", QUOTED)
def test_the_code_says_what_the_page_quotes(message, texts):
    quoted = re.compile(".*".join(map(re.escape, message.split("..."))), re.DOTALL)
    assert any(quoted.match(text) for text in texts), message
    assert len(message.replace("...", "")) > 15  # enough to be found by
