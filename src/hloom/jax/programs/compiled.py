"""Compiled programs: native code and its interface to JAX.

JAX queries the `Interface` and the encoded optimized module on every compile. Both are stored beside the
code, so that a cached program needs no module; rare queries convert the artifact again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from hloom.codegen.target import OPTIMIZED, QUICK
from hloom.jax.devices.client import MEMORY_KINDS, STOP, Client, ClientDevice
from hloom.jax.pjrt.element_types import NUMBERS, TOKEN, TYPES
from hloom.jax.pjrt.errors import UNIMPLEMENTED, PjrtError
from hloom.jax.programs.placements import Placement, Placements, placements_of
from hloom.jaxlib import private

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
"""Limit of operations and bytes below which machine code is not optimized: below a microsecond."""
_SMALL_LENGTH: Final = 512
"""Number of instructions from which a program costs more than that."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """An argument or a result: an array, or a token, which has no elements.

    Attributes:
        dimensions: the array's.
        number: PJRT's number of the element type.
        is_token: whether it is a token.
        memory: the number of the memory on its device, for a result.
        order: the dimensions, minor to major; empty if the array is row-major.
    """

    dimensions: tuple[int, ...]
    number: int
    is_token: bool = False
    memory: int = 0
    order: tuple[int, ...] = ()

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.dimensions)

    @property
    def bytes(self) -> int:
        """The size of the elements; those of less than a byte take a whole one."""
        if self.is_token:
            return 0
        size = 1 if self.number == _PRED else TYPES[self.number].numpy_dtype.itemsize
        for extent in self.dimensions:
            size *= extent
        return size

    @staticmethod
    def of(shape: Shape, placement: Placement) -> Leaf:
        """Return the leaf for a shape that is no tuple; it has the dimensions major to minor."""
        if not shape.is_array:
            return Leaf((0,), TOKEN, True, placement.memory)
        dimensions, order = shape.dimensions, placement.order
        if order:
            dimensions = tuple(dimensions[len(order) - 1 - order.index(d)] for d in range(len(order)))
        return Leaf(dimensions, NUMBERS[shape.element_type], False, placement.memory, order)

    def to_json(self) -> list[object]:
        """Return the leaf in the types of JSON."""
        return [self.dimensions, self.number, self.is_token, self.memory, self.order]


@dataclass(frozen=True, slots=True)
class Interface:
    """The interface of a program: arguments, results, donation and devices.

    Attributes:
        name: of the module.
        inputs, outputs: the arguments and the results.
        donated: the arguments whose memory the program may take, by number.
        num_replicas, num_partitions: its devices.
    """

    name: str
    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    donated: tuple[int, ...]
    num_replicas: int
    num_partitions: int

    @staticmethod
    def of(program: Program) -> Interface:
        """Return the interface of a program."""
        local = program.local
        arguments = [leaf for p in local.entry.parameters for leaf in _leaves(p.shape)]
        inputs = _placed(arguments, program.placements.arguments)
        outputs = _placed(_leaves(local.entry.root.shape), program.placements.results)
        return Interface(
            program.module.name,
            inputs,
            outputs,
            _donated(program.module.config, inputs, outputs),
            program.num_replicas,
            program.num_partitions,
        )

    def to_json(self) -> dict[str, object]:
        """Return the interface in the types of JSON."""
        return {
            "name": self.name,
            "inputs": [leaf.to_json() for leaf in self.inputs],
            "outputs": [leaf.to_json() for leaf in self.outputs],
            "donated": self.donated,
            "devices": [self.num_replicas, self.num_partitions],
        }

    @staticmethod
    def from_json(facts: object) -> Interface | None:
        """Return the interface; None if something is missing or of another form."""
        try:
            found = cast("Any", facts)
            replicas, partitions = found["devices"]
            return Interface(
                str(found["name"]),
                _leaves_of(found["inputs"]),
                _leaves_of(found["outputs"]),
                tuple(int(number) for number in found["donated"]),
                int(replicas),
                int(partitions),
            )
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True)
class Program:
    """A program with its modules.

    Attributes:
        module: as JAX gave it.
        num_replicas, num_partitions: its devices.
        executable: native code for one device, or an executable for several.
        placements: where arguments and results lie.
        partitioned: the program of each device, if there are several.
    """

    module: HloModule
    num_replicas: int
    num_partitions: int
    executable: NativeExecutable | Executable
    placements: Placements
    partitioned: Partitioned | None = None

    @property
    def local(self) -> HloModule:
        """The program of one device."""
        return self.module if self.partitioned is None else self.partitioned.module

    @property
    def alone(self) -> NativeExecutable | None:
        """The program of one device."""
        from hloom.cpu.native import NativeExecutable

        return self.executable if isinstance(self.executable, NativeExecutable) else None

    @property
    def cost(self) -> Cost:
        """The operations and bytes moved by a run on one device."""
        from hloom.cpu.native import NativeExecutable

        executable = self.executable
        return (executable.inspection if isinstance(executable, NativeExecutable) else executable).cost

    def encoded(self) -> bytes:
        """Return the module after all passes, with its configuration.

        That of several devices is the partitioned one, with synchronous operations as it runs.
        """
        from hloom.jax.programs.optimized import module_with_config
        from hloom.passes.expand.synchronous_operations import SynchronousOperations

        if self.alone is not None:
            module = self.alone.inspection.optimized
        else:
            module = self.local.clone()
            SynchronousOperations().run(module)
        return module_with_config(module, self.num_replicas, self.num_partitions, self.partitioned)


class Compiled:
    """A program, compiled.

    Attributes:
        key: digest of the program, its devices, the compiler and the processor.
        artifact: the program as JAX gave it, a portable artifact of StableHLO.
        interface: arguments, results, donation and devices.
        native: its native code, if that alone runs it: on one device, without calls to the host.
        program_key: the key of the native code in the cache; empty if there is none.
        description: what jaxlib writes before the bytes of this executable when it serializes it; empty
            until it was asked.
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
        """Hold a program; parts that are not given are made from the artifact on demand."""
        self.key = key
        self.artifact = artifact
        self.interface = interface
        self.native = native
        self._optimized = optimized
        self.program_key = program_key
        self.description = description

    @staticmethod
    def of(key: str, artifact: bytes, program: Program) -> Compiled:
        """Return a new program; keep its modules only if Python executes it."""
        interface, alone = Interface.of(program), program.alone
        if alone is not None and alone.runs_alone:
            return Compiled(key, artifact, interface, alone.loaded, program.encoded(), alone.key)
        made = Compiled(key, artifact, interface)
        made.program = program
        return made

    @cached_property
    def program(self) -> Program:
        """The program with its modules."""
        return compile_artifact(self.artifact, self.interface.num_replicas, self.interface.num_partitions)

    @property
    def calling(self) -> LoadedProgram | None:
        """The native code of a program of one device that calls the host; None for others."""
        alone = self.program.alone if self.native is None else None
        return None if alone is None or alone.module is not alone.source else alone.loaded

    @property
    def host_calls(self) -> Sequence[HloInstruction]:
        """The instructions that call the host, if native code calls it without an evaluator."""
        if self.native is not None or (self.program.alone is not None and self.calling is None):
            return ()
        return self.program.executable.host_calls

    @cached_property
    def gang(self) -> Gang | None:
        """The devices as one thread runs them; None if there is one, or if the program calls the host."""
        return self.calling_gang(None)

    def calling_gang(self, host: Host | None) -> Gang | None:
        """Return the devices as one thread runs them; ``host`` answers their calls. None as for `gang`."""
        if self.native is not None:
            return None
        from hloom.runtime.executable import Executable

        executable = self.program.executable
        gang = executable.gang(STOP, host) if isinstance(executable, Executable) else None
        return cast("Gang | None", gang)

    @cached_property
    def temp_bytes(self) -> int:
        """The size of the arena."""
        if self.native is not None:
            return self.native.memory.temp
        from hloom.cpu.native import NativeExecutable

        executable = self.program.executable
        return (executable.loaded if isinstance(executable, NativeExecutable) else executable).memory.temp

    @cached_property
    def code_size(self) -> int:
        """The size of the code in memory, in bytes; 0 for a program of several devices."""
        if self.native is not None:
            return self.native.size
        return 0 if self.program.alone is None else self.program.alone.loaded.size

    def cost_properties(self) -> Mapping[str, float]:
        """Return flops and bytes moved, by XLA's names."""
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
        """The module that JAX shows and reads shardings from; see `Program.encoded`."""
        if self._optimized is None:
            self._optimized = self.program.encoded()
        return self._optimized


def converted(artifact: bytes) -> HloModule:
    """Convert a portable artifact of StableHLO to HLO."""
    from hloom.ir.module import HloModule

    computation = private.to_computation()(artifact, use_tuple_args=False, return_tuple=False)
    return HloModule.from_proto(computation.as_serialized_hlo_module_proto())


@dataclass(frozen=True, slots=True)
class Divided:
    """The devices of a program in several processes."""

    processes: Processes
    devices: Sequence[ClientDevice]

    @staticmethod
    def of(client: Client, devices: Sequence[ClientDevice]) -> Divided | None:
        """Return the devices of a program; None if all are this process's."""
        is_local = len(client.own(devices)) == len(devices)
        return None if is_local else Divided(client.processes, devices)

    def transport(self, module: HloModule) -> Transport | None:
        """Return the messages of the program; None if none of its devices is this process's."""
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
    divided: Divided | None = None,
) -> Program:
    """Convert and compile a program for one device or several. Raises PjrtError, HloError.

    Args:
        artifact: a portable artifact of StableHLO.
        num_replicas, num_partitions: numbers of devices.
        dump_flags: files to write about the program, in the form of ``XLA_FLAGS``.
        open_parameters: for each parameter whether the partitioner chooses its sharding if none is stated.
        divided: the devices, if some are other processes'.
    """
    from hloom.jax.calls import callbacks, foreign_functions
    from hloom.jax.programs.entry_layouts import lay_out

    callbacks.register_targets()
    foreign_functions.register_targets()
    module, stated = converted(artifact), placements_of(artifact)
    if num_replicas * num_partitions == 1:
        from hloom.cpu.native import compile_or_load

        placements = lay_out(module, stated)
        return Program(module, 1, 1, compile_or_load(module, dump_flags, _code_level(module)), placements)
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
    placements = lay_out(partitioned.module, stated)
    transport = None if divided is None else divided.transport(partitioned.module)
    executable = compile_for_devices(partitioned.module, num_partitions=num_partitions, processes=transport)
    return Program(module, num_replicas, num_partitions, executable, placements, partitioned)


def _code_level(module: HloModule) -> int:
    """Return the level of code generation: quick for programs without loops on a few elements.

    Most programs of JAX are single operations on small arrays outside of jit. Their code runs for about a
    microsecond, less than a dispatch; LLVM spends half of its time on optimizing it.
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
    """Return the arguments that are donated: those that the program aliases, and donors of a result's size.

    JAX names donors if the partitioner chooses the shardings of results, so that they cannot be paired yet.
    Donors that no result can take stay as they are, as in XLA.
    """
    donated = {alias.parameter_number for alias in config.aliases.values()}
    taken = {index[0] if index else 0 for index in config.aliases}
    sizes = Counter(leaf.bytes for number, leaf in enumerate(outputs) if number not in taken)
    for number, _ in config.buffer_donors:
        size = inputs[number].bytes
        if number not in donated and sizes[size]:
            sizes[size] -= 1
            donated.add(number)
    return tuple(sorted(donated))


def _placed(shapes: Sequence[Shape], placements: Sequence[Placement]) -> tuple[Leaf, ...]:
    stated = placements or [Placement()] * len(shapes)
    return tuple(Leaf.of(shape, placement) for shape, placement in zip(shapes, stated, strict=True))


def _leaves(shape: Shape) -> list[Shape]:
    if shape.is_tuple:
        return [leaf for part in shape.tuple_shapes for leaf in _leaves(part)]
    return [shape]


def _leaves_of(rows: Any) -> tuple[Leaf, ...]:
    """Return leaves from JSON; raises KeyError, TypeError or ValueError."""
    leaves = [
        Leaf(tuple(map(int, dimensions)), int(number), bool(is_token), int(memory), tuple(map(int, order)))
        for dimensions, number, is_token, memory, order in rows
    ]
    if not all(
        (leaf.number in TYPES or leaf.is_token) and leaf.memory in range(len(MEMORY_KINDS)) for leaf in leaves
    ):
        raise ValueError("no such element type or memory")
    return tuple(leaves)
