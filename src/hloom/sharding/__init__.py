"""Sharding: programs of one device's view, made of programs with shardings.

A partitioner rewrites a program on whole arrays into the program that every device runs on its tiles
(SPMD: single program, multiple data). Source of the idea: Xu et al., "GSPMD", arXiv:2105.04663.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hloom.sharding.partitioner import partition as partition
    from hloom.sharding.reporting import report as report

__all__ = ["partition", "report"]


def __getattr__(name: str) -> Any:
    """Import a function at its first use."""
    if name == "partition":
        from hloom.sharding.partitioner import partition

        return partition
    if name == "report":
        from hloom.sharding.reporting import report

        return report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
