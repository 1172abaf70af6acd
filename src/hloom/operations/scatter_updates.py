"""Sequential semantics of scatter, vectorized.

Updates of different rows are independent. The updates of each row are numbered in order; the first updates
of all rows are applied together, then the second ones, and so on, which gives the sequential result.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hloom.ir.operation import Array, Run

_BITWISE: Final = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_SEQUENTIAL: Final = {"add": np.add, "multiply": np.multiply, **_BITWISE}
"""Combiners that numpy can apply sequentially with the same result as the operation's own."""

_FEW_ROUNDS: Final = 32


def apply_updates(run: Run, tables: list[Array], rows: Array, updates: list[Array]) -> None:
    """Combine updates into rows of tables in place, in order, with computation 0 of the instruction.

    Args:
        run: of a scatter.
        tables: for each operand an array of (rows, columns).
        rows: for each update the row that it goes to.
        updates: for each operand an array of (updates, columns).
    """
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    counts = np.diff(first, append=len(rows))
    if _keeps_update(run):
        last = order[first + counts - 1]
        for table, update in zip(tables, updates, strict=True):
            table[rows[last]] = update[last]
        return
    ufunc = _sequential(run, tables)
    rounds = int(counts.max())
    if ufunc is not None and rounds > _FEW_ROUNDS:
        columns = tables[0].shape[1]
        places = rows[:, np.newaxis] * columns + np.arange(columns, dtype=np.int64)
        with np.errstate(all="ignore"):
            ufunc.at(tables[0].reshape(-1), places.reshape(-1), updates[0].reshape(-1))
        return
    by_count = np.argsort(-counts, kind="stable")
    first, counts = first[by_count], counts[by_count]
    for number in range(rounds):
        alive = int(np.searchsorted(-counts, -number))
        last = order[first[:alive] + number]
        places = rows[last]
        combined = run.map(0, *(table[places] for table in tables), *(update[last] for update in updates))
        results = combined if isinstance(combined, tuple) else (combined,)
        for table, result in zip(tables, results, strict=True):
            table[places] = result


def _keeps_update(run: Run) -> bool:
    """Return whether the combiner returns the updates, so that only the last one of a row counts."""
    combiner = run.instruction.called_computations[0]
    parameters, root = combiner.parameters, combiner.root
    results = root.operands if root.opcode == "tuple" else [root]
    return results == parameters[len(parameters) // 2 :]


def _sequential(run: Run, tables: list[Array]) -> np.ufunc | None:
    """Return the numpy function of a single-operation combiner on a numpy-native type, else None."""
    combiner = run.instruction.called_computations[0]
    ufunc = _SEQUENTIAL.get(combiner.root.opcode)
    plain = set(combiner.root.operands) == set(combiner.parameters) and len(combiner.parameters) == 2
    dtypes = {table.dtype for table in tables} | {p.shape.element_type.dtype for p in combiner.parameters}
    if ufunc is None or not plain or len(dtypes) != 1 or tables[0].dtype.kind not in "biuf":
        return None
    return ufunc
