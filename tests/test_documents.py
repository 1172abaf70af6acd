"""Files, links, targets, commands and variables that README, CONTRIBUTING and docs/ name exist."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

import hloom
from hloom.tools.cli import main

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
] + sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "operations")
MAKEFILE = (ROOT / "Makefile").read_text()
FILE = re.compile(r"[\w./*-]+\.(?:py|ll|c|md|hlo|toml|proto|json)|(?:[\w.-]+/)+")
FILES_OF_EXAMPLES = {"NAME.hlo", "passes/utils.py"}


def _tracked() -> list[str]:
    """Return the paths of all files that git tracks or would add, and of their folders with a slash."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    folders = {f"{parent}/" for path in listed for parent in Path(path).parents}
    return [*listed, *folders]


TRACKED = _tracked()


def _code(document: Path) -> Iterator[str]:
    """Yield the code spans of a document, and the lines of its code blocks."""
    text = document.read_text()
    yield from re.findall(r"`([^`\n]+)`", text.replace("```", ""))
    for block in re.findall(r"```\w*\n(.*?)```", text, re.S):
        yield from block.splitlines()


def _exists(name: str) -> bool:
    """Return whether a name or pattern matches a tracked path or the end of one."""
    return any(fnmatch(path, name) or fnmatch(path, f"*/{name}") for path in TRACKED)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_files_exist(document: Path) -> None:
    names = {name for name in _code(document) if FILE.fullmatch(name)} - FILES_OF_EXAMPLES
    assert not [name for name in names if not _exists(name.removeprefix("../"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)\)", document.read_text())
    assert not [link for link in links if "://" not in link and not (document.parent / link).exists()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_commands_exist(document: Path) -> None:
    code = "\n".join(_code(document))
    targets = set(re.findall(r"^make ([a-z][\w-]*)", code, re.M))
    assert targets <= set(re.findall(r"^([\w-]+):", MAKEFILE, re.M))
    modules = set(re.findall(r"python -m ([\w.]+)", code)) - {"pip"}
    assert not [name for name in modules if not _exists(f"{name.replace('.', '/')}*.py")]
    commands = set(re.findall(r"^hloom ([a-z]+)\b", code, re.M))
    assert commands <= set(main.commands)


def test_the_readme_names_every_command() -> None:
    named = re.findall(r"^hloom ([a-z]+)", (ROOT / "README.md").read_text(), re.M)
    assert sorted(named) == sorted(main.commands)


def test_the_page_of_the_compiler_names_every_variable() -> None:
    """Variables of the environment that the sources read, and no others."""
    read = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r'"(HLOOM_[A-Z_]+)"', path.read_text())
    }
    for document in DOCUMENTS:
        named = set(re.findall(r"`(HLOOM_[A-Z_]+)", document.read_text()))
        assert named == read if document.name == "compiler.md" else named <= read, document.name


def test_the_makefile_explains_every_target() -> None:
    """Its first comment is the output of ``make``; ``help`` and ``clean`` need no explanation."""
    explained = re.findall(r"^# {3}make ([\w-]+)", MAKEFILE, re.M)
    phony = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.M)
    assert set(explained) | {"help", "clean"} == set(" ".join(phony).split())


def test_decisions_have_the_same_sections() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(path.name[:4]) for path in records] == list(range(1, len(records) + 1))
    for path in records:
        text = path.read_text()
        assert re.findall(r"^## (.*)$", text, re.M) == [
            "Context",
            "Alternatives",
            "Decision",
            "Consequences",
        ], path.name
        assert re.search(r"^Date: \d{4}-\d\d-\d\d", text, re.M), path.name


def test_the_architecture_lists_every_package() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    listed = {
        name for row in re.findall(r"^\| (`[^|]*) \|", text, re.M) for name in re.findall(r"`(\w+)/`", row)
    }
    packages = {path.parent.name for path in (ROOT / "src" / "hloom").glob("*/__init__.py")}
    assert packages <= listed


def test_the_version_has_a_page() -> None:
    version = hloom.__version__.partition(".dev")[0]
    page = ROOT / "docs" / "releases" / f"{version}.md"
    assert page.read_text().startswith(f"# hloom {version}\n")
