"""Triangular and orthogonal factors: potrf, getrf, geqrf, geqp3, orgqr and ungqr, ormqr and unmqr."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.runtime.lapack.library import Array, Call, leading, register


@register("potrf", operands=[2])
def cholesky(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (a) -> (factor and the unchanged other triangle, info)."""
    (a,), (factor, info) = operands, results
    factor[...] = a
    call.run("potrf", call.letter("uplo"), len(a), factor, leading(factor), info)


@register("getrf", operands=[2])
def lu(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (a) -> (L and U, 1-based pivots, info)."""
    (a,), (factors, pivots, info) = operands, results
    factors[...] = a
    call.run("getrf", *a.shape, factors, leading(factors), pivots, info)


@register("geqrf", operands=[2])
def qr(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (a) -> (R above the reflectors, their factors)."""
    (a,), (packed, tau) = operands, results
    packed[...] = a
    call.run_with_work("geqrf", *a.shape, packed, leading(packed), tau)


@register("geqp3", operands=[2, 1])
def pivoted_qr(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (a, columns to put first) -> (R above the reflectors, 1-based columns, factors)."""
    (a, fixed), (packed, columns, tau) = operands, results
    packed[...], columns[...] = a, fixed
    real = max(1, 2 * a.shape[1]) if call.is_complex else 0
    call.run_with_work("geqp3", *a.shape, packed, leading(packed), columns, tau, real=real)


@register("orgqr", operands=[2, 1], prefixes="sd")
def orthogonal(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (reflectors, their factors) -> (the first columns of their product)."""
    _product(call, "orgqr", operands, results)


@register("ungqr", operands=[2, 1], prefixes="cz")
def unitary(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (reflectors, their factors) -> (the first columns of their product)."""
    _product(call, "ungqr", operands, results)


def _product(call: Call, routine: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    (packed, tau), (q,) = operands, results
    q[...] = packed
    call.run_with_work(routine, *q.shape, len(tau), q, leading(q), tau)


@register("ormqr", operands=[2, 1, 2], prefixes="sd")
def orthogonal_product(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (reflectors, their factors, c) -> (c times the product of the reflectors)."""
    _multiplied(call, "ormqr", b"T", operands, results)


@register("unmqr", operands=[2, 1, 2], prefixes="cz")
def unitary_product(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (reflectors, their factors, c) -> (c times the product of the reflectors)."""
    _multiplied(call, "unmqr", b"C", operands, results)


def _multiplied(
    call: Call, routine: str, transposed: bytes, operands: Sequence[Array], results: Sequence[Array]
) -> None:
    (packed, tau, c), (product,) = operands, results
    product[...] = c
    side = b"L" if call.flag("left") else b"R"
    form = transposed if call.flag("transpose") else b"N"
    head = (side, form, *c.shape, len(tau), packed, leading(packed), tau, product, leading(product))
    call.run_with_work(routine, *head)
