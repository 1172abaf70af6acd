"""Calls of native programs with numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from hloom.cpu.leaves import leaf_shapes
from hloom.cpu.loaded_program import LoadedProgram
from hloom.cpu.runtime.context import Context
from hloom.cpu.runtime.entry import RunFunction, Signature, builtin_for
from hloom.cpu.runtime.recycled_memory import lent_memory, recycled_memory
from hloom.cpu.runtime.support import support
from hloom.devices.threads import Stopped
from hloom.errors import EvaluationError
from hloom.ir.module import HloModule
from hloom.ir.value import Array
from hloom.shape.shape import Shape

if TYPE_CHECKING:
    from hloom.cpu.runtime.host import HostCalls

_EXECUTE: Final = ctypes.PYFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 5)
_LONG_WORK: Final = 200_000
"""Elementary operations from which a program releases the GIL: some 10 to 20 us."""


class Caller:
    """Runs a loaded program on NumPy arrays.

    Attributes:
        loaded: the machine code, and facts about it such as the size of its temporaries.
        parameters: the shapes of the arguments' leaves, in order: the arrays and tokens in nested tuples.
        results: the shapes of the result's leaves, in order.
    """

    def __init__(self, module: HloModule, loaded: LoadedProgram) -> None:
        self._entry, self._aliases = module.entry, module.config.aliases.values()
        self.loaded = loaded
        self.parameters = [leaf for p in module.entry.parameters for leaf in leaf_shapes(p.shape)]
        self.results = leaf_shapes(module.entry.root.shape)

    def inputs(self, arguments: Sequence[Array | None]) -> list[Array]:
        """Convert the leaves of the arguments to contiguous arrays of the types of the program's parameters.

        Leaves are the arrays and tokens in nested tuples; a token, None, becomes an array without elements.
        """
        return [
            np.ascontiguousarray(a, s.element_type.dtype) if s.is_array else np.empty(0, np.uint8)
            for a, s in zip(arguments, self.parameters, strict=True)
        ]

    def outputs(self, donated: Sequence[Array | None] = ()) -> list[Array]:
        """Return the arrays to which the program writes the leaves of its result.

        Each is a new array, or that of the donated argument whose memory the result takes. ``donated``: the
        leaves of all arguments if donated arguments may be overwritten, else empty. Raises EvaluationError
        (rule ``evaluate.memory``) if memory is short.
        """
        donors = dict(self.loaded.facts.reuses) if donated else {}
        taken = [donated[donors[n]] if n in donors else None for n in range(len(self.results))]
        with recycled_memory().of_arrays():
            return [_allocate(s) if a is None else a for s, a in zip(self.results, taken, strict=True)]

    def run(
        self,
        arguments: Sequence[Array | None],
        host: HostCalls | None = None,
        context: Context | None = None,
        address: int | None = None,
        *,
        donates: bool = False,
    ) -> list[Array]:
        """Run the program on the leaves of its arguments; return the leaves of its result.

        Leaves are the arrays and tokens in nested tuples. An argument has the type and sizes of its
        parameter, or is None for a token; a token of the result is an empty array. Raises Stopped if another
        device failed, and whatever the handler of a signal raises, such as KeyboardInterrupt.

        Args:
            host: answers the program's host calls (calls back into Python); needed if it has any.
            context: the run context of the device; by default that of a program that runs alone.
            address: the address of the native function to call; by default the program's own entry function.
            donates: whether results that alias an argument are returned in the argument's array; these
                arrays must be writable and contiguous.
        """
        results, inputs = self.outputs(arguments if donates else ()), self.inputs(arguments)
        sources, targets = [a.ctypes.data for a in inputs], [r.ctypes.data for r in results]
        self.run_at(sources, targets, host, context, address)
        return results

    def run_at(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        host: HostCalls | None = None,
        context: Context | None = None,
        address: int | None = None,
    ) -> None:
        """Run the program on arrays that are given by their addresses, and write its results to ``targets``.

        Raises what `run` raises.

        Args:
            sources, targets: the addresses of the arguments' arrays, and of the arrays for the results.
            host, context, address: see `run`.
        """
        # The words of packed arguments, null, follow the addresses.
        count = len(sources) + len(self.loaded.facts.packed)
        source_words = (ctypes.c_void_p * max(1, count))(*sources)
        target_words = (ctypes.c_void_p * max(1, len(targets)))(*targets)
        execute = _EXECUTE(support().symbols["hloom_execute"])
        function, words = address or self.loaded.address, (context or self.loaded.context).address
        status = 0

        def native() -> None:
            nonlocal status
            status = execute(function, source_words, target_words, temp, words)

        with lent_memory(self.loaded.memory.temp) as temp:
            if host is not None:
                host.run(native)
            else:
                native()
        if status:  # without an exception: another device failed
            raise Stopped

    def builtin(self, fallback: RunFunction, *, donates: bool = False) -> RunFunction:
        """Return a CPython builtin function that runs the program on arrays of exactly its types and shapes.

        A call with other arguments calls ``fallback`` instead. ``donates``: whether results are written to
        the memory of the donated arguments that they alias. Returns ``fallback`` itself if a parameter is not
        an array of static size, if the result is neither such an array nor a tuple of them, if their types or
        sizes are unsupported, or if the memory layout of Python's or NumPy's objects is unknown.
        """
        parameters, result = [p.shape for p in self._entry.parameters], self._entry.root.shape
        shapes = [*parameters, *self.results]
        unwieldy = any(s.is_array and (s.rank > 32 or s.element_count > 1 << 32) for s in shapes)
        flat = result.is_array or (result.is_tuple and all(s.is_array for s in result.tuple_shapes))
        if unwieldy or not flat or not all(s.is_array and s.is_static for s in shapes):
            return fallback
        if any(s.element_type.bits < 8 and not s.element_type.is_predicate for s in parameters):
            return fallback  # which clears the bits of their bytes that are no part of an element
        loaded, facts = self.loaded, self.loaded.facts
        long = facts.temp_bytes > 0 or facts.work >= _LONG_WORK or not facts.is_bounded
        signature = Signature(parameters, self.results, result.is_tuple, loaded.memory.temp, long)
        if donates:
            donated = frozenset(alias.parameter_number for alias in self._aliases)
            signature = replace(signature, donated=donated, donors=dict(facts.reuses))
        return builtin_for(signature, loaded.address, loaded.context.address, fallback, (loaded,))


def _allocate(shape: Shape) -> Array:
    """Return a new, uninitialized array of the given shape; for a token, an array without elements.

    Raises EvaluationError (rule ``evaluate.memory``) if memory is short.
    """
    if not shape.is_array:
        return np.empty(0, np.uint8)
    try:
        return np.empty(shape.dimensions, shape.element_type.dtype)
    except (MemoryError, ValueError) as error:
        message = f"no memory for the result {shape.to_string(layout=False)}: {error}"
        raise EvaluationError(message, rule="evaluate.memory") from None
