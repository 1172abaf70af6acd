"""Fail over MPI in one of several ways, and print the rules and messages of the errors of all processes."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from collective_programs import computation

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
NONE = "none {\n ROOT x = f32[50000] parameter(0)\n}"
RAISES = """
raises {
  x = f32[50000] parameter(0)
  ROOT y = f32[50000] custom-call(x), custom_call_target="tests.raise"
}"""


def raise_error(x: Any) -> Any:
    time.sleep(0.2)
    raise ValueError("a mistake in partition 1")


hloom.register_custom_call("tests.raise", raise_error)


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
    "absent": program(LARGE, NONE),
    "raises": program(LARGE, RAISES),
}
processes = mpi.world()
exe = hloom.compile(hloom.HloModule.from_text(PROGRAMS[sys.argv[1]]), processes=processes)
exe.process_timeout = 1.0
start = time.monotonic()
caught = ""
try:
    exe.run([[np.ones(50000, np.float32)]] * len(exe.devices))
except HloError as error:
    caught = f"{error.rule} after {time.monotonic() - start:.0f} s: {error}"
for rank, line in enumerate(processes.all_gather(caught)):
    if processes.rank == 0:
        print(f"process {rank}: {line}")
