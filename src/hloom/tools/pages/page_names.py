"""Names of operations: opcodes, and the functions of `hloom.ops`, named as on XLA's semantics page."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType
from typing import Any

import hloom.operations  # noqa: F401  # pyright: ignore[reportUnusedImport]  (declares the operations)
from hloom.ir.operation import REGISTRY

SUFFIXES = ("-start", "-done")


def opcode_of(name: str) -> str | None:
    """Return the opcode of an opcode or function in any spelling: ``all-gather``, ``AllGather``, ``Sub``."""
    return _opcodes().get(_key(name))


def builder_function(name: str) -> Callable[..., Any] | None:
    """Return the function of `hloom.ops` with a name such as ``DotGeneral``; None for opcodes."""
    from hloom import ops

    if _key(name) in map(_key, REGISTRY):
        return None
    return next((getattr(ops, each) for each in ops.__all__ if _key(each) == _key(name)), None)


@cache
def _opcodes() -> dict[str, str]:
    from hloom import ops

    opcodes = {_key(opcode): opcode for opcode in REGISTRY}
    for name in ops.__all__:
        function = getattr(ops, name)
        opcodes.setdefault(_key(name), opcodes.get(_key(function.__name__)) or emitted_opcode(function))
    return opcodes


def _key(name: str) -> str:
    return name.strip().lower().replace("-", "").replace("_", "")


def emitted_opcode(function: Callable[..., object]) -> str:
    """Return the opcode of the main instruction that a builder function adds.

    It is found among the constants of the function's code, or of the functions that it calls.
    """
    opcodes = list(dict.fromkeys(_emitted(inspect.unwrap(function), ())))
    main = [o for o in opcodes if not (o.endswith(SUFFIXES) and o.rpartition("-")[0] in opcodes)]
    return main[0] if main else ""


def _emitted(function: Callable[..., object], callers: tuple[Callable[..., object], ...]) -> Iterator[str]:
    code: CodeType = function.__code__  # type: ignore[attr-defined]
    cells = (cell.cell_contents for cell in function.__closure__ or ())  # type: ignore[attr-defined]
    opcodes = [text for text in (*cells, *code.co_consts) if isinstance(text, str) and text in REGISTRY]
    yield from opcodes
    if opcodes:
        return
    for name in code.co_names:
        called = function.__globals__.get(name)  # type: ignore[attr-defined]
        if inspect.isfunction(called) and called not in callers:
            yield from _emitted(inspect.unwrap(called), (*callers, called))
