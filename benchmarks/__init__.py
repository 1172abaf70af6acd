"""How fast hloom is: side by side with XLA:CPU, with NumPy and SciPy, and with what the machine can do.

::

    python -m benchmarks [DIR [NAME ...]]    the example programs, or others: run and compile times, memory
    python -m benchmarks.complaints          what XLA:CPU's own users find slow
    python -m benchmarks.scan                a loop of a thousand small steps, beside the same in C
    python -m benchmarks.vector_math         errors and speeds of elementary functions

What is timed, and how, is said in `docs/benchmarks.md`.
"""

import os
import sys

# The first halves OpenBLAS where a machine sets it to an old processor; with the second every fresh process
# would compile hloom's own sources again. Both must go before numpy is imported.
for _name in ("OPENBLAS_CORETYPE", "PYTHONDONTWRITEBYTECODE"):
    os.environ.pop(_name, None)
sys.dont_write_bytecode = False
