"""Programs on global arrays for several devices, as they are before XLA's partitioner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hloom.devices.transport import Transport
from hloom.ir.module import HloModule
from hloom.operations.custom_call import CustomCall
from hloom.runtime.device import Device
from hloom.runtime.executable import compile as compile_module
from hloom.sharding.partitioning.partitioner import partitioned_program
from hloom.sharding.storing.stored_arrays import store
from hloom.sharding.storing.tiles import cut, joined

if TYPE_CHECKING:
    from hloom.runtime.measurements import Profile

_REGIONS: Final = ("xla.sdy.GlobalToLocalShape", "SPMDFullToShardShape")
"""Custom calls that begin a manual region, which computes on the tiles of the devices."""


def has_regions(module: HloModule) -> bool:
    """Return whether a program on global arrays has manual regions, so that it must be partitioned to run."""
    operations = (i.operation for i in module.instructions())
    return any(isinstance(o, CustomCall) and o.custom_call_target in _REGIONS for o in operations)


class WholeProgram:
    """A partitioned program with the interface of an `Executable` of one device.

    It takes global arrays, runs on their tiles, and joins the tiles of the results.
    """

    num_replicas: Final = 1
    num_partitions: Final = 1

    def __init__(
        self, module: HloModule, backend: str, devices: int, processes: Transport | None = None
    ) -> None:
        self._partitioned = partitioned_program(module, devices)
        self._executable = compile_module(
            self._partitioned.module, backend, num_partitions=devices, processes=processes
        )
        self._processes = processes
        self._result = module.entry.root.shape

    @property
    def devices(self) -> list[Device]:
        """The first device of this process, which stands for all."""
        return self._executable.devices[:1]

    @property
    def _numbers(self) -> list[int]:
        return [device.partition for device in self._executable.devices]

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """Run on global arguments; return the tiles of the results on this process's devices."""
        return self._executable.run(self._parts(arguments))

    def whole(self, results: Sequence[object]) -> Any:
        """Gather the tiles of all processes, and return the global result in each of them."""
        results_by_process = [results] if self._processes is None else self._processes.all_gather(results)
        tiles = [result for part in results_by_process for result in part]
        return joined(tiles, self._partitioned.results, self._result)

    def store(self, directory: Path, results: Sequence[object]) -> list[Path]:
        """Write the tiles of all processes as stored arrays; see `hloom.sharding.store`."""
        names = store(
            directory,
            results,
            self._numbers,
            self._result,
            self._partitioned.results,
            processes=self._processes,
        )
        return [directory / name for name in names]

    def profile(self, *arguments: object) -> Profile:
        """Run on global arguments, and return the times of all devices; see `Executable.profile`."""
        parts = self._parts(arguments)
        return self._executable.profile(*parts[0]) if len(parts) == 1 else self._executable.profile(parts)

    def _parts(self, arguments: Sequence[object]) -> list[Any]:
        """Return the tiles of the arguments for each device of this process."""
        return [cut(arguments, self._partitioned.parameters, device) for device in self._numbers]
