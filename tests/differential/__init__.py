"""Differential property test: random HLO programs on hloom and on XLA:CPU, jaxlib's CPU client.

Modules named after families of operations generate small programs, `families` lists them, `xla` runs programs
on XLA in a process of its own, `comparison` says what counts as equal, `known` holds the differences that are
understood, with the reason of each, and `campaign` runs it all. By hand:
``python -m tests.differential --cases 10000``.
"""
