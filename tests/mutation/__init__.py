"""Mutation testing: check that the tests fail for wrong one-line changes of hloom's sources.

``python -m tests.mutation --count 300 --seed 1`` (``make mutation N=300 SEED=1``), by hand and weekly:

1. `recorder` monitors the lines of tests, `coverage_map` joins what it stores in ``.mutation/``: the tests
   that run each line. Only files of tests that have changed are recorded again (``--record``: nothing else).
2. `mutants`: every one-line change inside functions; a sample of them is drawn.
3. `trial`: each is made in a copy of the tree, and the tests that run its line are run, quick and specific
   ones first, until one fails or the CPU time for a mutant is used up; then some tests that run other lines
   of its file. A line that no test runs survives.
4. A table: killed, out of time (which counts as killed), survived; survivors with their lines.

Survivors are missing tests, or changes that change nothing; the latter are listed in ``equivalent.txt`` with
a reason, and left out.
"""
