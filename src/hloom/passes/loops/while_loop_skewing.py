"""while-loop-skewing: compute tables of cells that depend on their neighbors by antidiagonals.

A loop over rows whose body is a loop over columns computes each cell from those to the left, above and
diagonally above, as for time warping, edit distances and alignments of sequences::

    while i < n { while j < m { t[i, j] = f(t[i, j - 1], t[i - 1, j], t[i - 1, j - 1], a[i, j]) } }

Neither the cells of a row nor those of a column are independent, but those of an antidiagonal are. One loop
computes them all, a lane for each row::

    while d < n + m - 1 { u[d, :] = f(u[d - 1, :], u[d - 1, : - 1], u[d - 2, : - 1], a[:, d - :]) }
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hloom.analysis.loops import TupleLoop
from hloom.ir.module import HloModule
from hloom.operations.control_flow import While
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.loops.while_loops import loops_of
from hloom.passes.pipeline import Pass

if TYPE_CHECKING:
    from hloom.passes.loops.loop_nests import LoopNest

_LEAST: Final = 24
"""Minimum number of rows, and of columns, of a table."""
_LARGEST: Final = 1 << 28
"""Maximum number of bytes of the antidiagonals of a table."""
_STEEPEST: Final = 4
"""Maximum ratio of rows to columns: lanes whose column is outside of the table are wasted work."""


class WhileLoopSkewing(Pass, name="while-loop-skewing", of=While, needs={FLAT}):
    """``while i { while j { t[i, j] = f(t[i, j - 1], t[i - 1, j]) } }`` → antidiagonals. Bitwise."""

    def run(self, module: HloModule) -> bool:
        """Rewrite every nest of two loops over the cells of a table."""
        nests = [nest for outer in loops_of(module) if (nest := _nest(outer)) is not None]
        if not nests:
            return False
        from hloom.passes.loops.skewing import Skewing  # imported only where a nest is rewritten

        skewed = [consume(f"%{nest.outer.instruction.name}") and Skewing(nest).skew() for nest in nests]
        return any(skewed)


def _nest(outer: TupleLoop) -> LoopNest | None:
    """Return a loop as a nest if its antidiagonals are long enough to pay; None for others."""
    from hloom.passes.loops.loop_nests import LoopNest  # for programs that have loops

    nest = LoopNest.of(outer)
    if nest is None:
        return None
    n, m = nest.rows.iterations, nest.columns.iterations
    return nest if min(n, m) >= _LEAST and n <= _STEEPEST * m and 8 * n * (n + m) <= _LARGEST else None
