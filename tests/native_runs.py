"""Compile HLO text for this machine in tests, and compare results with the reference evaluator."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from hloom.buffers.buffers import ALIGNMENT, leaves
from hloom.codegen import target
from hloom.codegen.llvm import print_module
from hloom.cpu import emitters  # noqa: F401  (registers emitters)
from hloom.cpu.jit.host_call_text import calls_in, places_of_calls, text_of_calls
from hloom.cpu.jit.llvm import generate, simplified_names
from hloom.cpu.jit.loader import LoadedObject
from hloom.cpu.loaded_program import external_address
from hloom.cpu.pipeline import CPU_PIPELINE
from hloom.cpu.program import ENTRY, emit_program
from hloom.cpu.runtime.host import HostCalls
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.cloning import clone_module
from hloom.ir.module import HloModule
from hloom.operations.values import elements_of
from hloom.shape.shape import Shape
from tests import agreement
from tests.evaluation import parse

_SERIAL = """
define i32 @hloom_parallel(ptr %context, ptr %task, ptr %packed, i64 %trips, i64 %grain) {
  call void %task(ptr %packed, i64 0, i64 %trips)
  ret i32 0
}
"""


@lru_cache(maxsize=200)
def object_of(text: str, machine: target.Target, simplified: tuple[str, ...]) -> bytes:
    """Return the object code of LLVM IR, which several programs and tests may have in common."""
    return generate(text, machine, simplified=simplified)


class Native:
    """A compiled program, run without a thread pool; the bytes around results must not change."""

    def __init__(self, module: HloModule, machine: target.Target | None = None) -> None:
        machine = machine or target.host()
        self.optimized = clone_module(module)
        CPU_PIPELINE.run(self.optimized)
        self.entry_shape = module.entry.root.shape
        self.parameters = [p.shape for p in module.entry.parameters]
        self.program = emit_program(self.optimized, machine)
        emitted = self.program.module
        serial = _SERIAL if emitted.declarations.pop("hloom_parallel", None) else ""
        code = object_of(print_module(emitted) + serial, machine, tuple(simplified_names(emitted)))
        self._loaded = LoadedObject([code], external_address, emitted.data)
        prototype = ctypes.PYFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)
        self._entry = prototype(self._loaded.symbols[ENTRY])
        # As the cache has them: read from the text beside the code.
        calls = self.optimized, self.program.host_calls
        self.host = HostCalls(calls_in(text_of_calls(*calls), places_of_calls(*calls)))

    def __call__(self, *arguments: Any) -> Any:
        pairs = zip(self.parameters, arguments, strict=True)
        flat = list(itertools.chain(*(flatten(shape, value) for shape, value in pairs)))
        shapes = [shape for _, shape in leaves(self.entry_shape)]
        results = [guarded(shape) for shape in shapes]
        temp = np.full(self.program.temp_bytes + 2 * ALIGNMENT, 0xA5, np.uint8)
        place = temp.ctypes.data + -temp.ctypes.data % ALIGNMENT
        held = [np.ascontiguousarray(a) for a in flat]
        pointers = (ctypes.c_void_p * max(1, len(held)))(*[a.ctypes.data for a in held])
        targets = (ctypes.c_void_p * max(1, len(results)))(*[r.ctypes.data + 64 for r in results])
        self.host.run(lambda: self._entry(pointers, targets, place, None))
        assert all((r[:64] == 0xA5).all() and (r[-64:] == 0xA5).all() for r in results), "out of bounds"
        arrays = iter([ungarded(r, shape) for r, shape in zip(results, shapes, strict=True)])
        return unflatten(self.entry_shape, arrays)


def guarded(shape: Shape) -> np.ndarray[Any, Any]:
    """Return bytes for an array, between bytes that must not change."""
    size = shape.element_count * shape.element_type.numpy_dtype.itemsize if shape.is_array else 0
    return np.full(size + 128, 0xA5, np.uint8)


def ungarded(memory: np.ndarray[Any, Any], shape: Shape) -> Any:
    """Return the array in guarded bytes."""
    if not shape.is_array:
        return None
    return memory[64:-64].copy().view(shape.element_type.numpy_dtype).reshape(shape.dimensions)


def flatten(shape: Shape, value: Any) -> list[Any]:
    """Return the leaves of an argument; an empty array for a token."""
    if shape.is_tuple:
        parts = elements_of(value) or ()
        return [x for s, v in zip(shape.tuple_shapes, parts, strict=True) for x in flatten(s, v)]
    if not shape.is_array:
        return [np.zeros(0)]
    return [np.asarray(value, shape.element_type.numpy_dtype).reshape(shape.dimensions)]


def unflatten(shape: Shape, arrays: Any) -> Any:
    """Return arrays in the form of a shape."""
    if shape.is_tuple:
        return tuple([unflatten(s, arrays) for s in shape.tuple_shapes])
    return next(arrays)


@lru_cache(maxsize=8)
def parsed(text: str) -> HloModule:
    """Return the module of a text, which no caller changes."""
    return parse(text)


@cache
def compiled(text: str) -> Native:
    """Compile a program."""
    module = parsed(text)
    module.verify()
    return Native(module)


def both(text: str, *arguments: Any) -> tuple[Any, Any]:
    """Return (the result of native code, the evaluator's result)."""
    native = compiled(text)
    values = [a if isinstance(a, tuple) or a is None else np.asarray(a) for a in arguments]
    module = parsed(text)
    return native(*values), Evaluator().run(module.entry, values)


def agree(text: str, *arguments: Any, rounded: bool = False, signs: bool = True) -> Any:
    """Assert that native code agrees with the evaluator; return the result.

    Args:
        rounded: compare each element within the program's rounding error there, else bit for bit.
        signs: zeros must have the signs of the evaluator's.
    """
    if rounded:
        values = [a if isinstance(a, tuple) or a is None else np.asarray(a) for a in arguments]
        got = compiled(text)(*values)
        agreement.computed(got, parsed(text), values)
        return got
    got, wanted = both(text, *arguments)
    (agreement.same if signs else agreement.equal)(got, wanted)
    return got


def draw(rng: np.random.Generator, shape: Shape | str) -> Any:
    """Draw random values of a shape: small integers, normal floats with some special ones, nested tuples."""
    if isinstance(shape, str):
        shape = Shape.parse(shape)
    if shape.is_tuple:
        return tuple(draw(rng, s) for s in shape.tuple_shapes)
    if not shape.is_array:
        return None
    kind, sizes = shape.element_type, shape.dimensions
    if kind.is_predicate:
        return rng.integers(0, 2, sizes).astype(bool)
    if kind.is_integer:
        low, high = kind.limits
        values = rng.integers(max(low, -100), min(high, 100), sizes, endpoint=True)
        return values.astype(kind.numpy_dtype)
    values = rng.normal(size=sizes)
    if kind.is_complex:
        values = values + 1j * rng.normal(size=sizes)
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(kind.numpy_dtype)


def arguments(rng: np.random.Generator, text: str) -> Sequence[Any]:
    """Draw random arguments of a program."""
    return [draw(rng, p.shape) for p in parsed(text).entry.parameters]


def special_values(rng: np.random.Generator, kind: str, sizes: tuple[int, ...]) -> Any:
    """Draw random numbers, among them zeros of both signs, NaNs and infinities for floats."""
    made = np.array(draw(rng, f"{kind}[{','.join(map(str, sizes))}]"))
    if kind[0] in "fb" and made.size:
        flat = made.reshape(-1)
        for value in (0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf):
            flat[rng.integers(0, flat.size, 1 + flat.size // 12)] = value
    return made
