"""The number of files in import cycles is bounded, counting deferred and type-checking imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.import_graph import cycles, import_graph

LARGEST = 8
RECURSIVE = {"builder", "ir", "shape"}
"""Rooms of mutually recursive types: tuples of shapes, computations whose instructions call others."""


def test_import_cycles_are_small() -> None:
    large = [cycle for cycle in cycles(import_graph().edges()) if len(cycle) > LARGEST]
    assert not large, "\n".join(f"{len(cycle)} files: {', '.join(cycle)}" for cycle in large)


def test_other_rooms_have_no_import_cycle() -> None:
    assert {module.split(".")[1] for cycle in cycles(import_graph().edges()) for module in cycle} <= RECURSIVE


@pytest.mark.parametrize(
    "back",
    [
        "from package.a import f",
        "from .a import f",
        "def g():\n    import package.a",
        "if TYPE_CHECKING:\n    from package import a",
        'F = EntryPoint("package.a:f")',
        'def g():\n    return importlib.import_module("package.a")',
    ],
)
def test_a_cycle_is_found(tmp_path: Path, back: str) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from package.b import g")
    (package / "b.py").write_text(back)
    (package / "c.py").write_text("import package.a")
    assert cycles(import_graph(tmp_path).edges()) == [["package.a", "package.b"]]
