"""Benchmarks of hloom against XLA:CPU, NumPy and SciPy, and the machine's limits.

::

    python -m benchmarks [DIR [NAME ...]]    the example programs, or others: run and compile times, memory
    python -m benchmarks.complaints          programs that users of XLA:CPU report as slow
    python -m benchmarks.scan                a loop of a thousand small steps, also in C
    mpirun -n 2 python -m benchmarks.all_reduce    an all-reduce of 4 bytes, and MPI's own
    python -m benchmarks.large_programs      how compile time and memory grow with the program
    python -m benchmarks.vector_math         errors and speeds of elementary functions

`docs/benchmarks.md` defines the measured times.
"""

import os
import sys

# The first halves the speed of OpenBLAS on machines that set it to an old processor; the second makes every
# fresh process compile hloom's sources. Both must be unset before numpy is imported.
for _name in ("OPENBLAS_CORETYPE", "PYTHONDONTWRITEBYTECODE"):
    os.environ.pop(_name, None)
sys.dont_write_bytecode = False
