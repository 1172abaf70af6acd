"""Layouts of arrays in memory: orders of their dimensions, minor to major, without tiles."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

from hloom.jax.pjrt.handles import Handle, Text, Words, object_at
from hloom.jax.pjrt.structs import LAYOUT


class Layout(Handle):
    """A layout, serialized as text such as ``{1,0}``; never freed."""

    def __init__(self, order: tuple[int, ...]) -> None:
        self.order = order
        super().__init__(LAYOUT)
        text = "{" + ",".join(map(str, order)) + "}"
        self.set(text=Text(text), dimensions=Words(order, ctypes.c_int64))


@cache
def layout(order: tuple[int, ...]) -> Layout:
    """Return the layout of an order of dimensions; there is one object for each."""
    return Layout(order)


def row_major(rank: int) -> tuple[int, ...]:
    """Return the order of a row-major array."""
    return tuple(range(rank - 1, -1, -1))


def canonical(order: Sequence[int]) -> tuple[int, ...]:
    """Return an order of dimensions, empty if it is that of a row-major array."""
    return () if tuple(order) == row_major(len(order)) else tuple(order)


def handle_of(order: tuple[int, ...]) -> int:
    """Return the handle of a canonical order's layout, 0 if it is row-major."""
    return layout(order).handle if order else 0


def order_at(handle: int | None) -> tuple[int, ...]:
    """Return the canonical order of a layout's handle, which is null for row-major arrays."""
    return canonical(object_at(handle, Layout).order) if handle else ()
