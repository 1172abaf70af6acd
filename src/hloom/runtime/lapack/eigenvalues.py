"""Eigenvalues: syevd and heevd, geev, gees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.runtime.lapack.library import Array, Call, leading, register


@register("syevd", operands=[2], prefixes="sd")
def symmetric(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (a) -> (eigenvectors, eigenvalues, info)."""
    _divide_and_conquer(call, "syevd", operands, results)


@register("heevd", operands=[2], prefixes="cz")
def hermitian(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (a) -> (eigenvectors, eigenvalues, info)."""
    _divide_and_conquer(call, "heevd", operands, results)


def _divide_and_conquer(
    call: Call, routine: str, operands: Sequence[Array], results: Sequence[Array]
) -> None:
    (a,), (vectors, values, info) = operands, results
    vectors[...] = a
    head = (call.letter("mode"), call.letter("uplo"), len(a), vectors, leading(vectors), values)
    types = (
        (call.dtype, call.real, np.dtype(np.int32)) if call.is_complex else (call.dtype, np.dtype(np.int32))
    )
    queries = [np.zeros(1, kind) for kind in types]
    call.run(routine, *head, *(part for query in queries for part in (query, -1)), info)
    spaces = [np.empty(max(1, int(query[0].real)), query.dtype) for query in queries]
    call.run(routine, *head, *(part for space in spaces for part in (space, len(space))), info)


@register("geev", operands=[2], prefixes="sd")
def real(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (a) -> (real parts, imaginary parts, left vectors, right vectors, info)."""
    (a,), (reals, imaginary, left, right, info) = operands, results
    if not np.isfinite(a).all():
        info[...] = _NOT_FINITE
        return
    size, sides = len(a), (call.letter("compute_left"), call.letter("compute_right"))
    vl, vr = (np.zeros((size, size), call.dtype, order="F") for _ in sides)
    info[...] = call.run_with_work(
        "geev", *sides, size, a, leading(a), reals, imaginary, vl, leading(vl), vr, leading(vr)
    )
    for letter, packed, vectors in zip(sides, (vl, vr), (left, right), strict=True):
        if letter == b"V":
            _unpack(packed, imaginary, vectors)


def _unpack(packed: Array, imaginary: Array, vectors: Array) -> None:
    """Write complex eigenvectors: LAPACK keeps real and imaginary part of a pair in two columns."""
    column = 0
    while column < len(imaginary):
        vectors[:, column] = packed[:, column]
        if imaginary[column] != 0 and column + 1 < len(imaginary):
            vectors[:, column] += 1j * packed[:, column + 1]
            vectors[:, column + 1] = vectors[:, column].conj()
            column += 1
        column += 1


@register("geev", operands=[2], prefixes="cz")
def complex_(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (a) -> (eigenvalues, left vectors, right vectors, info)."""
    (a,), (values, left, right, info) = operands, results
    if not np.isfinite(a).all():
        info[...] = _NOT_FINITE
        return
    sides = call.letter("compute_left"), call.letter("compute_right")
    info[...] = call.run_with_work(
        "geev", *sides, len(a), a, leading(a), values, left, leading(left), right, leading(right),
        real=max(1, 2 * len(a)),
    )  # fmt: skip


_NOT_FINITE = -4
"""The info of a matrix with NaN or an infinity, on which the iteration need not end: argument 4 is bad."""


@register("gees", operands=[2])
def schur(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (a) -> (T, Schur vectors, eigenvalues (two arrays if real), number selected, info)."""
    (a,), (form, vectors, *values, selected, info) = operands, results
    form[...] = a
    size = len(a)
    head = (
        call.letter("mode"), call.letter("sort"), None, size, form, leading(form), selected, *values,
        vectors, leading(vectors),
    )  # fmt: skip
    # The last work space, of truth values for sorting, is as wide as an integer.
    real_size = max(1, size) if call.is_complex else 0
    info[...] = call.run_with_work("gees", *head, real=real_size, integers=max(1, size))
