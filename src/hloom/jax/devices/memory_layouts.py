"""Layouts of arrays in memory: orders of their dimensions, minor to major, without tiles."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Final

from hloom.jax.pjrt.handles import Handle, LayoutWords, Words, object_at

_held: Final[list[Words]] = []


class Layout(Handle):
    """A layout, serialized as text such as ``{1,0}``; never freed."""

    def __init__(self, order: tuple[int, ...]) -> None:
        text = "{" + ",".join(map(str, order)) + "}"
        words = Words(order, ctypes.c_int64)
        _held.append(words)
        super().__init__(LayoutWords(text.encode(), len(text), words.address))
        self.order = order


@cache
def layout(order: tuple[int, ...]) -> Layout:
    """Return the layout of an order of dimensions; there is one object for each."""
    return Layout(order)


def row_major(rank: int) -> tuple[int, ...]:
    """Return the order of a row-major array."""
    return tuple(range(rank - 1, -1, -1))


def canonical(order: Sequence[int]) -> tuple[int, ...]:
    """Return an order of dimensions, empty if it is that of a row-major array."""
    given = tuple(order)
    return () if given == row_major(len(given)) else given


def handle_of(order: tuple[int, ...]) -> int:
    """Return the handle of a canonical order's layout, 0 if it is row-major."""
    return layout(order).handle if order else 0


def order_at(handle: int | None) -> tuple[int, ...]:
    """Return the canonical order of a layout's handle, which is null for row-major arrays."""
    return canonical(object_at(handle, Layout).order) if handle else ()
