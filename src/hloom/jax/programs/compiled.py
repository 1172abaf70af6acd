"""Compiled programs: native code and its interface to JAX.

JAX queries the `Interface` and the serialized optimized module on every compilation. Both are cached beside
the code, so that a cached program needs no HLO module. Rare queries convert the StableHLO artifact again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from hloom.codegen.target import OPTIMIZED, QUICK
from hloom.jax.devices.client import MEMORY_KINDS, STOP, Client, ClientDevice
from hloom.jax.pjrt.element_types import NUMBERS, TOKEN, TYPES
from hloom.jax.pjrt.errors import UNIMPLEMENTED, PjrtError
from hloom.jax.programs.placements import Placement, Placements, placements_of
from hloom.jaxlib import private
from hloom.records import dataclass

if TYPE_CHECKING:
    from hloom.analysis.cost import Cost
    from hloom.cpu.loaded_program import LoadedProgram
    from hloom.cpu.native import NativeExecutable
    from hloom.cpu.runtime.gang import Gang
    from hloom.devices.transport import Transport
    from hloom.ir.instruction import HloInstruction
    from hloom.ir.module import HloModule, ModuleConfig
    from hloom.jax.devices.processes import Processes
    from hloom.runtime.backend import Host
    from hloom.runtime.executable import Executable
    from hloom.shape.shape import Shape
    from hloom.sharding.partitioning.partitioner import Partitioned

_PRED: Final = 1
_SMALL_COST: Final = 1 << 12
"""Limit of operations plus bytes for unoptimized machine code; such a program runs below a microsecond."""
_SMALL_LENGTH: Final = 512
"""Number of instructions above which a program is not small, whatever its cost."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """The type, layout and memory space of one array or token among a program's arguments or results.

    JAX passes a token as an array without elements.

    Attributes:
        dimensions: the dimensions in logical order.
        element_type: PJRT's number of the element type.
        is_token: whether this describes a token.
        memory: the index of the memory space among those of the device.
        order: the minor-to-major order of the dimensions in memory; empty for row-major.
    """

    dimensions: tuple[int, ...]
    element_type: int
    is_token: bool = False
    memory: int = 0
    order: tuple[int, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.dimensions)

    @property
    def bytes(self) -> int:
        """The size of the array in bytes, 0 for a token; an element narrower than a byte takes one byte."""
        if self.is_token:
            return 0
        width = 1 if self.element_type == _PRED else TYPES[self.element_type].numpy_dtype.itemsize
        return math.prod(self.dimensions) * width

    @staticmethod
    def of(shape: Shape, placement: Placement) -> Leaf:
        """Return the `Leaf` for a parameter or result of a compiled program, given its shape and placement.

        In the program arrays are row-major: the dimensions of ``shape`` are the logical dimensions in the
        major-to-minor order of ``placement``. The `Leaf` has them in logical order.
        """
        if not shape.is_array:
            return Leaf((0,), TOKEN, True, placement.memory)
        dimensions, order = shape.dimensions, placement.order
        if order:
            dimensions = tuple(dimensions[len(order) - 1 - order.index(d)] for d in range(len(order)))
        return Leaf(dimensions, NUMBERS[shape.element_type], False, placement.memory, order)

    def to_json(self) -> list[object]:
        """Return a list of the attributes of this argument or result, which can be encoded as JSON.

        hloom's cache on disk keeps such lists; `Interface.from_json` reads them.
        """
        return [self.dimensions, self.element_type, self.is_token, self.memory, self.order]


@dataclass(frozen=True, slots=True)
class Interface:
    """What callers need to know about a program: arguments, results, donation and number of devices.

    Attributes:
        name: the name of the HLO module.
        inputs, outputs: the arguments and the results, flattened: a tuple stands for its elements.
        donated: the indices, in ``inputs``, of the arguments whose buffers the program may reuse.
        num_replicas, num_partitions: their product is the number of devices.
    """

    name: str
    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    donated: tuple[int, ...]
    num_replicas: int
    num_partitions: int

    @staticmethod
    def of(program: HloProgram) -> Interface:
        """Return the interface of a compiled program, read from its HLO modules."""
        local = program.local
        arguments = [leaf for p in local.entry.parameters for leaf in _leaves(p.shape)]
        inputs = _leaves_with_placements(arguments, program.placements.arguments)
        outputs = _leaves_with_placements(_leaves(local.entry.root.shape), program.placements.results)
        return Interface(
            program.module.name,
            inputs,
            outputs,
            _donated(program.module.config, inputs, outputs),
            program.num_replicas,
            program.num_partitions,
        )

    def to_json(self) -> dict[str, object]:
        """Return the interface as a dictionary that can be encoded as JSON; `from_json` reads it."""
        return {
            "name": self.name,
            "inputs": [leaf.to_json() for leaf in self.inputs],
            "outputs": [leaf.to_json() for leaf in self.outputs],
            "donated": self.donated,
            "devices": [self.num_replicas, self.num_partitions],
        }

    @staticmethod
    def from_json(facts: object) -> Interface | None:
        """Return the interface that `to_json` has converted to ``facts``; None if ``facts`` is malformed."""
        try:
            fields = cast("Any", facts)
            replicas, partitions = fields["devices"]
            return Interface(
                str(fields["name"]),
                _leaves_of(fields["inputs"]),
                _leaves_of(fields["outputs"]),
                tuple(int(number) for number in fields["donated"]),
                int(replicas),
                int(partitions),
            )
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True)
class HloProgram:
    """A program compiled by this process, with its HLO modules.

    Attributes:
        module: the module from JAX, before partitioning.
        num_replicas, num_partitions: their product is the number of devices.
        executable: native code, if there is one device; else an object that runs the program on all devices.
        placements: memory spaces and layouts of arguments and results.
        partitioned: the partitioned module and its shardings, if there are several devices; else None.
    """

    module: HloModule
    num_replicas: int
    num_partitions: int
    executable: NativeExecutable | Executable
    placements: Placements
    partitioned: Partitioned | None = None

    @property
    def local(self) -> HloModule:
        """The HLO module that each device runs: the partitioned one, if there are several devices."""
        return self.module if self.partitioned is None else self.partitioned.module

    @property
    def single_device_executable(self) -> NativeExecutable | None:
        """The native code of a program for one device; None for several devices."""
        from hloom.cpu.native import NativeExecutable

        return self.executable if isinstance(self.executable, NativeExecutable) else None

    @property
    def cost(self) -> Cost:
        """The arithmetic operations, and the bytes read and written, of one execution on one device."""
        from hloom.cpu.native import NativeExecutable

        executable = self.executable
        return (executable.inspection if isinstance(executable, NativeExecutable) else executable).cost

    def encoded(self) -> bytes:
        """Return the optimized HLO module, for JAX, as a serialized HloModuleProtoWithConfig.

        If there are several devices, returns instead the partitioned module before optimization, in which
        asynchronous operations (a start and a done instruction) are replaced by synchronous ones if possible.
        """
        from hloom.jax.programs.optimized import module_with_config
        from hloom.passes.expand.synchronous_operations import SynchronousOperations

        executable = self.single_device_executable
        if executable is not None:
            module = executable.inspection.optimized
        else:
            module = self.local.clone()
            SynchronousOperations().run(module)
        return module_with_config(module, self.num_replicas, self.num_partitions, self.partitioned)


class Compiled:
    """A compiled program with its interface, newly compiled or from the cache.

    Attributes:
        key: the cache key: a digest of the program, its devices, the compiler and the processor.
        artifact: JAX's program, a portable artifact of StableHLO.
        interface: arguments, results, donation and number of devices.
        native: the native code, if the program runs on one device and never calls Python; else None.
        program_key: the key of the native code in the cache; empty if it is not cached.
        description: jaxlib's description of the results, the beginning of a serialized executable; empty
            until jaxlib has serialized the program.
    """

    def __init__(
        self,
        key: str,
        artifact: bytes,
        interface: Interface,
        native: LoadedProgram | None = None,
        optimized: bytes | None = None,
        program_key: str = "",
        description: bytes = b"",
    ) -> None:
        """Store the arguments, which are the attributes of `Compiled`, and ``optimized``.

        ``optimized`` is the serialized optimized module; if it is None, the artifact is compiled again when
        that module is needed.
        """
        self.key = key
        self.artifact = artifact
        self.interface = interface
        self.native = native
        self._optimized = optimized
        self.program_key = program_key
        self.description = description

    @staticmethod
    def of(key: str, artifact: bytes, program: HloProgram) -> Compiled:
        """Return a `Compiled` for ``program``, which has just been compiled from ``artifact``.

        It keeps the HLO modules in ``program`` only if the program runs on several devices, calls Python, or
        has dynamic sizes; ``key`` is the cache key.
        """
        interface, executable = Interface.of(program), program.single_device_executable
        if executable is not None and executable.runs_alone:
            return Compiled(key, artifact, interface, executable.loaded, program.encoded(), executable.key)
        compiled = Compiled(key, artifact, interface)
        compiled.program = program
        return compiled

    @cached_property
    def program(self) -> HloProgram:
        """The program with its HLO modules; the artifact is compiled again if the modules were dropped."""
        return compile_artifact(self.artifact, self.interface.num_replicas, self.interface.num_partitions)

    @property
    def code_with_callbacks(self) -> LoadedProgram | None:
        """The native code of a program for one device that calls Python functions of the user.

        None if the program calls none, runs on several devices, or has dynamic sizes.
        """
        executable = self.program.single_device_executable if self.native is None else None
        return None if executable is None or executable.module is not executable.source else executable.loaded

    @property
    def host_calls(self) -> Sequence[HloInstruction]:
        """The instructions that native code leaves to the host, such as Python callbacks and collectives.

        Empty if there are none, or if Python runs the program, for one device, because of dynamic sizes.
        """
        if self.native is not None:
            return ()
        if self.program.single_device_executable is not None and self.code_with_callbacks is None:
            return ()
        return self.program.executable.host_calls

    @cached_property
    def gang(self) -> Gang | None:
        """The `Gang`, which runs the code of all devices in one thread, switching between their stacks.

        None for a program on one device, in several processes, or with Python callbacks.
        """
        return self.gang_with_host(None)

    def gang_with_host(self, host: Host | None) -> Gang | None:
        """Return a `Gang`, which runs the code of all devices of a program in one thread.

        ``host`` runs the program's Python callbacks; None if it has none. Returns None for a program on one
        device or in several processes, and if the program contains what a gang cannot run.
        """
        if self.native is not None:
            return None
        from hloom.runtime.executable import Executable

        executable = self.program.executable
        gang = executable.gang(STOP, host) if isinstance(executable, Executable) else None
        return cast("Gang | None", gang)

    @cached_property
    def temp_bytes(self) -> int:
        """The size of the arena, the memory of temporaries, in bytes."""
        if self.native is not None:
            return self.native.memory.temp
        from hloom.cpu.native import NativeExecutable

        executable = self.program.executable
        return (executable.loaded if isinstance(executable, NativeExecutable) else executable).memory.temp

    @cached_property
    def code_size(self) -> int:
        """The size of the machine code in bytes, which JAX shows; 0 for a program on several devices."""
        if self.native is not None:
            return self.native.size
        executable = self.program.single_device_executable
        return 0 if executable is None else executable.loaded.size

    def cost_properties(self) -> Mapping[str, float]:
        """Return the costs of an execution on one device by XLA's names: ``flops`` and ``bytes accessed``."""
        if self.native is None:
            cost = self.program.cost
        else:
            from hloom.analysis.cost import module_cost
            from hloom.cpu.jit.compilation import optimize
            from hloom.jax.programs.entry_layouts import lay_out

            module = converted(self.artifact)
            lay_out(module, placements_of(self.artifact))
            cost = module_cost(optimize(module))
        return {"flops": float(cost.flops), "bytes accessed": float(cost.bytes)}

    @property
    def optimized_program(self) -> bytes:
        """The optimized HLO module as a serialized HloModuleProtoWithConfig.

        JAX prints it, and reads the shardings of arguments and results from it. If there are several devices,
        it is the partitioned module before optimization.
        """
        if self._optimized is None:
            self._optimized = self.program.encoded()
        return self._optimized


def converted(artifact: bytes) -> HloModule:
    """Convert a portable artifact of StableHLO to an HLO module."""
    from hloom.ir.module import HloModule

    computation = private.to_computation()(artifact, use_tuple_args=False, return_tuple=False)
    return HloModule.from_proto(computation.as_serialized_hlo_module_proto())


@dataclass(frozen=True, slots=True)
class DistributedDevices:
    """The devices of a program that runs in several processes.

    Attributes:
        processes: the processes of the platform, which open the transport between the program's processes.
        devices: the program's devices in all processes, replica-major.
    """

    processes: Processes
    devices: Sequence[ClientDevice]

    @staticmethod
    def of(client: Client, devices: Sequence[ClientDevice]) -> DistributedDevices | None:
        """Return the `DistributedDevices` of a program; None if this process owns all of ``devices``."""
        is_local = len(client.own(devices)) == len(devices)
        return None if is_local else DistributedDevices(client.processes, devices)

    def transport(self, module: HloModule) -> Transport | None:
        """Open the transport by which the collectives of ``module`` exchange data between processes.

        Returns None if this process owns none of the program's devices.
        """
        numbers, owners = [d.id for d in self.devices], [d.process for d in self.devices]
        if self.processes.rank not in owners:
            return None
        return self.processes.of_program(module, owners, numbers)


def compile_artifact(
    artifact: bytes,
    num_replicas: int,
    num_partitions: int,
    dump_flags: str = "",
    open_parameters: tuple[bool, ...] = (),
    distributed: DistributedDevices | None = None,
) -> HloProgram:
    """Convert a StableHLO artifact to HLO, partition it for several devices, and compile it.

    Args:
        artifact: a portable artifact of StableHLO.
        num_replicas: the number of replicas, which must be 1.
        num_partitions: the number of partitions and devices.
        dump_flags: XLA's ``--xla_dump_*`` options, in the syntax of ``XLA_FLAGS``.
        open_parameters: for each parameter, whether the partitioner chooses its sharding if it has none;
            empty to take this from the artifact.
        distributed: the program's devices if some belong to other processes, else None.

    Raises PjrtError and HloError.
    """
    from hloom.jax.calls import callbacks, foreign_functions
    from hloom.jax.programs.entry_layouts import lay_out

    callbacks.register_targets()
    foreign_functions.register_targets()
    module, placements = converted(artifact), placements_of(artifact)
    if num_replicas * num_partitions == 1:
        from hloom.cpu.native import compile_or_load

        placements = lay_out(module, placements)
        executable = compile_or_load(module, dump_flags, _code_level(module), keeps_packed=True)
        return HloProgram(module, 1, 1, executable, placements)
    if num_replicas > 1:
        message = f"programs have one replica and any number of partitions, got {num_replicas}"
        raise PjrtError(UNIMPLEMENTED, message)
    from hloom.jax.calls import custom_partitioning
    from hloom.runtime.executable import compile as compile_for_devices
    from hloom.sharding.partitioning.partitioner import partitioned_program

    custom_partitioning.install(converted)
    if open_parameters:
        module.config.allow_spmd_sharding_propagation_to_parameters = open_parameters
    partitioned = partitioned_program(module, num_partitions, even_results=True)
    placements = lay_out(partitioned.module, placements)
    transport = None if distributed is None else distributed.transport(partitioned.module)
    executable = compile_for_devices(partitioned.module, num_partitions=num_partitions, processes=transport)
    return HloProgram(module, num_replicas, num_partitions, executable, placements, partitioned)


def _code_level(module: HloModule) -> int:
    """Return whether LLVM is to optimize the code of a program: `OPTIMIZED`, or else `QUICK`.

    `QUICK` is for programs without loops on at most a few hundred elements. Most programs of JAX are single
    operations on small arrays, not in ``jax.jit``. They take a microsecond, less than JAX takes to call them,
    so optimization, which doubles the time in LLVM, is not worthwhile.
    """
    from hloom.analysis.cost import module_cost
    from hloom.operations.control_flow import While
    from hloom.operations.scan import Scan

    if any(isinstance(i.operation, (While, Scan)) for i in module.instructions()):
        return OPTIMIZED
    if sum(len(c.instructions) for c in module.computations) > _SMALL_LENGTH:
        return OPTIMIZED
    cost = module_cost(module)
    return QUICK if cost.flops + 8 * cost.transcendentals + cost.bytes <= _SMALL_COST else OPTIMIZED


def _donated(config: ModuleConfig, inputs: Sequence[Leaf], outputs: Sequence[Leaf]) -> tuple[int, ...]:
    """Return the indices of the donated arguments: those aliased to a result, and some buffer donors.

    HLO's buffer donors are arguments donated without an alias; JAX states them if the partitioner chooses the
    shardings of results. Each result without an alias takes one donor of the same size in bytes, if there is
    one; the donors that no result takes are not donated, as in XLA.
    """
    donated = {alias.parameter_number for alias in config.aliases.values()}
    aliased = {index[0] if index else 0 for index in config.aliases}
    sizes = Counter(leaf.bytes for number, leaf in enumerate(outputs) if number not in aliased)
    for number, _ in config.buffer_donors:
        size = inputs[number].bytes
        if number not in donated and sizes[size]:
            sizes[size] -= 1
            donated.add(number)
    return tuple(sorted(donated))


def _leaves_with_placements(shapes: Sequence[Shape], placements: Sequence[Placement]) -> tuple[Leaf, ...]:
    placements = placements or [Placement()] * len(shapes)
    return tuple(Leaf.of(shape, placement) for shape, placement in zip(shapes, placements, strict=True))


def _leaves(shape: Shape) -> list[Shape]:
    if shape.is_tuple:
        return [leaf for part in shape.tuple_shapes for leaf in _leaves(part)]
    return [shape]


def _leaves_of(rows: Any) -> tuple[Leaf, ...]:
    """Return the `Leaf` objects that `Leaf.to_json` has converted to the elements of the list ``rows``.

    Raises KeyError, TypeError or ValueError if ``rows`` is malformed.
    """
    leaves = [
        Leaf(tuple(map(int, dimensions)), int(kind), bool(is_token), int(memory), tuple(map(int, order)))
        for dimensions, kind, is_token, memory, order in rows
    ]
    if not all(
        (leaf.element_type in TYPES or leaf.is_token) and leaf.memory in range(len(MEMORY_KINDS))
        for leaf in leaves
    ):
        raise ValueError("no such element type or memory")
    return tuple(leaves)
