"""hloom: XLA in Python. Read, check, print, build, draw, evaluate and compile HLO programs.

Names are imported at their first use, so that ``import hloom`` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from hloom.hooks import EntryPoint, provide

if TYPE_CHECKING:
    from hloom import debug as debug
    from hloom import ops as ops
    from hloom import passes as passes
    from hloom.builder.builder import XlaBuilder as XlaBuilder
    from hloom.builder.builder import XlaComputation as XlaComputation
    from hloom.builder.builder import XlaOp as XlaOp
    from hloom.errors import DeadlockError as DeadlockError
    from hloom.errors import EvaluationError as EvaluationError
    from hloom.errors import HloError as HloError
    from hloom.errors import ParseError as ParseError
    from hloom.errors import ShapeError as ShapeError
    from hloom.errors import VerifyError as VerifyError
    from hloom.files import Snapshot as Snapshot
    from hloom.files import load as load
    from hloom.files import load_all as load_all
    from hloom.files import load_snapshot as load_snapshot
    from hloom.files import save as save
    from hloom.files import save_snapshot as save_snapshot
    from hloom.ir.computation import HloComputation as HloComputation
    from hloom.ir.instruction import HloInstruction as HloInstruction
    from hloom.ir.module import HloModule as HloModule
    from hloom.ir.print_options import PrintOptions as PrintOptions
    from hloom.proofs.partitioned import prove_partitioned as prove_partitioned
    from hloom.proofs.symbolic.pairs import prove_any_size as prove_any_size
    from hloom.proofs.symbolic.rewrites import prove_rewrite as prove_rewrite
    from hloom.proofs.symbolic.rules import prove_rule as prove_rule
    from hloom.proofs.verdict import prove as prove
    from hloom.runtime.custom_call import register_custom_call as register_custom_call
    from hloom.runtime.executable import Executable as Executable
    from hloom.runtime.executable import compile as compile
    from hloom.shape import index_util as index_util
    from hloom.shape import layout_util as layout_util
    from hloom.shape import shape_util as shape_util
    from hloom.shape.element_type import ElementType as ElementType
    from hloom.shape.index import linear_index as linear_index
    from hloom.shape.index import multi_index as multi_index
    from hloom.shape.layout import Layout as Layout
    from hloom.shape.layout import Tile as Tile
    from hloom.shape.literal import Literal as Literal
    from hloom.shape.shape import Shape as Shape
    from hloom.stablehlo import from_jax as from_jax

__version__: Final = "0.2.0.dev0"

_HOMES: Final = {
    "builder.builder": ("XlaBuilder", "XlaComputation", "XlaOp"),
    "errors": ("DeadlockError", "EvaluationError", "HloError", "ParseError", "ShapeError", "VerifyError"),
    "files": ("Snapshot", "load", "load_all", "load_snapshot", "save", "save_snapshot"),
    "ir.computation": ("HloComputation",),
    "ir.instruction": ("HloInstruction",),
    "ir.module": ("HloModule",),
    "proofs.partitioned": ("prove_partitioned",),
    "proofs.symbolic.pairs": ("prove_any_size",),
    "proofs.symbolic.rewrites": ("prove_rewrite",),
    "proofs.symbolic.rules": ("prove_rule",),
    "proofs.verdict": ("prove",),
    "runtime.custom_call": ("register_custom_call",),
    "runtime.executable": ("Executable", "compile"),
    "shape.element_type": ("ElementType",),
    "shape.index": ("linear_index", "multi_index"),
    "shape.layout": ("Layout", "Tile"),
    "shape.literal": ("Literal",),
    "shape.shape": ("Shape",),
    "stablehlo": ("from_jax",),
    "ir.print_options": ("PrintOptions",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}
_MODULES: Final = {
    "debug": "debug",
    "index_util": "shape.index_util",
    "layout_util": "shape.layout_util",
    "ops": "ops",
    "passes": "passes",
    "shape_util": "shape.shape_util",
}
"""Modules that are public under these names."""

__all__ = sorted([*_HOME_OF, *_MODULES])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"hloom.{_MODULES[name]}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'hloom' has no attribute {name!r}")
    value = getattr(import_module(f"hloom.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


provide(
    cpu_backend=EntryPoint("hloom.cpu.backend:CpuBackend"),
    html_of=EntryPoint("hloom.tools.pages.notebook:html_of"),
    parse_module=EntryPoint("hloom.text.parser:parse_module"),
    print_instruction=EntryPoint("hloom.text.printer:print_instruction"),
    print_module=EntryPoint("hloom.text.printer:print_module"),
    read_literal=EntryPoint("hloom.proto.literal:read_literal"),
    read_module=EntryPoint("hloom.proto.reader:module_from_bytes"),
    read_shape=EntryPoint("hloom.proto.shape:read_shape"),
    trace=EntryPoint("hloom.debug.tracing:trace"),
    write_literal=EntryPoint("hloom.proto.literal:write_literal"),
    write_module=EntryPoint("hloom.proto.writer:module_to_bytes"),
    write_shape=EntryPoint("hloom.proto.shape:write_shape"),
)
