"""Singular values: gesdd and gesvd."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.runtime.lapack.library import Array, Call, leading, register


@register("gesdd", operands=[2])
def divide_and_conquer(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (a) -> (overwritten a, singular values, U, conjugate transpose of V, info)."""
    (a,), (left, values, u, vt, info) = operands, results
    left[...] = a
    mode = call.letter("mode")
    least, most = min(a.shape), max(a.shape)
    # Workspace lengths required by LAPACK's documentation.
    long = max(5 * least * least + 7 * least, 2 * most * least + 2 * least * least + least)
    real = max(1, 7 * least if mode == b"N" else long) if call.is_complex else 0
    head = (mode, *a.shape, left, leading(left), values, u, leading(u), vt, leading(vt))
    info[...] = call.run_with_work("gesdd", *head, real=real, integers=max(1, 8 * least))


@register("gesvd", operands=[2])
def qr_iteration(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (a) -> (overwritten a, singular values, U, conjugate transpose of V, info)."""
    (a,), (left, values, u, vt, info) = operands, results
    left[...] = a
    mode = call.letter("mode")
    real = max(1, 5 * min(a.shape)) if call.is_complex else 0
    head = (mode, mode, *a.shape, left, leading(left), values, u, leading(u), vt, leading(vt))
    info[...] = call.run_with_work("gesvd", *head, real=real)
