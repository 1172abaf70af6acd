"""Programs of StableHLO and of JAX: read and written through jaxlib, which converts them from and to HLO.

Files are recognized by their content: MLIR text, MLIR bytecode (StableHLO's portable artifacts among it), and
what `jax.export` serializes, which holds a portable artifact. ::

    module = hloom.from_jax(jnp.sin, jnp.ones(3))
    hloom.compile(jax.jit(f).lower(x))
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Protocol, runtime_checkable

from hloom.errors import HloError, expect
from hloom.ir.module import HloModule
from hloom.jaxlib import private
from hloom.regex import regex

_BYTECODE: Final = b"ML\xefR"
"""The first bytes of MLIR bytecode."""
_TEXT: Final = regex(
    rb"(?:\s|//[^\n]*(?:\n|\Z)|[#!][\w.]+\s*=[^\n]*\n)*"
    rb'(?:"builtin\.module"|module\b[^{]*\{|(?:func\.)?func\b[^{]*@|"?(?:stablehlo|mhlo|vhlo|chlo|sdy)\.)'
)
_POSITION: Final = regex(r"-:(?P<line>\d+):(?P<column>\d+): (?:error: )?")
"""A place in a text that MLIR read from no file."""
_DIALECTS: Final = regex(rb"\b(?:stablehlo|mhlo|vhlo|chlo|func)\.\w|\bfunc\s+@")


@runtime_checkable
class Lowered(Protocol):
    """Result of ``jax.jit(f).lower(x)``."""

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """Return the program in a dialect."""
        ...


@runtime_checkable
class Exported(Protocol):
    """Result of ``jax.export.export(f)(x)`` and of ``jax.export.deserialize``."""

    @property
    def mlir_module_serialized(self) -> bytes:
        """The program as a portable artifact of StableHLO."""
        ...


def holds_stablehlo(data: bytes) -> bool:
    """Return whether bytes are MLIR text, MLIR bytecode, or a function serialized by `jax.export`."""
    return data.startswith(_BYTECODE) or _exported(data) is not None or _is_text(data)


def _is_text(data: bytes) -> bool:
    return _TEXT.match(data) is not None and _DIALECTS.search(data) is not None


def _exported(data: bytes) -> bytes | None:
    """Return the bytecode in a function serialized by `jax.export`; None for other bytes.

    That is a flatbuffer: an offset to a table, which begins with the distance to the list of its fields. The
    program is the field that holds bytecode; that of the derivative is in a table of its own.
    """
    if _BYTECODE not in data:
        return None
    table = _number(data, 0)
    fields = table - _number(data, table)
    if not 0 <= fields < len(data):
        return None
    for at in range(fields + 4, fields + _number(data, fields, 2), 2):
        field = table + _number(data, at, 2)
        start = field + _number(data, field) + 4
        if start >= 0 and data.startswith(_BYTECODE, start):
            return data[start : start + _number(data, start - 4)]
    return None


def _number(data: bytes, at: int, size: int = 4) -> int:
    return int.from_bytes(data[at : at + size], "little", signed=size == 4) if at >= 0 else 0


def module_from_stablehlo(data: bytes) -> HloModule:
    """Return the HLO of a program of StableHLO, in any of the forms that `holds_stablehlo` recognizes.

    Raises HloError for a program that jaxlib refuses (``stablehlo.conversion``), and where there is no jaxlib
    (``stablehlo.jaxlib``).
    """
    program = _exported(data) or data
    _require_jax("reading StableHLO")
    try:
        computation = private.to_computation()(
            program if program.startswith(_BYTECODE) else program.decode("utf-8", "replace"),
            use_tuple_args=False,
            return_tuple=False,
        )
    except (RuntimeError, ValueError) as error:
        raise _refusal(program, str(error)) from error
    return HloModule.from_proto(computation.as_serialized_hlo_module_proto())


def _refusal(program: bytes, reason: str) -> HloError:
    """Return the error for a program that jaxlib refuses, at the position in its text if the reason has one.

    MLIR calls the text ``-``.
    """
    message = "jaxlib does not convert this program of StableHLO to HLO: "
    at = _POSITION.search(reason)
    if at is None or program.startswith(_BYTECODE):
        return HloError(message + reason, rule="stablehlo.conversion")
    line, column = int(at["line"]), int(at["column"])
    lines = program.decode("utf-8", "replace").split("\n")
    text = _POSITION.sub(lambda other: f"{other['line']}:{other['column']}: ", reason[at.end() :]).strip()
    return HloError(
        message + text.replace("<unknown>:0: error: ", "").replace("\n", "; "),
        rule="stablehlo.conversion",
        line=line,
        column=column,
        source_line=lines[line - 1] if line <= len(lines) else None,
    )


def to_stablehlo(module: HloModule) -> str:
    """Return a program as the text of StableHLO; raises HloError as `module_from_stablehlo` does."""
    _require_jax("writing StableHLO")
    try:
        return private.to_stablehlo()(private.XlaComputation()(module.to_proto()))
    except (RuntimeError, ValueError) as error:
        message = f"jaxlib does not convert this program to StableHLO: {error}"
        raise HloError(message, rule="stablehlo.conversion") from error


def from_jax(function: Callable[..., Any], *arguments: Any, **named: Any) -> HloModule:
    """Return the HLO of a function of JAX for some arguments, which it is traced with but not run.

    Args:
        function: a function for `jax.jit`, or the result of it.
        arguments, named: arrays, numbers, `jax.ShapeDtypeStruct`s, and trees of them.

    The parameters are the leaves of the arguments in JAX's order, unused ones too unless ``function`` is the
    result of `jax.jit`, which drops them.
    """
    if not hasattr(function, "lower"):
        expect(function, Callable, "a function, or the result of jax.jit")
        _require_jax("tracing functions of JAX")
        jax: Any = import_module("jax")
        function = jax.jit(function, keep_unused=True)
    lowered: Any = function
    return module_of(lowered.lower(*arguments, **named))


def module_of(program: Lowered | Exported) -> HloModule:
    """Return the HLO of a lowered or exported function of JAX."""
    if isinstance(program, Exported):
        return module_from_stablehlo(program.mlir_module_serialized)
    return HloModule.from_proto(program.compiler_ir("hlo").as_serialized_hlo_module_proto())


def _require_jax(task: str) -> None:
    """Raise HloError if JAX is not installed; switch off jaxlib's log of what is no warning."""
    if find_spec("jax") is None or find_spec("jaxlib") is None:
        message = f"{task} needs jax, which is not installed: pip install 'hloom[jax]'"
        raise HloError(message, rule="stablehlo.jaxlib")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # as JAX sets it, if jaxlib is loaded before JAX
