"""Small JAX programs that must give the same on hloom and on JAX's own CPU client.

A module of this package registers its programs with `program`. A program returns a nest of tuples, lists and
dicts; its leaves state how they are compared:

- arrays, numbers, texts: equal, bit for bit;
- `close`: each element within a bound that the program derives;
- `computed`: the results of a jitted function, within the bound of the error analysis of its HLO.
"""
