"""The table of packages is complete and in the order of their imports, and the changelog keeps its form."""

import re
import tomllib

import pages
import pytest

SOURCE = pages.ROOT / "src" / "bcnet"
TABLE = re.findall(r"^\| `(\w+)` \|", pages.text(pages.ROOT / "CONTRIBUTING.md"), re.MULTILINE)
IMPORT = re.compile(r"^\s*(?:from|import) bcnet\.(\w+)|^\s*from bcnet import (.+)$", re.MULTILINE)


def test_the_table_has_every_package():
    packages = {file.parent.name for file in SOURCE.glob("*/__init__.py")} | {"errors"}
    assert sorted(TABLE) == sorted(packages)


@pytest.mark.parametrize("package", TABLE)
def test_packages_import_from_those_above(package):
    above = {*TABLE[: TABLE.index(package)], package}
    for file in [*(SOURCE / package).rglob("*.py"), *SOURCE.glob(f"{package}.py")]:
        for inner, names in IMPORT.findall(file.read_text(encoding="utf-8")):
            assert {inner or name.strip() for name in (names or inner).split(",")} <= above, file


def test_the_changelog_tells_of_the_version():
    text = pages.text(pages.ROOT / "CHANGELOG.md")
    version = tomllib.loads((pages.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"## [{version}]" in text or ("## [Unreleased]" in text and version in text)
    kinds = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
