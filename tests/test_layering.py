"""Layering: packages import only from the packages below them.

The tables below are the plan of `docs/architecture.md` in checkable form: the packages (rooms) that each may
import, also in functions and for types, and the heavy packages that each may load.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests import import_graph
from tests.import_graph import Import, When, imports

SOURCE = import_graph.SOURCE / "hloom"

FOUNDATION = {"errors", "hooks", "lifetime", "phases", "records", "settings", "shape"}
MODEL = FOUNDATION | {"ir"}
MEANING = MODEL | {"operations"}
READERS = MEANING | {"text", "proto", "builder", "evaluate", "passes"}
MIDDLE = MEANING | {"analysis", "plan", "codegen"}
BACK = READERS | {"analysis", "plan", "codegen", "buffers", "devices"}

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "hooks": set(),
    "lifetime": set(),
    "phases": {"records"},
    "records": set(),
    "settings": {"errors", "records"},
    "shape": {"errors", "records"},
    "ir": FOUNDATION,
    "error_bounds": MODEL,
    "operations": MODEL | {"error_bounds"},
    "text": MEANING,
    "proto": MEANING,
    "builder": MEANING,
    "devices": MODEL,
    "evaluate": MEANING | {"devices"},
    "analysis": MEANING | {"evaluate"},
    "passes": MEANING | {"evaluate", "analysis", "library_calls", "plan"},
    "plan": MEANING | {"analysis"},
    "codegen": MIDDLE,
    "buffers": MIDDLE,
    "library_calls": MEANING | {"builder", "evaluate"},
    "cpu": BACK | {"runtime"},
    "jaxlib": {"errors"},
    "stablehlo": MODEL | {"jaxlib"},
    "runtime": BACK | {"sharding", "stablehlo"},
    "sharding": MEANING | {"passes", "analysis"},
    "jax": BACK | {"cpu", "runtime", "sharding", "jaxlib"},
    "debug": BACK | {"cpu", "runtime", "jaxlib", "error_bounds"},
    "proofs": BACK | {"debug", "error_bounds", "sharding"},
    "fuzzing": BACK | {"cpu", "runtime", "sharding", "debug", "error_bounds"},
    "tools": BACK | {"stablehlo", "cpu", "runtime", "sharding", "jax", "debug", "proofs", "fuzzing"},
}

INNER_ORDER: dict[str, list[str]] = {
    "jax": ["pjrt", "calls", "devices", "programs", "compilation"],
    "sharding": ["tiling", "planning", "reading", "partitioning", "reporting", "storing"],
    "tools": [
        *("pictures", "console", "reports", "pages"),
        *("viewer", "language_server", "commands", "examples"),
    ],
}
"""The folders of rooms: each imports only from those on its left. Files beside them import from all."""

NAMED_IN_TYPES: dict[str, set[str]] = {"runtime": {"debug"}}
"""Higher rooms of which a room names a type only; `docs/architecture.md` gives the reasons."""

MAY_LOAD: dict[str, set[str]] = {
    "llvmlite": {"cpu", "runtime"},
    "scipy": {"operations", "evaluate", "passes", "cpu", "runtime"},
    "google": {"proto", "tools"},
    "jax": {"stablehlo", "jaxlib", "jax", "debug"},
    "jaxlib": {"jaxlib"},
    "mpi4py": {"runtime"},
    "click": {"tools"},
    "rich": {"tools"},
    "PIL": {"tools"},
    "pygls": {"tools"},
    "lsprotocol": {"tools"},
}


def room_of(module: str) -> str:
    """Return the room of a dotted name, `ir` for what is below hloom.ir; an empty string if it has none."""
    parts = module.split(".")
    return parts[1] if parts[0] == "hloom" and len(parts) > 1 and parts[1] in MAY_IMPORT else ""


def violations(module: str, found: Iterable[Import]) -> Iterator[str]:
    """Yield a line for each import that the plan does not allow."""
    room = room_of(module)
    for name, line, when in found:
        top, other = name.partition(".")[0], room_of(name)
        types = NAMED_IN_TYPES.get(room, set()) if when is When.TYPING else set[str]()
        allowed = MAY_IMPORT.get(room, set()) | types
        if room and other and other != room and other not in allowed:
            yield f"{module}:{line}: {room} must not import {other}"
        elif top in MAY_LOAD and room not in MAY_LOAD[top] and when is not When.TYPING:
            yield f"{module}:{line}: {room or 'hloom itself'} must not load {top}"


def inner_violations(module: str, found: Iterable[Import]) -> Iterator[str]:
    """Yield a line for each import of a folder within a room that goes to a folder on its right."""
    _, room, folder, *_ = [*module.split("."), "", ""]
    order = INNER_ORDER.get(room, [])
    later = order[order.index(folder) + 1 :] if folder in order else []
    for name, line, _ in found:
        _, other_room, other, *_ = [*name.split("."), "", ""]
        if other_room == room and other in later:
            yield f"{module}:{line}: {folder} must not import {other}"


def source_files() -> list[Path]:
    return sorted(import_graph.import_graph().files.values())


def test_every_import_goes_to_a_room_on_the_left() -> None:
    lines = [
        line
        for module, found in import_graph.import_graph().imports.items()
        for line in violations(module, found)
    ]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize("room", INNER_ORDER)
def test_every_import_goes_to_a_folder_on_the_left(room: str) -> None:
    folders = {
        path.name for path in (SOURCE / room).iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    assert folders == set(INNER_ORDER[room])
    graph = import_graph.import_graph()
    lines = [line for module, found in graph.imports.items() for line in inner_violations(module, found)]
    assert not lines, "\n".join(lines)


def test_an_import_of_a_folder_on_the_right_is_noticed() -> None:
    tree = ast.parse("def f():\n    from hloom.jax.programs import executables")
    complaint = "hloom.jax.pjrt.abi:2: pjrt must not import programs"
    assert list(inner_violations("hloom.jax.pjrt.abi", imports(tree, "hloom.jax.pjrt"))) == [complaint]


def private_names(tree: ast.Module) -> list[str]:
    """Return what code names of the private parts of JAX and of the modules of jaxlib."""
    words = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    words += [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    words += [found.name for found in imports(tree, "")]
    return [w for w in words if isinstance(w, str) and re.match(r"(jax\.)?_src\b|jaxlib\.\w", w)]


def test_one_file_names_private_parts_of_jax() -> None:
    texts = {file: file.read_text() for file in source_files()}
    candidates = [file for file, text in texts.items() if "_src" in text or "jaxlib" in text]
    naming = {file for file in candidates if private_names(ast.parse(texts[file]))}
    assert naming == {SOURCE / "jaxlib" / "private.py"}


@pytest.mark.parametrize(
    "code",
    [
        "from jax._src import core",
        "import jax\nbridge = jax._src.xla_bridge",
        'import_module("jax._src.compiler")',
        'import_module("jaxlib._jax")',
        "from jaxlib.mlir import ir",
    ],
)
def test_a_private_part_of_jax_is_noticed(code: str) -> None:
    assert private_names(ast.parse(code))


def test_every_directory_is_a_room_of_the_plan() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms <= set(MAY_IMPORT), f"not in the plan: {sorted(rooms - set(MAY_IMPORT))}"


def lines_about(module: str, code: str) -> Iterator[str]:
    return violations(module, imports(ast.parse(code), module.rpartition(".")[0]))


@pytest.mark.parametrize(
    ("module", "code", "complaint"),
    [
        ("hloom.shape.layout", "from hloom.ir import module", "shape must not import ir"),
        ("hloom.shape.layout", "from ..ir.module import HloModule", "shape must not import ir"),
        ("hloom.operations.sorting", "import hloom.text.parser", "operations must not import text"),
        ("hloom.operations.sorting", "from hloom import evaluate", "operations must not import evaluate"),
        ("hloom.text.parser", "def f():\n    import scipy.linalg", "text must not load scipy"),
        ("hloom.ir.module", "from hloom.text import parser", "ir must not import text"),
        (
            "hloom.ir.calling",
            "def read():\n    from hloom.proto import literal",
            "ir must not import proto",
        ),
        (
            "hloom.ir.module",
            "if TYPE_CHECKING:\n    import hloom.text.parser",
            "ir must not import text",
        ),
        ("hloom.ir.window", 'READ = EntryPoint("hloom.text.parser:parse_module")', "ir must not import text"),
        ("hloom.ir.window", 'text = import_module("hloom.text.parser")', "ir must not import text"),
        (
            "hloom.runtime.executable",
            "def f():\n    import hloom.debug",
            "runtime must not import debug",
        ),
        ("hloom", "import llvmlite.binding", "hloom itself must not load llvmlite"),
    ],
)
def test_an_import_to_the_right_is_noticed(module: str, code: str, complaint: str) -> None:
    assert [line.split(": ", 1)[1] for line in lines_about(module, code)] == [complaint]


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("hloom.operations.sorting", "from hloom.ir.module import HloModule\nfrom . import windows"),
        ("hloom.ir.module", 'PARSE: Final[Hook[[str], HloModule]] = Hook("parse_module")'),
        ("hloom.proto.config", "from hloom.proto.shape import read_shape"),
        ("hloom.runtime.executable", "if TYPE_CHECKING:\n    from hloom.debug.tracing import Trace"),
        ("hloom.cpu.jit", "import llvmlite.binding"),
    ],
)
def test_what_the_plan_allows_is_allowed(module: str, code: str) -> None:
    assert not list(lines_about(module, code))


def test_importing_hloom_loads_nothing_heavy() -> None:
    code = "import sys, hloom; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not set(loaded.split()) & set(MAY_LOAD)


def test_files_stay_short_enough_to_read() -> None:
    tests = Path(__file__).parent
    lines = {file: len(file.read_text().splitlines()) for file in [*source_files(), *tests.rglob("*.py")]}
    assert not {str(file): count for file, count in lines.items() if count > 600}


def test_the_plug_in_registers_one_fork_hook() -> None:
    """The plug-in has one hook: a second one would run in an order that depends on imports."""
    files = [f.name for f in (SOURCE / "jax").rglob("*.py") if "register_at_fork" in f.read_text()]
    assert files == ["forks.py"]


def test_tests_have_one_import_root() -> None:
    """``tests.oracle``, never ``oracle``: a module that is imported by two names exists twice."""
    tests = Path(__file__).parent
    inside = {path.stem for path in tests.iterdir() if path.is_dir() or path.suffix == ".py"} - {"benchmarks"}
    found = [
        f"{path.relative_to(tests)}:{node.lineno}: {name}"
        for path in tests.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in _absolute_names(node)
        if name.partition(".")[0] in inside
    ]
    assert not found


def _absolute_names(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom(module=str() as module, level=0):
            yield module
        case _:
            pass
