"""Executables: compiled programs loaded on devices."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

from hloom.codegen.structs import Record
from hloom.cpu.runtime.context import Context
from hloom.jax.calls.callbacks import HostFunctions, unbind
from hloom.jax.devices.client import NOTHING, STOP, ClientDevice, NamedValues
from hloom.jax.devices.memory_layouts import handle_of
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.api import implements, permanent_address
from hloom.jax.pjrt.errors import INVALID_ARGUMENT, PjrtError
from hloom.jax.pjrt.handles import CArray, Handle, Text, object_at
from hloom.jax.pjrt.messages import device_assignment
from hloom.jax.pjrt.native import native
from hloom.jax.pjrt.structs import EXECUTABLE, INPUT, OUTPUT, PACKED
from hloom.lifetime import keep_for_ever

if TYPE_CHECKING:
    from hloom.ir.instruction import HloInstruction
    from hloom.jax.programs.compiled import Compiled, Leaf
    from hloom.runtime.executable import Executable

PRED: Final = 1
"""PJRT's number of the element type of the empty arrays that JAX passes for tokens."""
LONG_WORK: Final = 8_000_000
"""Number of elementary operations, about 100 µs, from which a worker thread runs a program."""


class LoadedExecutable(Handle):
    """A program loaded on its devices: a PJRT_LoadedExecutable and PJRT_Executable in one.

    Attributes:
        compiled: the program, which other executables may share.
        interface: arguments, results, donation and number of devices.
        inputs, outputs: the arguments and results in ``interface``.
        assigned: the program's devices in all processes, in replica-major order.
        devices: the program's devices in this process.
        options: the serialized compile options.
        callbacks: the Python functions that the program calls.
        bound: the custom calls whose Python functions hloom's evaluator knows; empty until Python, instead of
            native code, executes the program for the first time.
        gang: the `Gang`, which runs all devices in one thread; None if there is one device, or if only Python
            can run the program.
    """

    def __init__(
        self,
        compiled: Compiled,
        assigned: Sequence[ClientDevice],
        devices: Sequence[ClientDevice],
        options: bytes,
        callbacks: Sequence[object],
    ) -> None:
        sweep()
        super().__init__(EXECUTABLE)
        self.compiled = compiled
        self.assigned = list(assigned)
        self.devices = list(devices)
        self.options = options
        self.callbacks = list(callbacks)
        self.bound: Sequence[HloInstruction] = ()
        self.interface = interface = compiled.interface
        self.inputs, self.outputs = interface.inputs, interface.outputs
        self._dimensions = [CArray(leaf.dimensions, ctypes.c_int64) for leaf in self.outputs]
        is_local = len(self.devices) == len(self.assigned)
        native = compiled.native if is_local else None
        functions = _host_functions(compiled, self.callbacks) if is_local else None
        if functions is not None and functions.answers_all and compiled.code_with_callbacks is not None:
            native = compiled.code_with_callbacks
        self.gang = gang = None
        if is_local:
            self.gang = gang = compiled.gang if functions is None else compiled.gang_with_host(functions)
        reuses = dict(native.facts.reuses if native is not None else gang.reuses if gang is not None else ())
        self._inputs = INPUT.table([_input(leaf) for leaf in self.inputs])
        outputs = enumerate(zip(self.outputs, self._dimensions, strict=True))
        self._outputs = OUTPUT.table([_output(leaf, d, reuses.get(n, -1)) for n, (leaf, d) in outputs])
        self.set(
            name=Text(interface.name),
            devices=CArray([device.handle for device in self.devices]),
            num_replicas=interface.num_replicas,
            num_partitions=interface.num_partitions,
            inputs=_address_of(self._inputs),
            num_inputs=len(self.inputs),
            outputs=_address_of(self._outputs),
            num_outputs=len(self.outputs),
            donated=CArray(interface.donated, ctypes.c_int64),
            is_native=native is not None or gang is not None,
        )
        if gang is not None:
            is_long = functions is None and (gang.work >= LONG_WORK or not gang.is_bounded)
            self.set(gang=gang.address, is_long=is_long, calls_python=functions is not None)
        if native is not None:
            self._context = Context(stop=STOP, host=functions)
            is_long = native.facts.work >= LONG_WORK or not native.facts.is_bounded
            packed = [{"argument": n, "bytes": size, "form": form} for n, size, form in native.facts.packed]
            self._packed = PACKED.table(packed)
            self.set(packed=_address_of(self._packed), num_packed=len(packed))
            self.set(program=native.address, context=self._context.address, arena_bytes=native.memory.temp)
            self.set(is_long=is_long and functions is None, calls_python=functions is not None)

    @cached_property
    def output_types(self) -> CArray:
        """PJRT's numbers of the element types of the results."""
        return CArray([leaf.element_type for leaf in self.outputs], ctypes.c_uint32)

    @cached_property
    def output_dimensions(self) -> tuple[CArray, CArray]:
        """The dimensions of all results, concatenated in one array, and the ranks of the results."""
        flat = [extent for leaf in self.outputs for extent in leaf.dimensions]
        return CArray(flat, ctypes.c_int64), CArray([leaf.rank for leaf in self.outputs], ctypes.c_size_t)

    @cached_property
    def output_memory_kinds(self) -> tuple[CArray, CArray]:
        """The memory kinds of the results: the addresses of their names, and the names' sizes in bytes."""
        return self._memory_kinds(self.outputs)

    @cached_property
    def parameter_memory_kinds(self) -> tuple[CArray, CArray]:
        """The memory kinds of the arguments: the addresses of their names, and the names' sizes in bytes."""
        return self._memory_kinds(self.inputs)

    def _memory_kinds(self, leaves: Sequence[Leaf]) -> tuple[CArray, CArray]:
        memories = [self.assigned[0].memories[leaf.memory].record for leaf in leaves]
        sizes = CArray([memory["kind_size"] for memory in memories], ctypes.c_size_t)
        return CArray([memory["kind"] for memory in memories]), sizes

    @cached_property
    def fingerprint(self) -> Text:
        return Text(self.compiled.key)

    @cached_property
    def device_assignment(self) -> Text:
        """The ids of the program's devices in all processes as a serialized DeviceAssignmentProto."""
        interface = self.interface
        ids = [device.id for device in self.assigned]
        return Text(device_assignment(interface.num_replicas, interface.num_partitions, ids))

    @cached_property
    def serialized_options(self) -> Text:
        return Text(self.options)

    @cached_property
    def logical_ids(self) -> CArray:
        """The replica number and the partition number of each device of this process, in one flat array."""
        partitions = self.interface.num_partitions
        numbers = [n for n, device in enumerate(self.assigned) if device in self.devices]
        flat = [word for n in numbers for word in divmod(n, partitions)]
        return CArray(flat, ctypes.c_int32)

    @cached_property
    def cost(self) -> NamedValues:
        """The properties that JAX's ``cost_analysis()`` returns, as an array of PJRT_NamedValue."""
        return NamedValues(self.compiled.cost_properties())

    @cached_property
    def optimized_program(self) -> tuple[Text, Text]:
        """The serialized optimized module, and the name of its format, ``hlo_with_config``."""
        return Text(self.compiled.optimized_program), Text("hlo_with_config")

    def abandon(self, error: PjrtError) -> None:
        """Make an execution that this process cannot start fail with ``error`` in the other processes too.

        Does nothing if the program runs in this process alone.
        """
        if len(self.assigned) > len(self.devices) > 0:
            cast("Executable", self.compiled.program.executable).abandon(error)

    def drop(self) -> None:
        """Free the executable: at once or, if executions of it are queued, in a `sweep` after the last."""
        unbind(self.bound)
        if self.record["queued"]:
            _destroyed_but_queued[self.handle] = self
        else:
            super().drop()


def _host_functions(compiled: Compiled, callbacks: Sequence[object]) -> HostFunctions | None:
    """Return the object by which the native code of a program calls the Python functions ``callbacks``.

    Returns None if the native code calls no Python functions.
    """
    calls = compiled.host_calls if callbacks else ()
    return HostFunctions(calls, callbacks) if calls else None


def _address_of(table: Sequence[Record]) -> int:
    return table[0].address if table else 0


def _input(leaf: Leaf) -> dict[str, int]:
    """Return the fields of the struct `INPUT`: what native code requires of the buffer of an argument.

    They are its size in bytes, its element type and its layout.
    """
    element_type = PRED if leaf.is_token else leaf.element_type
    return {"bytes": leaf.bytes, "type": element_type, "layout": handle_of(leaf.order)}


def _output(leaf: Leaf, dimensions: CArray, donor: int) -> dict[str, int]:
    """Return the fields of the struct `OUTPUT`: what native code needs to allocate the buffer of a result.

    They are size, element type, dimensions (a C array), memory space, layout, and ``donor``, the index of the
    argument whose memory the result may reuse, or -1.
    """
    return {
        "bytes": leaf.bytes,
        "type": leaf.element_type,
        "rank": leaf.rank,
        "dimensions": dimensions.address,
        "memory": leaf.memory,
        "layout": handle_of(leaf.order),
        "donor": donor,
    }


_destroyed_but_queued: Final[dict[int, LoadedExecutable]] = {}
"""Destroyed executables with queued executions, by handle."""
keep_for_ever(_destroyed_but_queued)


def sweep() -> None:
    """Free the executables that callers of PJRT have destroyed, except those with queued executions.

    Several threads may call this at the same time.
    """
    for handle, executable in list(_destroyed_but_queued.items()):
        if not executable.record["queued"] and _destroyed_but_queued.pop(handle, None) is not None:
            Handle.drop(executable)
    handle = native().call("pjrt_take_destroyed")
    while handle:
        executable = object_at(handle, LoadedExecutable)
        handle = executable.record["next"]
        executable.drop()


def _pending_sweep(_: int | None) -> int:
    """Call `sweep`; return 0 for success. CPython runs this in the main thread, as a pending call.

    The argument, which is null, is ignored.
    """
    sweep()
    return 0


_SWEEPER: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_pending_sweep)
native().call("pjrt_set_sweeper", permanent_address(_SWEEPER))


def executable_at(handle: int | None) -> LoadedExecutable:
    """Return the executable with the given handle.

    Raises PjrtError if the handle is invalid, or if the executable is marked as deleted.
    """
    executable = object_at(handle, LoadedExecutable)
    if executable.record["is_deleted"]:
        raise PjrtError(INVALID_ARGUMENT, f"the executable {executable.interface.name} was deleted")
    return executable


@implements("LoadedExecutable_AddressableDeviceLogicalIds")
def _logical_ids(args: ctypes.Structure) -> None:
    executable = executable_at(args.executable)
    args.addressable_device_logical_ids = executable.logical_ids.address
    args.num_addressable_device_logical_ids = len(executable.devices)


@implements("LoadedExecutable_Delete")
def _delete(args: ctypes.Structure) -> None:
    """Mark an executable as deleted: ``PJRT_LoadedExecutable_Delete``.

    Later executions return an error; queued ones still run.
    """
    executable_at(args.executable).set(is_deleted=True, is_native=False)


@implements("LoadedExecutable_GetDeviceAssignment")
def _device_assignment(args: ctypes.Structure) -> None:
    executable_at(args.executable).device_assignment.write(args, "serialized_bytes")
    args.serialized_device_assignment = args.executable
    args.serialized_device_assignment_deleter = NOTHING


@implements("LoadedExecutable_Fingerprint", "Executable_Fingerprint")
def _fingerprint(args: ctypes.Structure) -> None:
    executable_at(args.executable).fingerprint.write(args, "executable_fingerprint")


@implements("Executable_SizeOfGeneratedCodeInBytes")
def _code_size(args: ctypes.Structure) -> None:
    args.size_in_bytes = executable_at(args.executable).compiled.code_size


@implements("Executable_OutputElementTypes")
def _output_types(args: ctypes.Structure) -> None:
    executable_at(args.executable).output_types.write(args, "output_types")


@implements("Executable_OutputDimensions")
def _output_dimensions(args: ctypes.Structure) -> None:
    dimensions, ranks = executable_at(args.executable).output_dimensions
    args.num_outputs, args.dims, args.dim_sizes = ranks.size, dimensions.address, ranks.address


@implements("Executable_OutputMemoryKinds")
def _output_memory_kinds(args: ctypes.Structure) -> None:
    names, sizes = executable_at(args.executable).output_memory_kinds
    args.num_outputs, args.memory_kinds, args.memory_kind_sizes = names.size, names.address, sizes.address


@implements("Executable_ParameterMemoryKinds")
def _parameter_memory_kinds(args: ctypes.Structure) -> None:
    names, sizes = executable_at(args.executable).parameter_memory_kinds
    args.num_parameters, args.memory_kinds, args.memory_kind_sizes = names.size, names.address, sizes.address


@implements("Executable_GetCostAnalysis")
def _cost_analysis(args: ctypes.Structure) -> None:
    executable_at(args.executable).cost.write(args, "properties")


@implements("Executable_GetCompiledMemoryStats")
def _memory_stats(args: ctypes.Structure) -> None:
    executable = executable_at(args.executable)
    compiled, interface = executable.compiled, executable.interface
    args.argument_size_in_bytes = sum(leaf.bytes for leaf in interface.inputs)
    args.output_size_in_bytes = sum(leaf.bytes for leaf in interface.outputs)
    args.alias_size_in_bytes = sum(interface.inputs[n].bytes for n in interface.donated)
    args.temp_size_in_bytes = compiled.temp_bytes
    args.generated_code_size_in_bytes = compiled.code_size
    for field in ("generated_code", "argument", "output", "alias", "temp"):
        setattr(args, f"host_{field}_size_in_bytes", 0)
    args.peak_memory_in_bytes = args.argument_size_in_bytes + args.output_size_in_bytes + compiled.temp_bytes


@implements("Executable_GetCompileOptions")
def _compile_options(args: ctypes.Structure) -> None:
    executable_at(args.executable).serialized_options.write(args, "serialized_bytes")
    args.serialized_compile_options = args.executable
    args.serialized_compile_options_deleter = NOTHING


@implements("Executable_OptimizedProgram")
def _optimized_program(args: ctypes.Structure) -> None:
    program = abi.struct("Program").from_address(args.program)
    code, form = executable_at(args.executable).optimized_program
    form.write(program, "format")
    if program.code:
        ctypes.memmove(program.code, code.address, code.size)
    program.code_size = code.size
