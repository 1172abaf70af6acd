"""Layouts of arrays in memory: minor-to-major orders of their dimensions, without tiles.

An order is canonical if it is empty for row-major arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

from hloom.jax.pjrt.handles import CArray, Handle, Text, object_at
from hloom.jax.pjrt.structs import LAYOUT


class MemoryLayout(Handle):
    """A layout of arrays in memory, which JAX gets as a PJRT layout with a text such as ``{1,0}``.

    It is never freed. Its attribute ``order`` is the minor-to-major order of the dimensions.
    """

    def __init__(self, order: tuple[int, ...]) -> None:
        self.order = order
        super().__init__(LAYOUT)
        text = "{" + ",".join(map(str, order)) + "}"
        self.set(text=Text(text), dimensions=CArray(order, ctypes.c_int64))


@cache
def layout(order: tuple[int, ...]) -> MemoryLayout:
    """Return the layout object with the minor-to-major order ``order``; equal orders share one object.

    ``order`` contains all dimensions, even if it is row-major.
    """
    return MemoryLayout(order)


def row_major(rank: int) -> tuple[int, ...]:
    """Return the minor-to-major order of the dimensions of a row-major array of the given rank."""
    return tuple(range(rank - 1, -1, -1))


def canonical(order: Sequence[int]) -> tuple[int, ...]:
    """Return a minor-to-major order in canonical form: ``()`` if it is row-major, else the order itself."""
    return () if tuple(order) == row_major(len(order)) else tuple(order)


def handle_of(order: tuple[int, ...]) -> int:
    """Return the handle of the layout with the minor-to-major order ``order``.

    Returns 0, which stands for row-major, if ``order`` is empty.
    """
    return layout(order).handle if order else 0


def order_at(handle: int | None) -> tuple[int, ...]:
    """Return the minor-to-major order of the layout with the given handle.

    Returns ``()`` if the handle is null, which stands for row-major, or if the layout is row-major.
    """
    return canonical(object_at(handle, MemoryLayout).order) if handle else ()
