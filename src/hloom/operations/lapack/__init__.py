"""JAX's factorizations on CPUs: custom calls of the targets ``lapack_*_ffi``.

`routines.py` declares the routines, `calls.py` plans the calls, which `evaluation.py` runs and backends
compile. Operands and results have leading batch dimensions; each matrix is passed to LAPACK in column-major
order. If LAPACK overwrites an argument, its final content is a result, as in jaxlib's handlers.
"""
