"""Differential test: random HLO programs on hloom and on XLA:CPU, jaxlib's CPU client.

Modules named after families of operations generate small programs; `families` lists them, `xla` runs programs
on XLA in a separate process, `comparison` defines equality, `known` lists understood differences with their
reasons, `explanations` their limits, and `campaign` runs everything. By hand:
``python -m tests.differential --cases 10000``; with ``--backend cpu`` for native code, which `agreement` also
compares with the reference evaluator.

`modules` generates whole modules, of `steps` in a `scope`. ``python -m tests.differential.module_runs``
compiles, runs and evaluates them, and shrinks failing ones (`shrinking`).
"""
