"""The number of files in import cycles is bounded, counting deferred and type-checking imports."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
LARGEST = 11
RECURSIVE = {"builder", "ir", "jax", "shape"}
"""Rooms of mutually recursive types: tuples of shapes, computations whose instructions call others."""


def module_name(file: Path, root: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph(root: Path) -> dict[str, set[str]]:
    """Return for each module below `root` those that it imports anywhere, by absolute imports."""
    files = {module_name(file, root): file for file in root.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for module, file in files.items():
        found: set[str] = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                named = (f"{node.module}.{alias.name}" for alias in node.names)
                found.update(name if name in files else node.module for name in named)
            elif isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
        graph[module] = (found & files.keys()) - {module}
    return graph


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [*graph[start]]
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += graph[module]
    return seen


def cycles(root: Path) -> list[list[str]]:
    """Return the strongly connected components of more than one module, the largest first."""
    graph = import_graph(root)
    reached = {module: reachable(graph, module) for module in graph}
    found = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in graph
        if module in reached[module]
    }
    return sorted(map(list, found), key=len, reverse=True)


def test_import_cycles_are_small() -> None:
    large = [cycle for cycle in cycles(SOURCE) if len(cycle) > LARGEST]
    assert not large, "\n".join(f"{len(cycle)} files: {', '.join(cycle)}" for cycle in large)


def test_other_rooms_have_no_import_cycle() -> None:
    assert {module.split(".")[1] for cycle in cycles(SOURCE) for module in cycle} <= RECURSIVE


@pytest.mark.parametrize(
    "back",
    [
        "from package.a import f",
        "def g():\n    import package.a",
        "if TYPE_CHECKING:\n    from package import a",
    ],
)
def test_a_cycle_is_found(tmp_path: Path, back: str) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from package.b import g")
    (package / "b.py").write_text(back)
    (package / "c.py").write_text("import package.a")
    assert cycles(tmp_path) == [["package.a", "package.b"]]
