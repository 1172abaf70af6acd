"""The import graph of hloom's sources, for the tests of layers, of cycles and of the cache's key.

An import counts wherever it stands: at the top of a file, in a function, under ``if TYPE_CHECKING:``, and as
the name of a module in ``EntryPoint("a.b:c")``, ``import_module("a.b")`` or ``imported_from("a.b", …)``.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src"
_NAMING = {"EntryPoint", "import_module", "imported_from", "__import__"}
"""Functions whose first argument names a module."""


class When(Enum):
    """When an import happens."""

    LOADING = "when the file is loaded"
    CALLING = "when a function is called"
    TYPING = "never: only type checkers read it"


class Import(NamedTuple):
    """One import: the dotted name of a module or of something in it, the line, and when it happens."""

    name: str
    line: int
    when: When


def imports(
    tree: ast.AST, package: str, when: When = When.LOADING, *, calls: bool = True
) -> Iterator[Import]:
    """Yield every import below a node; relative ones are resolved against the package.

    ``calls``: look for modules that calls name too, for which all expressions are read.
    """
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.expr() if not calls:
                pass
            case ast.Import():
                yield from (Import(alias.name, node.lineno, when) for alias in node.names)
            case ast.ImportFrom():
                home = _home(node, package)
                yield from (Import(f"{home}.{alias.name}", node.lineno, when) for alias in node.names)
            case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Attribute(ast.Name("typing"), "TYPE_CHECKING")):
                for statement in node.body:
                    yield from imports(ast.Module([statement], []), package, When.TYPING, calls=calls)
                for statement in node.orelse:
                    yield from imports(ast.Module([statement], []), package, when, calls=calls)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                inner = When.CALLING if when is When.LOADING else when
                yield from imports(node, package, inner, calls=calls)
            case _:
                if isinstance(node, ast.Call) and (name := _named_module(node)) is not None:
                    yield Import(name, node.lineno, When.CALLING)
                yield from imports(node, package, when, calls=calls)


def _home(node: ast.ImportFrom, package: str) -> str:
    """Return the module from which names are imported."""
    if not node.level:
        return node.module or ""
    parents = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parents, *([node.module] if node.module else [])])


def _named_module(node: ast.Call) -> str | None:
    """Return the module in a call such as ``EntryPoint("a.b:c")``; None for any other call."""
    match node:
        case ast.Call(
            func=ast.Name(id=function) | ast.Attribute(attr=function),
            args=[ast.Constant(value=str() as name), *_],
        ) if function in _NAMING:
            return name.partition(":")[0]
        case _:
            return None


class Graph(NamedTuple):
    """The modules below a folder with their imports of each other.

    Attributes:
        files: the file of each module.
        imports: those of each module, also of modules that are not below the folder.
    """

    files: Mapping[str, Path]
    imports: Mapping[str, list[Import]]

    def module(self, name: str) -> str | None:
        """Return the module of a dotted name, which may end in the name of a function or class."""
        home = name.rpartition(".")[0]
        return name if name in self.files else home if home in self.files else None

    def edges(self, whens: Collection[When] = tuple(When)) -> dict[str, set[str]]:
        """Return for each module the others that it imports."""
        edges: dict[str, set[str]] = {}
        for module, found in self.imports.items():
            targets = {self.module(each.name) for each in found if each.when in whens}
            edges[module] = {target for target in targets if target is not None} - {module}
        return edges


@cache
def import_graph(root: Path = SOURCE) -> Graph:
    """Return the graph of the modules below a folder."""
    files: dict[str, Path] = {}
    found: dict[str, list[Import]] = {}
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        package = ".".join(parts[:-1])
        module = package if parts[-1] == "__init__" else ".".join(parts)
        files[module] = file
        text = file.read_text()
        calls = any(name in text for name in _NAMING)
        found[module] = list(imports(ast.parse(text), package, calls=calls))
    return Graph(files, found)


def reachable(edges: Mapping[str, Collection[str]], start: Collection[str]) -> set[str]:
    """Return what is imported from some modules, directly or not."""
    reached: set[str] = set()
    waiting = [target for module in start for target in edges[module]]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += edges[module]
    return reached


def cycles(edges: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module, the largest first."""
    reached = {module: reachable(edges, [module]) for module in edges}
    components = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in edges
        if module in reached[module]
    }
    return sorted(map(list, components), key=len, reverse=True)
