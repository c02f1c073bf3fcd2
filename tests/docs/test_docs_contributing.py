"""The changelog keeps its form."""

import re
import tomllib

import pages


def test_the_changelog_tells_of_the_version():
    text = pages.text(pages.ROOT / "CHANGELOG.md")
    version = tomllib.loads((pages.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"## [{version}]" in text or ("## [Unreleased]" in text and version in text)
    kinds = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
