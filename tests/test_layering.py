"""Layering: packages import only from the packages below them.

The tables below are the plan of `docs/architecture.md` in checkable form: the packages (rooms) that each may
import, and the heavy packages that each may load. Imports under `if TYPE_CHECKING:` load nothing and are not
counted here; `test_import_cycles.py` counts them. An `EntryPoint` is a deferred import.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "hloom"

FOUNDATION = {"errors", "phases", "shape"}
MODEL = FOUNDATION | {"ir"}
MEANING = MODEL | {"operations"}
READERS = MEANING | {"text", "wire", "proto", "builder", "evaluate", "passes"}
MIDDLE = MEANING | {"analysis", "plan", "codegen"}
BACK = READERS | {"analysis", "plan", "codegen", "buffers"}

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "phases": set(),
    "shape": {"errors"},
    "ir": FOUNDATION,
    "operations": MODEL,
    "text": MEANING,
    "wire": FOUNDATION,
    "proto": MEANING | {"wire"},
    "builder": MEANING,
    "evaluate": MEANING,
    "analysis": MEANING | {"evaluate"},
    "passes": MEANING | {"evaluate", "analysis", "library_calls", "plan"},
    "plan": MEANING | {"analysis"},
    "codegen": MIDDLE,
    "buffers": MIDDLE,
    "library_calls": MEANING | {"builder", "evaluate"},
    "cpu": BACK,
    "private": {"errors"},
    "stablehlo": MODEL | {"private"},
    "runtime": BACK | {"cpu", "stablehlo"},
    "sharding": MEANING | {"passes", "analysis"},
    "jax": BACK | {"cpu", "runtime", "sharding", "private"},
    "debug": BACK | {"cpu", "runtime", "private"},
    "tools": BACK | {"stablehlo", "cpu", "runtime", "sharding", "jax", "debug"},
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

WIRE = {"proto.schema", "proto.shape", "proto.literal"}
"""The room `wire`: parts of proto/ below the model, which convert shapes and literals to and from protos."""
PRIVATE = "jax.private"
"""The room `private`: the only file that names private parts of JAX and jaxlib."""

# HloModule names the functions that convert whole modules as entry points. Codecs of shapes and literals
# import `wire` in the function that needs it, because programs read from text do not need google.protobuf.
REACHES_FORWARD: set[tuple[str, str]] = {
    ("ir/instruction.py", "text"),
    ("ir/module.py", "text"),
    ("ir/module.py", "proto"),
    ("ir/calling.py", "wire"),
    ("operations/structure.py", "wire"),
    ("runtime/executable.py", "debug"),
    ("runtime/executable.py", "sharding"),
}

MAY_LOAD: dict[str, set[str]] = {
    "llvmlite": {"cpu", "runtime"},
    "scipy": {"operations", "evaluate", "passes", "cpu", "runtime"},
    "google": {"wire", "proto", "tools"},
    "jax": {"stablehlo", "private", "jax", "debug"},
    "jaxlib": {"private"},
    "mpi4py": {"runtime"},
    "click": {"tools"},
    "rich": {"tools"},
    "PIL": {"tools"},
    "pygls": {"tools"},
    "lsprotocol": {"tools"},
}


class Import(NamedTuple):
    """One import: the dotted module, the line, and whether it happens when the file is loaded."""

    module: str
    line: int
    eager: bool


def is_type_checking(node: ast.If) -> bool:
    return ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def entry_point(node: ast.AST) -> str | None:
    """Return the dotted name in `EntryPoint("package.module:function")`; None for any other node."""
    match node:
        case ast.Call(func=ast.Name(id="EntryPoint"), args=[ast.Constant(value=str() as name)]):
            return name.replace(":", ".")
        case _:
            return None


def imports(node: ast.AST, package: list[str], eager: bool = True) -> Iterator[Import]:
    """Yield every import below `node` that can be executed, relative ones resolved against `package`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, eager) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = package[: len(package) - child.level + 1] if child.level else []
            parts = [*base, *(child.module.split(".") if child.module else [])]
            # `from hloom import text` names a package as `import hloom.text` does
            yield from (Import(".".join([*parts, alias.name]), child.lineno, eager) for alias in child.names)
        elif (entry := entry_point(child)) is not None:
            yield Import(entry, child.lineno, eager=False)
        elif isinstance(child, ast.If) and is_type_checking(child):
            for other in child.orelse:
                yield from imports(other, package, eager)
        else:
            lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from imports(child, package, eager and not lazy)


def room_of(file: Path) -> str:
    """Return `errors` for errors.py, `ir` for files below ir/; "" for files such as __init__.py."""
    return room_of_module(".".join(file.relative_to(SOURCE).with_suffix("").parts))


def room_of_module(module: str) -> str:
    """Return the room of a dotted name below `hloom`; an empty string if it belongs to none."""
    parts = module.split(".")
    if ".".join(parts[:2]) in WIRE:
        return "wire"
    if ".".join(parts[:2]) == PRIVATE:
        return "private"
    return parts[0] if parts[0] in MAY_IMPORT else ""


def violations(file: Path, tree: ast.Module) -> Iterator[str]:
    relative = file.relative_to(SOURCE).as_posix()
    room = room_of(file)
    package = ["hloom", *file.relative_to(SOURCE).parent.parts]
    for found in imports(tree, package):
        top, _, rest = found.module.partition(".")
        if top == "hloom" and room:
            other = room_of_module(rest)
            forward = not found.eager and (relative, other) in REACHES_FORWARD
            if other and other != room and other not in MAY_IMPORT[room] and not forward:
                yield f"{relative}:{found.line}: {room} must not import {other}"
        elif top in MAY_LOAD and room not in MAY_LOAD[top]:
            yield f"{relative}:{found.line}: {room or 'hloom itself'} must not load {top}"


def inner_violations(file: Path, tree: ast.Module) -> Iterator[str]:
    """Yield the imports of a folder within a room that go to a folder on its right."""
    room, *folders, name = file.relative_to(SOURCE).parts
    order = INNER_ORDER.get(room)
    if order is None or not folders:
        return
    for each in imports(tree, ["hloom", room, *folders]):
        parts = each.module.split(".")
        later = len(parts) > 2 and parts[2] in order[order.index(folders[0]) + 1 :]
        if parts[:2] == ["hloom", room] and later:
            yield f"{room}/{folders[0]}/{name}:{each.line}: {folders[0]} must not import {parts[2]}"


def source_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_every_import_goes_to_a_room_on_the_left() -> None:
    found = [v for file in source_files() for v in violations(file, ast.parse(file.read_text()))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("room", INNER_ORDER)
def test_every_import_goes_to_a_folder_on_the_left(room: str) -> None:
    folders = {
        path.name for path in (SOURCE / room).iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    assert folders == set(INNER_ORDER[room])
    files = sorted((SOURCE / room).rglob("*.py"))
    wrong = [v for file in files for v in inner_violations(file, ast.parse(file.read_text()))]
    assert not wrong, "\n".join(wrong)


def test_an_import_of_a_folder_on_the_right_is_noticed() -> None:
    tree = ast.parse("def f():\n    from hloom.jax.programs import executables")
    complaint = "jax/pjrt/abi.py:2: pjrt must not import programs"
    assert list(inner_violations(SOURCE / "jax/pjrt/abi.py", tree)) == [complaint]


def private_names(tree: ast.Module) -> list[str]:
    """Return what code names of the private parts of JAX and of the modules of jaxlib."""
    words = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    words += [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    words += [found.module for found in imports(tree, [])]
    return [w for w in words if isinstance(w, str) and re.match(r"(jax\.)?_src\b|jaxlib\.\w", w)]


def test_one_file_names_private_parts_of_jax() -> None:
    naming = {file for file in source_files() if private_names(ast.parse(file.read_text()))}
    assert naming == {SOURCE / "jax" / "private.py"}


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


@pytest.mark.parametrize(
    ("file", "code", "complaint"),
    [
        ("shape/layout.py", "from hloom.ir import module", "shape must not import ir"),
        ("shape/layout.py", "from ..ir.module import HloModule", "shape must not import ir"),
        ("operations/sorting.py", "import hloom.text.parser", "operations must not import text"),
        ("operations/sorting.py", "from hloom import evaluate", "operations must not import evaluate"),
        ("text/parser.py", "def f():\n    import scipy.linalg", "text must not load scipy"),
        ("ir/module.py", "from hloom.text import parser", "ir must not import text"),
        ("ir/module.py", "from hloom.proto.literal import read_literal", "ir must not import wire"),
        ("ir/window.py", 'READ = EntryPoint("hloom.text.parser:parse_module")', "ir must not import text"),
        ("proto/shape.py", "from hloom.ir.operation import ProgramShape", "wire must not import ir"),
        ("proto/schema/packed.py", "from hloom.proto import reader", "wire must not import proto"),
        ("__init__.py", "import llvmlite.binding", "hloom itself must not load llvmlite"),
    ],
)
def test_an_import_to_the_right_is_noticed(file: str, code: str, complaint: str) -> None:
    assert [v.split(": ", 1)[1] for v in violations(SOURCE / file, ast.parse(code))] == [complaint]


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("operations/sorting.py", "from hloom.ir.module import HloModule\nfrom . import windows"),
        ("ir/module.py", "def from_text(text):\n    from hloom.text.parser import parse"),
        ("ir/module.py", 'PARSE = EntryPoint("hloom.text.parser:parse_module")'),
        ("ir/calling.py", "def read():\n    from hloom.proto.literal import read_literal"),
        ("proto/config.py", "from hloom.proto.shape import read_shape"),
        ("ir/codec.py", "if TYPE_CHECKING:\n    from hloom.proto.schema.hlo_pb2 import HloModuleProto"),
        ("cpu/jit.py", "import llvmlite.binding"),
    ],
)
def test_what_the_plan_allows_is_allowed(file: str, code: str) -> None:
    assert not list(violations(SOURCE / file, ast.parse(code)))


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
