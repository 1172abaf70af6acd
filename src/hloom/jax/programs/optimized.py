"""The optimized module as JAX reads it: HloModuleProtoWithConfig (openxla/xla, xla/service/hlo.proto)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hloom.ir.module import HloModule
from hloom.ir.sharding import Sharding
from hloom.jax.pjrt.messages import bytes_field, integer_field

if TYPE_CHECKING:
    from hloom.sharding.partitioning.partitioner import Partitioned


def module_with_config(
    module: HloModule, num_replicas: int, num_partitions: int, partitioned: Partitioned | None = None
) -> bytes:
    """Serialize a module and its configuration as an HloModuleProtoWithConfig, for JAX.

    The shardings of parameters and results that it includes are those in ``partitioned``; None to include
    none, for a program on one device. Operations that XLA does not have, such as hloom's erfc, are written as
    custom calls.
    """
    from hloom.passes.expand.composite_functions import FUNCTIONS
    from hloom.proto.writer import module_message

    proto = module_message(module)
    composites = {function.opcode: name for name, function in FUNCTIONS.items()}
    for instruction in (i for computation in proto.computations for i in computation.instructions):
        if instruction.opcode in composites:
            instruction.custom_call_target = composites[instruction.opcode]
            instruction.opcode = "custom-call"
    if partitioned is not None:
        for tiling in partitioned.parameters:
            tiling.to_sharding().write(proto.spmd_parameters_shardings.add())
        results = [tiling.to_sharding() for tiling in partitioned.results] or [Sharding.replicated()]
        is_tuple = module.entry.root.shape.is_tuple
        output = Sharding("tuple", elements=tuple(results)) if is_tuple else results[0]
        output.write(proto.spmd_output_sharding)
    encoded = proto.SerializeToString(deterministic=True)
    shape = proto.host_program_shape.SerializeToString(deterministic=True)
    config = bytes_field(1, shape) + integer_field(4, num_replicas) + integer_field(5, num_partitions)
    return bytes_field(1, encoded) + bytes_field(2, config)
