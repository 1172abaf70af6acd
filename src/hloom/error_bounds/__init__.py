"""Bounds of rounding errors: the numerics of the rules that operations state.

``floating``, ``bounded``, ``approximate`` and ``orders`` describe inexact numbers; ``rules`` and ``sums``
bound the results of families of operations. `hloom.debug.error_analysis` runs the rules on programs.
"""
