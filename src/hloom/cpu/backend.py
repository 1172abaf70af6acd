"""Backend ``cpu``: native code for this machine."""

from __future__ import annotations

import ctypes
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import numpy as np

from hloom.codegen.target import Target, host, reproducible_target, require_native_platform
from hloom.cpu.leaves import flat, joined
from hloom.cpu.native import NativeExecutable, compile_or_load
from hloom.cpu.refinement import Recent, RefinedPrograms, sized
from hloom.cpu.runtime.context import Context
from hloom.devices.world import VirtualDevice, World
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.ir.operation import Array, Value
from hloom.passes.expand.dynamic_form import actual, enclosed, is_dynamic
from hloom.passes.expand.refine_shapes import is_unbounded
from hloom.runtime.backend import Backend, CompileOptions, DeviceProgram, Host, Program, SplitProgram

if TYPE_CHECKING:
    from hloom.analysis.cost import Cost
    from hloom.buffers.copies import ArrayCopy
    from hloom.cpu.runtime.gang import Gang
    from hloom.cpu.runtime.host import HostCalls
    from hloom.cpu.runtime.rendezvous import Participant
    from hloom.passes.pipeline import Pipeline
    from hloom.phases import CompileProfile
    from hloom.runtime.measurements import Profile, ProgramMemory, Recording


class CpuBackend(Backend):
    """Backend ``cpu``: compiles HLO modules through LLVM to machine code for this machine."""

    name = "cpu"

    @property
    def target(self) -> Target:
        return host()

    def pipeline(self) -> Pipeline:
        """Return the pipeline of HLO passes that runs before code generation."""
        from hloom.cpu.pipeline import CPU_PIPELINE

        return CPU_PIPELINE

    def compile(self, module: HloModule, options: CompileOptions) -> Program:
        """Compile a module, or load its machine code from the cache.

        A module with unbounded dimensions (``f32[?]``) is not compiled before it runs: a run compiles it for
        the sizes of its arguments. Raises HloError (rule ``cpu.platform``) if native code cannot run on this
        system.
        """
        require_native_platform()
        if is_unbounded(module):
            return UnboundedProgram(module, options)
        return CompiledProgram(compile_or_load(module, reproducible=options.reproducible))

    def load(self, programs: Sequence[Program], world: World) -> list[DeviceProgram]:
        """Load ``programs``, one per device of ``world``, replica-major; return a device program for each.

        If a program has unbounded dimensions, Python runs all collectives; otherwise native code runs those
        that it supports.
        """
        natives = [program.native for program in programs if isinstance(program, CompiledProgram)]
        compiled = len(natives) == len(programs)
        calls = [native.host_calls for native in natives] if compiled else [()] * len(programs)
        if not any(calls) and world.peers is None:
            return [program.load(device) for program, device in zip(programs, world.devices, strict=True)]
        from hloom.cpu.runtime.rendezvous_plan import RendezvousPlan

        plan = RendezvousPlan(world, calls)
        if not compiled:
            return [program.load(device) for program, device in zip(programs, world.devices, strict=True)]
        return [
            CompiledDeviceProgram(native, device, plan.participants(n))
            for n, (native, device) in enumerate(zip(natives, world.devices, strict=True))
        ]

    def divide(self, module: HloModule, kept: AbstractSet[int], options: CompileOptions) -> SplitProgram:
        """Split a module in two: values that are computed once, and what every run computes from them.

        The former depend only on arguments that never change: those of the parameters with numbers in
        ``kept``. Raises HloError (rule ``prepare.dynamic``) if the module has arrays of dynamic size.
        """
        if is_dynamic(module):
            message = f"arguments of {module.name} cannot be prepared: it has arrays of dynamic sizes"
            raise HloError(message, rule="prepare.dynamic")
        from hloom.cpu.preparation import divided

        return divided(module, kept, reproducible_target(host()) if options.reproducible else host())

    def gang(
        self,
        programs: Sequence[Program],
        counts: tuple[int, int],
        stop: ctypes.c_uint64 | None = None,
        host: Host | None = None,
    ) -> Gang | None:
        """Return a gang: an object that runs the programs of all devices in turns in one thread.

        Returns None if a program has dynamic or unbounded sizes, writes dump files, or makes calls into
        Python that ``host`` does not answer, or if the C library cannot switch stacks.

        Args:
            programs: one program per device, replica-major.
            counts: the numbers of replicas and of partitions.
            stop: a 64-bit word that a caller sets to a nonzero value to end a run early; None for no such
                word.
            host: answers calls into Python, other than collectives in native code; None if nothing does.
        """
        natives = [program.native for program in programs if isinstance(program, CompiledProgram)]
        if len(natives) != len(programs):
            return None
        if any(native.module is not native.source or native.dump is not None for native in natives):
            return None
        from hloom.cpu.runtime.gang import gang_of

        return gang_of(natives, counts, stop, host)


class _Inspected(Program):
    """Base class of the cpu backend's programs: its properties describe the compiled module.

    They are the sizes of its memory, its cost, its array copies, HLO, LLVM IR and assembly.
    """

    @property
    @abstractmethod
    def native(self) -> NativeExecutable:
        """Return the compiled form of this program's module: its machine code, with its HLO and LLVM IR."""

    @property
    def memory(self) -> ProgramMemory:
        return self.native.loaded.memory

    @property
    def cost(self) -> Cost:
        return self.native.inspection.cost

    @property
    def copies(self) -> tuple[ArrayCopy, ...]:
        return self.native.inspection.program.copies

    @property
    def compile_profile(self) -> CompileProfile:
        return self.native.compile_profile

    def to_hlo(self) -> str:
        return self.native.inspection.optimized.to_text()

    def to_llvm(self) -> str:
        return self.native.inspection.program.text

    def to_asm(self) -> str:
        return self.native.inspection.assembly()


class CompiledProgram(_Inspected):
    """A program without unbounded dimensions, compiled to machine code."""

    def __init__(self, native: NativeExecutable) -> None:
        self._native = native
        self.is_isolated = not native.calls_host
        self.uses_all_cores = native.facts.shares
        self.host_calls = native.host_calls

    @property
    def native(self) -> NativeExecutable:
        return self._native

    def load(self, device: VirtualDevice) -> DeviceProgram:
        return CompiledDeviceProgram(self._native, device)

    def direct_call(self, checked: Callable[..., Any], *, donates: bool = False) -> Callable[..., object]:
        """Return a CPython builtin function that runs the program on NumPy arrays, or else ``checked``.

        The builtin calls ``checked``, a function that checks and converts arguments and then runs the
        program, if an argument is not an array of exactly the expected type, shape and layout. Returns
        ``checked`` itself if the program calls back into Python, has arrays of dynamic size or writes
        snapshots of its runs, or if `Caller.builtin` does not support its parameters or results. ``donates``:
        whether results are written to the memory of the donated arguments that they alias.
        """
        native = self._native
        records = native.dump is not None and native.dump.snapshots
        is_alone = native.runs_alone and not records
        return native.caller.builtin(checked, donates=donates) if is_alone else checked


class UnboundedProgram(_Inspected):
    """A program with unbounded dimensions; a run compiles it if its combination of argument sizes is new."""

    def __init__(self, module: HloModule, options: CompileOptions) -> None:
        self._refined = RefinedPrograms(module, reproducible=options.reproducible)

    @property
    def native(self) -> NativeExecutable:
        """Return the compiled module that the last run used, as each run may have different argument sizes.

        Raises HloError (rule ``compile.unbounded``) before the first run, as nothing is compiled yet.
        """
        if self._refined.latest is None:
            message = "a program of unbounded sizes is compiled when arguments tell them; run it first"
            raise HloError(message, rule="compile.unbounded")
        return self._refined.latest

    def load(self, device: VirtualDevice) -> DeviceProgram:
        return UnboundedDeviceProgram(self._refined, device)


class CompiledDeviceProgram(DeviceProgram):
    """A compiled program on one device, with what the device keeps between runs, such as random state."""

    def __init__(
        self,
        native: NativeExecutable,
        device: VirtualDevice,
        participants: Mapping[int, Participant] | None = None,
    ) -> None:
        self._native = native
        self._device = device
        self._parameters = [p.shape for p in native.module.entry.parameters]
        self._result = native.module.entry.root.shape
        self._source = native.source.entry if native.source is not native.module else None
        self._host = _host_calls(native, device, participants) if native.calls_host else None
        table = self._host.table if self._host is not None else 0
        self._context = Context(device.id, participants=table, stop=device.world.waiting.stop_word)

    def run(self, arguments: Sequence[Value]) -> Value:
        leaves = self._native.caller.run(self._leaves(arguments), self._host, self._context)
        result = self._value(leaves)
        if self._native.dump is not None and self._native.dump.snapshots:
            self._native.dump.executed(arguments, result)
        return result

    def donate(self, arguments: Sequence[Value]) -> Value:
        caller = self._native.caller
        return self._value(caller.run(self._leaves(arguments), self._host, self._context, donates=True))

    def profile(self, arguments: Sequence[Value]) -> Profile:
        timed = self._native.inspection.timed
        return timed.profile(self._native.caller, self._leaves(arguments), self._device, self._host)

    def record(self, arguments: Sequence[Value]) -> tuple[Value, Recording]:
        recorded, caller = self._native.inspection.recorded, self._native.caller
        leaves, recording = recorded.record(caller, self._leaves(arguments), self._host, self._device)
        return self._value(leaves), recording

    def _value(self, leaves: Sequence[Array]) -> Value:
        """Return the program's result: the arrays that native code wrote (``leaves``) in nested tuples.

        Arrays of dynamic size, which native code pads to their bounds, get their actual sizes.
        """
        result = joined(self._result, iter(leaves))
        return result if self._source is None else actual(result, self._source.root.shape)

    def _leaves(self, arguments: Sequence[Value]) -> list[np.ndarray | None]:
        """Flatten the arguments to the list of arrays that native code takes; None for tokens.

        Arrays of dynamic size are padded to their bounds; their sizes follow as scalars.
        """
        values = arguments
        if self._source is not None:
            pairs = zip(arguments, self._source.parameters, strict=True)
            values = [enclosed(value, parameter.shape) for value, parameter in pairs]
        return flat(self._parameters, values)


def _host_calls(
    native: NativeExecutable, device: VirtualDevice, participants: Mapping[int, Participant] | None
) -> HostCalls:
    """Return the object by which Python evaluates instructions for a program on a device (host calls).

    ``participants``: for each collective that native code runs instead, by the index of its host call, the
    device's part in it; None if there are no such collectives.
    """
    from hloom.cpu.runtime.host import HostCalls

    return HostCalls(native.host_calls, device, participants)


class UnboundedDeviceProgram(DeviceProgram):
    """A program with unbounded dimensions on one device.

    A run uses the code compiled for its combination of argument sizes; the first run with it compiles the
    code.
    """

    def __init__(self, refined: RefinedPrograms, device: VirtualDevice) -> None:
        self._refined = refined
        self._device = device
        self._programs: Recent[NativeExecutable, CompiledDeviceProgram] = Recent()

    def run(self, arguments: Sequence[Value]) -> Value:
        return self._program(arguments).run(arguments)

    def donate(self, arguments: Sequence[Value]) -> Value:
        return self._program(arguments).donate(arguments)

    def profile(self, arguments: Sequence[Value]) -> Profile:
        return self._program(arguments).profile(arguments)

    def _program(self, arguments: Sequence[Value]) -> CompiledDeviceProgram:
        parameters = self._refined.module.entry.parameters
        shapes = tuple([sized(p.shape, v) for p, v in zip(parameters, arguments, strict=True)])
        native = self._refined.compiled_for(shapes)
        return self._programs.get(native, lambda: CompiledDeviceProgram(native, self._device))
