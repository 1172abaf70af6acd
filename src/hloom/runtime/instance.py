"""Sets of devices, each for one run of an executable at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from hloom.devices.peers import Peers
from hloom.devices.transport import Transport
from hloom.devices.world import World
from hloom.runtime.backend import Backend, CompileOptions, DeviceProgram, Program


class Instance:
    """A set of devices for one run at a time, with their programs.

    Attributes:
        world: the devices.
        programs: the programs on them, replica-major.
        lock: held during a run.
    """

    def __init__(
        self,
        backend: Backend,
        programs: Sequence[Program],
        options: CompileOptions,
        processes: Transport | None,
    ) -> None:
        replicas, partitions = options.num_replicas, options.num_partitions
        peers = None
        if processes is not None and processes.size > 1:
            peers = Peers(processes, [(r, p) for r in range(replicas) for p in range(partitions)])
        self.world = World(replicas, partitions, peers)
        self.programs: Sequence[DeviceProgram] = backend.load(programs, self.world)
        self.lock = threading.Lock()
