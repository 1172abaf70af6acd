"""Measure compile time and memory against the number of instructions.

::

    python -m benchmarks.large_programs                      all kinds at 1,000, 3,000 and 10,000 instructions
    python -m benchmarks.large_programs --sizes 10000 100000 --kinds lstm loops
    python -m benchmarks.large_programs --text lstm 1000     print a program
    python -m benchmarks.large_programs --plot               write table and plot into docs/

`docs/benchmarks.md` defines what is measured.
"""
