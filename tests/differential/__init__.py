"""Differential property test: random HLO programs on hloom and on XLA:CPU, jaxlib's CPU client.

`families` generates small programs of every family of operations, `xla` runs them on XLA in a process of its
own, `comparison` says what counts as equal, `known` holds the differences that are understood, with the reason
of each, and `campaign` runs it all. By hand: ``python -m tests.differential --cases 10000``.
"""
