"""Compile a program many times over MPI, each time in the place of the one before."""

from __future__ import annotations

import sys

from collective_programs import permute

import hloom
from hloom.runtime import mpi

processes = mpi.world()
module = hloom.HloModule.from_text(permute("f32", "{{0,1}}"))
for _ in range(int(sys.argv[1])):
    exe = hloom.compile(module, processes=processes)
exe.run([hloom.debug.random_arguments(module, 0)] * len(exe.devices))
if processes.rank == 0:
    print(f"{sys.argv[1]} programs")
