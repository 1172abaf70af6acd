"""Condensed forms: sytrd and hetrd, gehrd."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.errors import EvaluationError
from hloom.runtime.lapack.library import Array, Call, leading, register


@register("sytrd", operands=[2], prefixes="sd")
def symmetric(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (a) -> (form and reflectors, diagonal, off-diagonal, factors, info)."""
    _tridiagonal(call, "sytrd", operands, results)


@register("hetrd", operands=[2], prefixes="cz")
def hermitian(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (a) -> (form and reflectors, diagonal, off-diagonal, factors, info)."""
    _tridiagonal(call, "hetrd", operands, results)


def _tridiagonal(call: Call, routine: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    (a,), (packed, diagonal, other, tau, info) = operands, results
    packed[...] = a
    head = (call.letter("uplo"), len(a), packed, leading(packed), diagonal, other, tau)
    info[...] = call.run_with_work(routine, *head)


@register("gehrd", operands=[2])
def hessenberg(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (a) -> (form above the reflectors, their factors, info)."""
    (a,), (packed, tau, info) = operands, results
    packed[...] = a
    missing = [name for name in ("low", "high") if name not in call.attributes]
    if missing:
        raise EvaluationError(f"the attribute {missing[0]} is missing", rule="custom-call.attribute")
    low, high = int(call.attributes["low"]), int(call.attributes["high"])
    info[...] = call.run_with_work("gehrd", len(a), low, high, packed, leading(packed), tau)
