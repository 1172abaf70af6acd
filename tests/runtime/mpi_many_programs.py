"""Take most communicators, then compile a program many times, each time in the place of the one before."""

from __future__ import annotations

import sys

from collective_programs import permute
from mpi4py import MPI

import hloom
from hloom.runtime import mpi

taken = [MPI.COMM_SELF.Dup() for _ in range(int(sys.argv[1]))]
processes = mpi.world()
module = hloom.HloModule.from_text(permute("f32", "{{0,1}}"))
for _ in range(int(sys.argv[2])):
    exe = hloom.compile(module, processes=processes)
exe.run([hloom.debug.random_arguments(module, 0)] * len(exe.devices))
if processes.rank == 0:
    print(f"{sys.argv[2]} programs")
