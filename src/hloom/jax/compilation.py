"""Compilation of what JAX hands over: a module of StableHLO, and compile options.

jaxlib converts StableHLO to HLO; everything behind that is hloom's.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from hloom.cpu.native import NativeExecutable
from hloom.ir.module import HloModule
from hloom.jax.client import Client, Device
from hloom.jax.compile_options import compiler_options, dump_flags
from hloom.jax.entry_layouts import lay_out
from hloom.jax.errors import INVALID_ARGUMENT, UNIMPLEMENTED, PjrtError
from hloom.jax.executables import Leaf, LoadedExecutable
from hloom.jax.placements import Placement, Placements, placements_of
from hloom.shape.shape import Shape

if TYPE_CHECKING:
    from hloom.runtime.executable import Executable
    from hloom.sharding.partitioner import Partitioned

_MOST_KEPT: Final = 4096
"""Programs that are kept for the case that the same one is compiled again."""


@dataclass(frozen=True)
class Compiled:
    """A program, compiled.

    Attributes:
        key: digest of the artifact and the options.
        module: the program.
        num_replicas, num_partitions: its devices.
        program: native code for one device, or an executable for several.
        placements: where arguments and results lie.
        partitioned: the program of each device, if there are several.
    """

    key: bytes
    module: HloModule
    num_replicas: int
    num_partitions: int
    program: NativeExecutable | Executable
    placements: Placements
    partitioned: Partitioned | None = None

    @property
    def local(self) -> HloModule:
        """The program of one device."""
        return self.module if self.partitioned is None else self.partitioned.module

    @property
    def name(self) -> str:
        """The module's name."""
        return self.module.name

    @cached_property
    def inputs(self) -> list[Leaf]:
        """The arguments."""
        shapes = [leaf for p in self.local.entry.parameters for leaf in _leaves(p.shape)]
        return _placed(shapes, self.placements.arguments)

    @cached_property
    def outputs(self) -> list[Leaf]:
        """The results."""
        return _placed(_leaves(self.local.entry.root.shape), self.placements.results)

    @cached_property
    def donated(self) -> list[int]:
        """The arguments whose memory the program may take."""
        config = self.module.config
        aliased = {alias.parameter_number for alias in config.aliases.values()}
        return sorted(aliased | {number for number, _ in config.buffer_donors})

    @property
    def native(self) -> NativeExecutable | None:
        """The program, if native code alone can run it: on one device, without calls to the host."""
        program = self.program
        if not isinstance(program, NativeExecutable) or program.calls_host:
            return None
        return program if program.module is program.given else None

    @property
    def temp_bytes(self) -> int:
        """The size of the arena."""
        return self.program.memory.temp

    @property
    def code_size(self) -> int:
        """The size of the code in memory, in bytes; 0 for a program of several devices."""
        return self.program.code_size if isinstance(self.program, NativeExecutable) else 0

    def cost_properties(self) -> Mapping[str, float]:
        """Return flops and bytes moved, by XLA's names."""
        cost = self.program.cost
        return {"flops": float(cost.flops), "bytes accessed": float(cost.bytes)}

    def optimized_program(self) -> bytes:
        """Return the module after all passes, as an HloModuleProtoWithConfig."""
        from hloom.jax.optimized import module_with_config

        module = self.program.optimized if isinstance(self.program, NativeExecutable) else self.local
        return module_with_config(module, self.num_replicas, self.num_partitions, self.partitioned)


def _placed(shapes: Sequence[Shape], placements: Sequence[Placement]) -> list[Leaf]:
    stated = placements or [Placement()] * len(shapes)
    return [Leaf.of(shape, placement) for shape, placement in zip(shapes, stated, strict=True)]


def _leaves(shape: Shape) -> list[Shape]:
    if shape.is_tuple:
        return [leaf for part in shape.tuple_shapes for leaf in _leaves(part)]
    return [shape]


_lock: Final = threading.Lock()
_kept: Final[dict[bytes, Compiled]] = {}


def compile_program(client: Client, code: bytes, options: bytes) -> LoadedExecutable:
    """Compile a module of StableHLO, or return the one compiled before. Raises PjrtError, HloError."""
    from hloom.jax.callbacks import take_callbacks

    parsed: Any = import_module("jaxlib._jax").CompileOptions.ParseFromString(options)
    flags = dump_flags(compiler_options(parsed.env_option_overrides))
    build = parsed.executable_build_options
    replicas, partitions = build.num_replicas, build.num_partitions
    devices = _devices(client, parsed, replicas, partitions)
    key = hashlib.sha256(code + replicas.to_bytes(4, "little") + partitions.to_bytes(4, "little")).digest()
    callbacks = take_callbacks(code)
    with _lock:
        found = _kept.get(key)
    if found is None or callbacks or flags:
        found = _compiled(key, code, replicas, partitions, flags)
        with _lock:
            _kept[key] = found
            while len(_kept) > _MOST_KEPT:
                _kept.pop(next(iter(_kept)))
    return LoadedExecutable(found, devices, options, callbacks)


def _devices(client: Client, options: Any, replicas: int, partitions: int) -> list[Device]:
    """Return the devices of the options' assignment, by default the first ones."""
    assignment = options.device_assignment or options.executable_build_options.device_assignment
    count = replicas * partitions
    ids: Sequence[int] = range(count)
    if assignment is not None:
        rows = assignment.serialize()
        ids = _assigned(rows, replicas, partitions)
    if any(not 0 <= n < len(client.devices) for n in ids):
        message = f"the program runs on devices {list(ids)}, there are {len(client.devices)}"
        raise PjrtError(INVALID_ARGUMENT, message)
    return [client.devices[n] for n in ids]


def _assigned(serialized: bytes, replicas: int, partitions: int) -> list[int]:
    """Return the devices of a DeviceAssignmentProto, replica-major."""
    from hloom.proto.schema import xla_data_pb2

    proto = xla_data_pb2.DeviceAssignmentProto.FromString(serialized)
    columns = [list(column.replica_device_ids) for column in proto.computation_devices]
    return [columns[p][r] for r in range(replicas) for p in range(partitions)]


def _compiled(key: bytes, code: bytes, replicas: int, partitions: int, flags: str) -> Compiled:
    converter: Any = import_module("jaxlib._jax").mlir
    converted = converter.mlir_module_to_xla_computation(code, use_tuple_args=False, return_tuple=False)
    module = HloModule.from_proto(converted.as_serialized_hlo_module_proto())
    placements = placements_of(code)
    if replicas * partitions == 1:
        placements = lay_out(module, placements)
        return Compiled(key, module, 1, 1, NativeExecutable(module, flags), placements)
    if replicas > 1:
        raise PjrtError(
            UNIMPLEMENTED, f"programs have one replica and any number of partitions, got {replicas}"
        )
    from hloom.runtime.executable import compile as compile_for_devices
    from hloom.sharding.partitioner import partition

    partitioned = partition(module, partitions)
    placements = lay_out(partitioned.module, placements)
    program = compile_for_devices(partitioned.module, num_partitions=partitions)
    return Compiled(key, module, replicas, partitions, program, placements, partitioned)
