"""Check proofs by evaluation: search arguments for which programs differ that were proved equal.

The rule is as strict as the verdict:

- identical: equal bits on all distributions of arguments, -0, NaN and infinities included. Sums of floats,
  whose order the verdict leaves open, may differ by rounding errors of the first program.
- equal over the reals: with f64 and c128 in place of f32 and c64, the results differ by at most `CLOSE` on
  arguments of ordinary size. This tells mistakes of the size of f32's rounding, and detours by bf16, from
  rounding. Zeros have no sign, nor have infinities, their reciprocals. Programs that read the bits of floats
  cannot be widened; they may differ by `NEAR`.
- open: the results may differ by rounding errors, as for a refutation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.debug.tolerance import Tolerance
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.ir.value import Value
from hloom.proofs.refutation import DISTRIBUTIONS, ArgumentSearch, Refuter
from hloom.proofs.tile_search import TileSearch
from hloom.proofs.verdict import Relation
from hloom.shape.element_type import F32, F64, ElementType
from hloom.sharding.tiling.tiling import Tiling
from hloom.text.printer import print_module

ARGUMENTS = 100
"""Number of arguments on which a proved program must equal the original."""
EXACT = Tolerance(ulps=0.0)
CLOSE = Tolerance(rtol=1e-5, atol=1e-6)
"""Proofs over the reals take a constant for the fraction that it is nearest to in f32."""
NEAR = Tolerance(rtol=1e-2, atol=1e-3)
_SUMS = frozenset({
    "dot", "ragged-dot", "scaled-dot", "convolution", "reduce", "reduce-window", "select-and-scatter",
    "scatter", "all-reduce", "reduce-scatter", "cholesky", "triangular-solve", "fft", "custom-call",
})  # fmt: skip
"""Operations that may add floats in any order."""
_WIDER = {"f32": "f64", "c64": "c128"}


def is_told_apart(
    before: HloModule,
    after: HloModule,
    relation: Relation,
    tilings: Sequence[Sequence[Tiling]] = (),
    count: int = ARGUMENTS,
) -> bool:
    """Return whether the evaluator tells two programs apart of which a relation is claimed.

    Args:
        before: the reference program.
        after: the program that is judged; with tilings, that of a device.
        relation: the claimed relation.
        tilings: the tilings of the parameters and of the results, if any.
        count: the number of arguments to try.
    """
    tolerance, distributions = None, DISTRIBUTIONS
    if relation is Relation.IDENTICAL and not (_sums_floats(before) or _sums_floats(after)):
        tolerance = EXACT
    over_reals = relation is Relation.EQUAL_OVER_REALS
    if over_reals:
        distributions = tuple(d for d in DISTRIBUTIONS if d.is_ordinary)
        try:
            before, after, tolerance = widened(before), widened(after), CLOSE
        except HloError:
            tolerance = NEAR
    if tilings:
        tiles = _TilesOverReals if over_reals else TileSearch
        search: ArgumentSearch = tiles(before, after, *tilings, tolerance=tolerance)
    else:
        search = (_OverReals if over_reals else Refuter)(before, after, tolerance=tolerance)
    return search.search(count, 1000, distributions=distributions) is not None


class _WithoutSigns(ArgumentSearch):
    """The search for differences of results in which infinities have no sign."""

    def results(
        self, arguments: Sequence[Sequence[Value]], others: Sequence[Sequence[Value]]
    ) -> tuple[list[Any], list[Any]] | None:
        results = super().results(arguments, others)
        return None if results is None else ([*map(_unsigned, results[0])], [*map(_unsigned, results[1])])


class _OverReals(_WithoutSigns, Refuter):
    pass


class _TilesOverReals(_WithoutSigns, TileSearch):
    pass


def _unsigned(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple([_unsigned(part) for part in value])
    if value is None or ElementType.from_dtype(value.dtype).component not in (F32, F64):
        return value
    return np.where(np.isinf(value), np.asarray(np.inf, value.dtype), value)


def widened(module: HloModule) -> HloModule:
    """Return a program with f64 in place of f32, c128 of c64; raises HloError if it is invalid."""
    text = re.sub(r"\b(f32|c64)(?=\[)", lambda match: _WIDER[match[1]], print_module(module))
    wide = HloModule.from_text(text)
    wide.verify()
    return wide


def _sums_floats(module: HloModule) -> bool:
    """Return whether a program has a sum or product of floats whose order the compiler chooses."""
    arrays = ((i, leaf) for i in module.instructions() for _, leaf in i.shape.leaves() if leaf.is_array)
    return any(
        i.opcode in _SUMS and (leaf.element_type.is_floating or leaf.element_type.is_complex)
        for i, leaf in arrays
    )
