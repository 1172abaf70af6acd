"""JAX's factorizations on CPUs: custom calls of the targets ``lapack_*_ffi``, by scipy's LAPACK.

Operands and results have leading batch dimensions; each matrix is passed to LAPACK in column-major order.
If LAPACK overwrites an argument, its final content is a result, as in jaxlib's handlers.
"""

from __future__ import annotations

from hloom.runtime.lapack import eigenvalues as eigenvalues
from hloom.runtime.lapack import factorizations as factorizations
from hloom.runtime.lapack import reduced_forms as reduced_forms
from hloom.runtime.lapack import singular_values as singular_values
from hloom.runtime.lapack import solves as solves
