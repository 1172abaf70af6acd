"""Native programs: modules that are found in the cache or compiled, loaded, and called with numpy arrays.

The modules that compilation alone needs (passes, emitters, LLVM) are imported where they are used, so that a
program from the cache starts without them.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from hloom.analysis.in_flight import check_values_in_flight
from hloom.codegen.target import OPTIMIZED, Target, host
from hloom.cpu.jit.cache import CodeCache, Entry, configured_cache, key_of
from hloom.cpu.jit.program_facts import signature_of
from hloom.cpu.loaded_program import LoadedProgram, cached_program
from hloom.cpu.runtime.context import Context
from hloom.cpu.runtime.entry import RunFunction, Signature, builtin_for, lent_memory
from hloom.cpu.runtime.support import begin_support, support
from hloom.devices.threads import Stopped
from hloom.errors import EvaluationError
from hloom.ir.collector import collector_paused
from hloom.ir.module import HloModule
from hloom.ir.value import Array
from hloom.operations.custom_call import replaced_targets
from hloom.passes.expand.dynamic_form import is_dynamic
from hloom.phases import phase, recording
from hloom.shape.shape import Shape
from hloom.text.fingerprint import fingerprint

if TYPE_CHECKING:
    from hloom.analysis.cost import Cost
    from hloom.cpu.dump import Dump
    from hloom.cpu.program import NativeProgram
    from hloom.cpu.runtime.host import HostCalls
    from hloom.cpu.runtime.rendezvous import Participant
    from hloom.cpu.timed_program import RecordedProgram, TimedProgram
    from hloom.devices.world import VirtualDevice
    from hloom.ir.device import Device
    from hloom.ir.instruction import HloInstruction
    from hloom.runtime.measurements import Profile, Recording

_EXECUTE: Final = ctypes.PYFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 5)
_LONG_WORK: Final = 200_000
"""Elementary operations from which a program releases the GIL: some 10 to 20 us."""


class NativeExecutable:
    """A compiled program, ready to run on arrays.

    Programs in the cache were verified when they were compiled; others are verified first, which may raise
    HloError.

    Attributes:
        given: the original program.
        module: the program in static form: arrays of dynamic size have their bounds, and sizes beside them.
        memory: memory that it needs.
        from_cache: it was compiled by an earlier process, or earlier in this one.
        calls_host: it calls Python for operations that only the host can run.
        shares: some kernel shares its iterations among the threads of the pool.
        facts: properties recorded when it was compiled.
        key: of the program in the cache; empty if there is no cache.
        loaded: the code in memory.
        compile_profile: where the time of compiling went.
        dump: writes files about it, if they are wanted.
    """

    def __init__(
        self, module: HloModule, flags: str = "", level: int = OPTIMIZED, *, cached: bool = True
    ) -> None:
        """Compile a module; ``flags`` about dumps add to those of ``XLA_FLAGS``.

        ``level`` is the optimization level of LLVM's code generator. If not ``cached``, the program is
        compiled although it may be in the cache, and not stored there.
        """
        with recording() as self.compile_profile:
            self._make(module, flags, level, configured_cache() if cached else None)

    def _make(self, module: HloModule, flags: str, level: int, cache: CodeCache | None) -> None:
        """Find the program in the cache, or compile it; load it."""
        self.given = module
        if is_dynamic(module):
            from hloom.passes.expand.dynamic_padder import static_module

            module.verify()
            module = static_module(module)
        self.module = module
        self.parameter_leaves = [leaf for p in module.entry.parameters for leaf in _leaves(p.shape)]
        self.result_leaves = _leaves(module.entry.root.shape)
        target = host()
        self.key, loaded = "", None
        self.dump = self._dump(flags)
        if cache is not None:
            with phase("loading", "look-up in the cache"):
                parts = ("program", fingerprint(module), target.identity, f"level {level}")
                self.key = key_of(*parts, *replaced_targets())
                loaded = cached_program(self.key) if self.dump is None else None
        if loaded is not None and loaded.facts.signature != signature_of(module):
            loaded = None
        self.from_cache = loaded is not None
        if loaded is None:
            with collector_paused():
                entry = self._compile(target, level)
            if cache is not None:
                with phase("loading", "writing to the cache"):
                    cache.put(self.key, entry)
            with phase("loading", "machine code into memory"):
                loaded = LoadedProgram(entry)
        self.loaded = loaded
        self.facts = facts = loaded.facts
        self.memory = loaded.memory
        self.calls_host = facts.host_calls > 0
        self.shares = facts.shares
        self._long = facts.temp_bytes > 0 or facts.work >= _LONG_WORK or not facts.is_bounded
        self._context = loaded.context
        self._address = loaded.address
        self._timing = threading.Lock()
        self._timed: TimedProgram | None = None
        self._recorded: RecordedProgram | None = None

    def _compile(self, target: Target, level: int) -> Entry:
        """Verify, optimize and compile the module."""
        from hloom.cpu.jit.compilation import compile_module, optimize

        begin_support()
        with phase("verification", "rules"):
            self.module.verify()
        with phase("verification", "values in flight"):
            check_values_in_flight(self.module)
        if self.dump is not None:
            self.optimized = optimize(self.module, self.dump.after_pass)
        self.program, entry = compile_module(self.optimized, target, level=level)
        if self.dump is not None:
            self.dump.compiled(self.optimized, self.program, entry, target)
        return entry

    def _dump(self, flags: str) -> Dump | None:
        """Return the writer of files about the program, if the flags or ``XLA_FLAGS`` ask for them."""
        if "xla_dump" not in os.environ.get("XLA_FLAGS", "") and not flags:
            return None
        from hloom.cpu.dump import begin_dump
        from hloom.cpu.pipeline import CPU_PIPELINE

        return begin_dump(self.given, CPU_PIPELINE, flags)

    @property
    def runs_alone(self) -> bool:
        """Return true if the code needs nothing but memory: no calls of the host, no sizes of arrays."""
        return not self.calls_host and self.module is self.given

    @property
    def host_calls(self) -> Sequence[HloInstruction]:
        """Return the instructions that may call the host."""
        return self.program.host_calls if self.calls_host else ()

    def host(
        self, device: Device | None = None, participants: Mapping[int, Participant] | None = None
    ) -> HostCalls:
        """Return the host side of the program on a device; without a device the program runs alone.

        Collectives with a participant record run in native code.
        """
        from hloom.cpu.runtime.host import HostCalls

        return HostCalls(self.host_calls, device, participants)

    def run(
        self,
        arguments: Sequence[Array | None],
        host: HostCalls | None = None,
        context: Context | None = None,
    ) -> list[Array]:
        """Return the leaves of the result for the leaves of the arguments: arrays of their types and sizes.

        Tokens are None. Host calls are answered by ``host``, on the device of the context; by default the
        program runs alone. Raises Stopped if another device failed, and whatever the handler of a signal
        raises, such as KeyboardInterrupt.
        """
        return self._run(self._address, arguments, context or self._context, host)

    def _run(
        self,
        address: int,
        arguments: Sequence[Array | None],
        context: Context,
        host: HostCalls | None,
    ) -> list[Array]:
        results, inputs = self.outputs(), self.inputs(arguments)
        self._run_at(
            address, [a.ctypes.data for a in inputs], [r.ctypes.data for r in results], context, host
        )
        return results

    def inputs(self, arguments: Sequence[Array | None]) -> list[Array]:
        """Return the leaves of the arguments as native code reads them."""
        return [
            np.ascontiguousarray(a, s.element_type.dtype) if s.is_array else np.empty(0, np.uint8)
            for a, s in zip(arguments, self.parameter_leaves, strict=True)
        ]

    def outputs(self) -> list[Array]:
        """Allocate the leaves of the result; raises EvaluationError by the rule ``evaluate.memory``."""
        return [_room_for(s) for s in self.result_leaves]

    @property
    def address(self) -> int:
        """Return the address of the native function ``status = run(sources, targets, arena, context)``."""
        return self._address

    @property
    def code_size(self) -> int:
        """Return the size of code and constants in memory, in bytes."""
        return self.loaded.size

    @property
    def context(self) -> Context:
        """Return the context in which the program runs alone."""
        return self._context

    def run_at(self, sources: Sequence[int], targets: Sequence[int], host: HostCalls | None = None) -> None:
        """Run on memory: the addresses of the leaves of arguments and result. Raises like `run`."""
        self._run_at(self._address, sources, targets, self._context, host)

    def _run_at(
        self,
        address: int,
        sources: Sequence[int],
        targets: Sequence[int],
        context: Context,
        host: HostCalls | None,
    ) -> None:
        source_words = (ctypes.c_void_p * max(1, len(sources)))(*sources)
        target_words = (ctypes.c_void_p * max(1, len(targets)))(*targets)
        execute = _EXECUTE(support().symbols["hloom_execute"])
        status = 0

        def native() -> None:
            nonlocal status
            status = execute(address, source_words, target_words, temp, context.address)

        with lent_memory(self.memory.temp) as temp:
            if self.calls_host:
                (host or self.host()).run(native)
            else:
                native()
        if status:  # without an exception: another device failed
            raise Stopped

    def builtin(self, fallback: RunFunction) -> RunFunction:
        """Return a function that runs the program on arrays that fit exactly, and else calls the fallback.

        The fallback itself is returned if parameters or results are not plain arrays, or if Python or numpy
        are not laid out as the native code assumes.
        """
        parameters = [p.shape for p in self.module.entry.parameters]
        result = self.module.entry.root.shape
        shapes = [*parameters, *self.result_leaves]
        snapshots = self.dump is not None and self.dump.snapshots
        unwieldy = any(s.is_array and (s.rank > 32 or s.element_count > 1 << 32) for s in shapes)
        if not self.runs_alone or snapshots or unwieldy:
            return fallback
        flat = result.is_array or (result.is_tuple and all(s.is_array for s in result.tuple_shapes))
        if not flat or not all(s.is_array and s.is_static for s in shapes):
            return fallback
        if any(s.element_type.bits < 8 and not s.element_type.is_predicate for s in parameters):
            return fallback  # which clears the bits of their bytes that are no part of an element
        signature = Signature(parameters, self.result_leaves, result.is_tuple, self.memory.temp, self._long)
        held = (self, self._context)
        return builtin_for(signature, self._address, self._context.address, fallback, held)

    # -- inspection of the program

    @cached_property
    def optimized(self) -> HloModule:
        """Return the module after all passes."""
        from hloom.cpu.jit.compilation import optimize

        return optimize(self.module)

    @cached_property
    def program(self) -> NativeProgram:
        """Return the program as LLVM IR."""
        from hloom.cpu.program import emit_program

        return emit_program(self.optimized, host())

    def assembly(self) -> str:
        """Return the program as assembly."""
        from hloom.cpu.jit.llvm import generate_module

        return generate_module(self.program.module, assembly=True).decode()

    @cached_property
    def cost(self) -> Cost:
        """Return the cost of the program: operations and bytes moved."""
        from hloom.analysis.cost import module_cost

        return module_cost(self.optimized)

    @property
    def timed(self) -> TimedProgram:
        """Return the program that measures its instructions; several threads may ask for it."""
        from hloom.cpu.timed_program import TimedProgram

        with self._timing:
            if self._timed is None:
                self._timed = TimedProgram(self.optimized)
            return self._timed

    @property
    def recorded(self) -> RecordedProgram:
        """Return the program that records its instructions; several threads may ask for it."""
        from hloom.cpu.timed_program import RecordedProgram

        with self._timing:
            if self._recorded is None:
                self._recorded = RecordedProgram(self.optimized)
            return self._recorded

    def record(
        self,
        arguments: Sequence[Array | None],
        host_calls: HostCalls | None = None,
        device: VirtualDevice | None = None,
    ) -> tuple[list[Array], Recording]:
        """Run, alone or on a device; return the leaves of the result, and when which instruction ran."""
        recorded = self.recorded
        table = recorded.table()
        participants = host_calls.table if host_calls is not None else 0
        stop = device.world.waiting.stop_word if device is not None else None
        number = device.world.devices.index(device) if device is not None else 0
        identity = device.id if device is not None else (0, 0)
        context = Context(identity, participants=participants, table=table.ctypes.data, stop=stop)
        results = self._run(recorded.address, arguments, context, host_calls)
        return results, recorded.recording(table, number, threading.get_native_id())

    def profile(
        self,
        arguments: Sequence[Array | None],
        device: VirtualDevice,
        host_calls: HostCalls | None = None,
    ) -> Profile:
        """Run twice on a device, the first time to warm up, and return the time of every instruction."""
        timed = self.timed
        table = timed.table()
        participants = host_calls.table if host_calls is not None else 0
        stop = device.world.waiting.stop_word
        context = Context(device.id, participants=participants, table=ctypes.addressof(table), stop=stop)
        self._run(timed.address, arguments, context, host_calls)
        ctypes.memset(table, 0, ctypes.sizeof(table))
        waited = list(host_calls.waited) if host_calls is not None else []
        self._run(timed.address, arguments, context, host_calls)
        more = (
            [n - m for n, m in zip(host_calls.waited, waited, strict=True)] if host_calls is not None else []
        )
        return timed.profile(table, more)


def _room_for(shape: Shape) -> Array:
    """Allocate a leaf of a result; raises EvaluationError by the rule ``evaluate.memory``."""
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
