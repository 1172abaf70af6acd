"""Generators of valid programs: a file for each family of operations, whole modules, and their shardings.

`families` lists them. `draw` makes the random choices, `case` is one program, and `steps` in a `scope` build
`modules`.
"""
