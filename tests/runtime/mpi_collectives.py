"""Run every collective on devices in several processes, and print those that differ from a single process."""

from __future__ import annotations

from typing import Any

import numpy as np
from collective_programs import programs

import hloom
from hloom.runtime import mpi

processes = mpi.world()


def leaves(value: Any) -> list[bytes]:
    """Return the bits of a result."""
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [np.asarray(value).tobytes()]


count = 0
for name, text in programs():
    module = hloom.HloModule.from_text(text)
    module.verify()
    devices = module.config.replica_count * module.config.num_partitions
    arguments = [hloom.debug.random_arguments(module, seed) for seed in range(devices)]
    exe = hloom.compile(module, processes=processes)
    numbers = [d.replica * exe.num_partitions + d.partition for d in exe.devices]
    for _ in range(2):
        results = exe.run([arguments[n] for n in numbers])
    together = [part for each in processes.all_gather([leaves(r) for r in results]) for part in each]
    if processes.rank == 0:
        count += 1
        alone = [leaves(result) for result in hloom.compile(module).run(arguments)]
        if together != alone:
            print(f"{name} differs")
if processes.rank == 0:
    print(f"{count} programs on {processes.size} processes")
