"""All-reduce of 4 bytes between processes, and MPI's own: ``mpirun -n 2 python -m benchmarks.all_reduce``.

A loop of 1,000 all-reduces runs inside one program; the time of the same loop without them is subtracted. The
bare loop calls ``MPI_Allreduce`` and ``MPI_Allgather`` from C (`all_reduce_bare.c`).
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import hloom
from hloom.runtime import mpi

COUNT = 1000
ROUNDS = 30
MOST_OVER_BARE = 1.5
"""The bound of the time of an all-reduce, as a multiple of MPI's."""


def loop_text(devices: int, *, reduces: bool) -> str:
    """Return a loop whose state is the sum over all devices, or a sum on each."""
    group = ",".join(map(str, range(devices)))
    attributes = f"channel_id=1, replica_groups={{{{{group}}}}}, use_global_device_ids=true, to_apply=sum"
    step = f"all-reduce(x), {attributes}" if reduces else "add(x, x)"
    return f"""
HloModule all_reduce, num_partitions={devices}

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

more {{
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({COUNT})
  ROOT c = pred[] compare(i, n), direction=LT
}}

step {{
  s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  y = f32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  f = f32[] constant({1 / devices})
  x = f32[] multiply(y, f)
  z = f32[] {step}
  ROOT r = (s32[], f32[]) tuple(j, z)
}}

ENTRY main {{
  x = f32[] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[]) tuple(zero, x)
  end = (s32[], f32[]) while(start), condition=more, body=step
  ROOT y = f32[] get-tuple-element(end), index=1
}}
"""


def bare_loops(communicator: Any) -> dict[str, Callable[[], Any]]:
    """Return loops of MPI's collectives; none without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return {}
    from mpi4py import MPI

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bare.so"
        source = Path(__file__).with_name("all_reduce_bare.c")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(file)], check=True)
        bare = ctypes.CDLL(str(file))
    library = ctypes.CDLL(MPI.__file__)

    def handle(thing: Any) -> ctypes.c_void_p:
        return ctypes.c_void_p(MPI._handleof(thing))

    arrays = [np.ones(1, np.float32), np.zeros(communicator.Get_size(), np.float32)]
    places = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    kind, total, group = handle(MPI.FLOAT), handle(MPI.SUM), handle(communicator)

    def reduced(kept: Any = arrays) -> None:
        bare.all_reduce(library.MPI_Allreduce, *places, kind, total, group, COUNT)

    return {
        "MPI_Allreduce": reduced,
        "MPI_Allgather": lambda: bare.all_gather(library.MPI_Allgather, *places, kind, group, COUNT),
    }


def main() -> int:
    """Print the times of an all-reduce; return 1 if it takes too long with one device in each process."""
    each = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    processes = mpi.world()
    from mpi4py import MPI

    communicator = MPI.COMM_WORLD
    calls: dict[str, Callable[[], Any]] = bare_loops(communicator)
    for name, reduces in (("hloom", True), ("loop alone", False)):
        module = hloom.HloModule.from_text(loop_text(each * processes.size, reduces=reduces))
        exe = hloom.compile(module, processes=processes)
        arguments = [[np.float32(device.partition)] for device in exe.devices]
        calls[name] = lambda exe=exe, arguments=arguments: exe.run(arguments)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            communicator.Barrier()
            start = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - start) / COUNT * 1e6)
    ours = min(times["hloom"]) - min(times["loop alone"])
    bare = min(times.get("MPI_Allreduce", [float("inf")]))
    if processes.rank == 0:
        print(f"all-reduce of 4 bytes, {processes.size} processes x {each} devices: us, median and least")
        for name, values in times.items():
            print(f"  {name:14} {median(values):9.2f} {min(values):9.2f}")
        print(f"hloom without the loop {ours:.2f} us, {ours / bare:.2f} of MPI_Allreduce")
    return int(processes.rank == 0 and each == 1 and ours > MOST_OVER_BARE * bare)


if __name__ == "__main__":
    sys.exit(main())
