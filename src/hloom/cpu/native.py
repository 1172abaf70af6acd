"""A module as a native program: found in the cache or compiled, loaded, and called with numpy arrays.

What only a cold start needs (passes, emitters, LLVM) is imported where it is used: a warm start loads none
of it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hloom.codegen.target import host
from hloom.cpu.jit.cache import Entry, configured_cache, key_of
from hloom.cpu.jit.externals import address_of
from hloom.cpu.jit.fingerprint import fingerprint
from hloom.cpu.jit.loader import LoadedObject
from hloom.cpu.jit.relocation import LoadError
from hloom.cpu.runtime.context import Context
from hloom.cpu.runtime.entry import Signature, builtin_for, lent_memory
from hloom.cpu.runtime.support import begin_support, support
from hloom.errors import EvaluationError
from hloom.ir.module import HloModule
from hloom.passes.expand.dynamic_form import is_dynamic
from hloom.shape.shape import Shape

if TYPE_CHECKING:
    from hloom.analysis.cost import Cost
    from hloom.cpu.dump import Dump
    from hloom.cpu.program import NativeProgram
    from hloom.cpu.runtime.host import HostCalls
    from hloom.cpu.runtime.profile import Profile
    from hloom.cpu.runtime.rendezvous import Seat
    from hloom.ir.device import Device
    from hloom.ir.instruction import HloInstruction

Array = np.ndarray[Any, Any]

ENTRY: Final = "hloom_run"
_PROGRAM: Final = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
_LONG_WORK: Final = 200_000
"""Elementary operations from which on other Python threads run beside a program: some 10 to 20 us."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes of a program.

    Attributes:
        argument, output: arrays that the caller gives and gets.
        temp: the arena.
        peak: all of them together.
    """

    argument: int
    output: int
    temp: int

    @property
    def peak(self) -> int:
        """Bytes in use while the program runs."""
        return self.argument + self.output + self.temp


class NativeExecutable:
    """A compiled program, ready to run on arrays.

    What the cache knows was verified when it was compiled; the rest is verified first, which raises HloError.

    Attributes:
        given: the program as it was given.
        module: the program whose arrays have their bounds beside their actual sizes, if some are dynamic.
        memory: how many bytes it needs.
        from_cache: whether it was compiled by an earlier process, or earlier in this one.
        calls_host: whether it calls Python, for what only the host can do.
        shares: whether it lets several threads work on something.
        dump: writes files about it, if they are wanted.
    """

    def __init__(self, module: HloModule) -> None:
        self.given = module
        if is_dynamic(module):
            from hloom.passes.expand.dynamic_padder import static_module

            module.verify()
            module = static_module(module)
        self.module = module
        self.parameter_leaves = [leaf for p in module.entry.parameters for leaf in _leaves(p.shape)]
        self.result_leaves = _leaves(module.entry.root.shape)
        target, cache = host(), configured_cache()
        key = key_of("program", fingerprint(module), target.identity) if cache is not None else ""
        self.dump = self._dump()
        entry = cache.get(key) if cache is not None and self.dump is None else None
        loaded = self._from(entry) if entry is not None else None
        self.from_cache = loaded is not None
        if entry is None or loaded is None:
            from hloom.cpu.jit.compilation import compile_module, optimize

            begin_support()
            module.verify()
            if self.dump is not None:
                self.optimized = optimize(module, self.dump.after_pass)
            self.program, entry = compile_module(self.optimized, target)
            if self.dump is not None:
                self.dump.compiled(self.optimized, self.program, entry, target)
            if cache is not None:
                cache.put(key, entry)
            loaded = _load(entry)
        self._loaded = loaded
        facts = entry.facts
        self.memory = Memory(sum(facts["argument_bytes"]), sum(facts["result_bytes"]), facts["temp_bytes"])
        self.calls_host = bool(facts["host_calls"])
        self.shares: bool = facts["shares"]
        self._long = self.memory.temp > 0 or facts["work"] >= _LONG_WORK
        self._context = Context()
        self._address = loaded.symbols[ENTRY]

    def _dump(self) -> Dump | None:
        """What writes files about the program, if ``XLA_FLAGS`` asks for that."""
        if "xla_dump" not in os.environ.get("XLA_FLAGS", ""):
            return None
        from hloom.cpu.dump import begin_dump
        from hloom.cpu.pipeline import CPU_PIPELINE

        return begin_dump(self.given, CPU_PIPELINE)

    @staticmethod
    def _from(entry: Entry) -> LoadedObject | None:
        """What an entry of the cache holds; None if it cannot be loaded: then it is made again."""
        try:
            return _load(entry)
        except LoadError:
            return None

    @property
    def host_calls(self) -> Sequence[HloInstruction]:
        """The instructions that may call the host."""
        return self.program.host_calls if self.calls_host else ()

    def host(self, device: Device | None = None, seats: Mapping[int, Seat] | None = None) -> HostCalls:
        """What answers the program's calls of the host on a device; without one the program runs alone.

        At its seats the device meets others in native code.
        """
        from hloom.cpu.runtime.host import HostCalls

        return HostCalls(self.host_calls, device, seats)

    def run(
        self,
        arguments: Sequence[Array | None],
        host: HostCalls | None = None,
        context: Context | None = None,
    ) -> list[Array]:
        """The leaves of the result, for the leaves of the arguments: arrays of their element types and sizes.

        Tokens are None. What calls the host is answered by `host`, on the device of the context; by default
        as one device alone.
        """
        return self._run(self._address, arguments, (context or self._context).address, host)

    def _run(
        self,
        address: int,
        arguments: Sequence[Array | None],
        context: int,
        host: HostCalls | None,
    ) -> list[Array]:
        results = [_room_for(s) for s in self.result_leaves]
        held = [
            np.ascontiguousarray(a, s.element_type.dtype) if s.is_array else np.empty(0, np.uint8)
            for a, s in zip(arguments, self.parameter_leaves, strict=True)
        ]
        pointers = (ctypes.c_void_p * max(1, len(held)))(*[a.ctypes.data for a in held])
        targets = (ctypes.c_void_p * max(1, len(results)))(*[r.ctypes.data for r in results])
        entry = _PROGRAM(address)
        with lent_memory(self.memory.temp) as temp:
            if self.calls_host:
                (host or self.host()).run(lambda: entry(pointers, targets, temp, context))
            else:
                entry(pointers, targets, temp, context)
        return results

    def builtin(self, fallback: Callable[..., Any]) -> Callable[..., Any]:
        """A function that runs the program on arrays that fit exactly, and calls the fallback for the rest.

        It is the fallback itself where parameters or results are no plain arrays, or where Python or numpy
        are not laid out as this needs.
        """
        parameters = [p.shape for p in self.module.entry.parameters]
        result = self.module.entry.root.shape
        shapes = [*parameters, *self.result_leaves]
        snapshots = self.dump is not None and self.dump.snapshots
        unwieldy = any(s.is_array and (s.rank > 32 or s.element_count > 1 << 32) for s in shapes)
        if self.calls_host or self.module is not self.given or snapshots or unwieldy:
            return fallback
        flat = result.is_array or (result.is_tuple and all(s.is_array for s in result.tuple_shapes))
        if not flat or not all(s.is_array and s.is_static for s in shapes):
            return fallback
        if any(s.element_type.bits < 8 and not s.element_type.is_predicate for s in parameters):
            return fallback  # which clears the bits of their bytes that are no part of an element
        signature = Signature(parameters, self.result_leaves, result.is_tuple, self.memory.temp, self._long)
        held = (self, self._context)
        return builtin_for(signature, self._address, self._context.address, fallback, held)

    # -- what the program looks like

    @cached_property
    def optimized(self) -> HloModule:
        """The module after all passes."""
        from hloom.cpu.jit.compilation import optimize

        return optimize(self.module)

    @cached_property
    def program(self) -> NativeProgram:
        """The program in LLVM's language."""
        from hloom.cpu.program import emit_program

        return emit_program(self.optimized, host())

    def assembly(self) -> str:
        """The program in the machine's language."""
        from hloom.cpu.jit.llvm import generate

        return generate(self.program.text, host(), assembly=True).decode()

    @cached_property
    def cost(self) -> Cost:
        """What the program has to compute and to move."""
        from hloom.analysis.cost import module_cost

        return module_cost(self.optimized)

    def profile(self, arguments: Sequence[Array | None], host_calls: HostCalls | None = None) -> Profile:
        """Run once to warm up and once more, and tell what every instruction took."""
        from hloom.cpu.jit.compilation import compile_module
        from hloom.cpu.runtime.profile import Profile, profile_lines

        program, code = compile_module(self.optimized, host(), timed=True)
        loaded = _load(code)
        table = (ctypes.c_int64 * (2 * len(program.timed) + 1))()
        seats = host_calls.table if host_calls is not None else 0
        context = Context(seats=seats, table=ctypes.addressof(table))
        seconds = 0.0
        for _ in range(2):
            ctypes.memset(table, 0, ctypes.sizeof(table))
            before = _clock()
            self._run(loaded.symbols[ENTRY], arguments, context.address, host_calls)
            seconds = (_clock() - before) / 1e9
        instructions = {i.name: i for i in self.optimized.instructions()}
        return Profile(seconds, profile_lines(instructions, list(program.timed), list(table)))


def external_address(name: str) -> int | None:
    """The address of a function that programs may call: hloom's own native code, or a library's."""
    if name == "hloom_host":
        from hloom.cpu.runtime import host as host  # provides the function
    found = address_of(name)
    return support().symbols.get(name) if found is None else found


def _load(entry: Entry) -> LoadedObject:
    names: list[str] = entry.facts["data"]
    count = len(entry.parts) - len(names)
    data = dict(zip(names, entry.parts[count:], strict=True))
    return LoadedObject(entry.parts[:count], external_address, data)


def _room_for(shape: Shape) -> Array:
    """Memory for a leaf of a result. Raises EvaluationError by ``evaluate.memory`` where there is none."""
    if not shape.is_array:
        return np.empty(0, np.uint8)
    try:
        return np.empty(shape.dimensions, shape.element_type.dtype)
    except (MemoryError, ValueError) as error:
        message = f"no memory for the result {shape.to_string(layout=False)}: {error}"
        raise EvaluationError(message, rule="evaluate.memory") from None


def _leaves(shape: Shape) -> list[Shape]:
    if shape.is_tuple:
        return [leaf for part in shape.tuple_shapes for leaf in _leaves(part)]
    return [shape]


def _clock() -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64)(support().symbols["hloom_clock"])()
