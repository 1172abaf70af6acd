"""Differential property test: random HLO programs on hloom and on XLA:CPU, jaxlib's CPU client.

Modules named after families of operations generate small programs, `families` lists them, `xla` runs programs
on XLA in a process of its own, `comparison` says what counts as equal, `known` holds the differences that are
understood, with the reason of each, and `campaign` runs it all. By hand:
``python -m tests.differential --cases 10000``; with ``--backend cpu`` for native code, which `agreement`
holds against the reference evaluator besides.

`modules` generates whole modules, of `steps` in a `scope`. ``python -m tests.differential.module_runs``
compiles, runs and evaluates them, and makes failing ones smaller (`shrinking`).
"""

import sys
from pathlib import Path

# What all tests share lies in the folder above; pytest puts it on the path, ``python -m`` does not.
_TESTS = str(Path(__file__).parents[1])
if _TESTS not in sys.path:
    sys.path.append(_TESTS)
