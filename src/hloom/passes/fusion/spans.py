"""Bounds for cycle detection in a graph whose nodes are being joined.

Nodes have positions in a topological order: edges lead to higher positions. A path may enter a joined node at
its highest position and leave it at its lowest, so that only joined nodes lead back to lower positions.
"""

from __future__ import annotations

from bisect import bisect_left


class Spans:
    """The ranges of positions of joined nodes, as disjoint intervals in ascending order."""

    def __init__(self) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []

    def add(self, low: int, high: int) -> None:
        """Add a joined node with members from position ``low`` to ``high``."""
        first = bisect_left(self._highs, low)
        last = first
        while last < len(self._lows) and self._lows[last] <= high:
            low, high = min(low, self._lows[last]), max(high, self._highs[last])
            last += 1
        self._lows[first:last] = [low]
        self._highs[first:last] = [high]

    def limit(self, position: int) -> int:
        """Return the highest position from which a path can lead to this one or below."""
        index = bisect_left(self._highs, position)
        inside = index < len(self._lows) and self._lows[index] <= position
        return self._highs[index] if inside else position
