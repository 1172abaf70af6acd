"""Fail over MPI in one of several ways, and print the rules and messages of the errors of all processes."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import numpy as np
from collective_programs import computation
from mpi4py import MPI

import hloom
from hloom.errors import HloError
from hloom.runtime import mpi

ADD = computation("f32")
ALL_REDUCE = (
    "all-reduce({}), channel_id=1, replica_groups={{{{0,1}}}}, use_global_device_ids=true, to_apply=reducer"
)
SMALL = f"""
small {{
  x = f32[50000] parameter(0)
  s = f32[3] slice(x), slice={{[0:3]}}
  y = f32[3] {ALL_REDUCE.format("s")}
  ROOT r = f32[50000] pad(y, f32[] constant(0)), padding=0_49997
}}"""
LARGE = f"large {{\n x = f32[50000] parameter(0)\n ROOT y = f32[50000] {ALL_REDUCE.format('x')}\n}}"
LATE = """
NAME {
  x = f32[50000] parameter(0)
  ROOT y = f32[50000] custom-call(x), custom_call_target="tests.NAME"
}"""


def leave(x: Any) -> Any:
    """Return when process 0 waits for this one."""
    return MPI.COMM_WORLD.recv(source=0) or x


def raise_error(x: Any) -> Any:
    """Fail when process 0 waits for this one."""
    raise ValueError(MPI.COMM_WORLD.recv(source=0) or "a mistake in partition 1")


hloom.register_custom_call("tests.absent", leave)
hloom.register_custom_call("tests.raises", raise_error)


def tell() -> None:
    """Tell process 1 when a device of this process waits."""
    while not exe._world.waiting.waiters:
        time.sleep(0.01)
    MPI.COMM_WORLD.send(None, 1)


def program(first: str, second: str) -> str:
    """Return a program in which partition 0 and partition 1 call different computations."""
    names = [text.split()[0] for text in (first, second)]
    return (
        f"HloModule m, num_partitions=2\n{ADD}{first}\n{second}\n"
        "ENTRY e {\n x = f32[50000] parameter(0)\n id = u32[] partition-id()\n n = s32[] convert(id)\n"
        f" ROOT r = f32[50000] conditional(n, x, x), branch_computations={{{', '.join(names)}}}\n}}\n"
    )


PROGRAMS = {
    "other-sizes": program(SMALL, LARGE),
    "absent": program(LARGE, LATE.replace("NAME", "absent")),
    "raises": program(LARGE, LATE.replace("NAME", "raises")),
}
processes = mpi.world()
exe = hloom.compile(hloom.HloModule.from_text(PROGRAMS[sys.argv[1]]), processes=processes)
exe.process_timeout = 1.0 if sys.argv[1] == "absent" else 3600.0
if sys.argv[1] != "other-sizes" and processes.rank == 0:
    threading.Thread(target=tell, daemon=True).start()
caught = ""
try:
    exe.run([[np.ones(50000, np.float32)]] * len(exe.devices))
except HloError as error:
    caught = f"{error.rule}: {error}"
for rank, line in enumerate(processes.all_gather(caught)):
    if processes.rank == 0:
        print(f"process {rank}: {line}")
