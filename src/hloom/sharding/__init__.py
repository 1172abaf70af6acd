"""Sharding: the SPMD partitioner, its reports, and sharded arrays in files.

The partitioner rewrites a program on global arrays into the program that every device runs on its tiles
(single program, multiple data). Source: Xu et al., "GSPMD", arXiv:2105.04663.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hloom.sharding.partitioning.partitioner import partitioned_program as partition
    from hloom.sharding.partitioning.partitioner import partitioned_program as partitioned_program
    from hloom.sharding.reporting.report import report as report
    from hloom.sharding.storing.stored_arrays import StoredArray as StoredArray
    from hloom.sharding.storing.stored_arrays import store as store
    from hloom.sharding.storing.stored_arrays import stored as stored
    from hloom.sharding.storing.tiles import cut as cut
    from hloom.sharding.storing.tiles import joined as joined

_HOMES: Final = {
    "partition": "partitioning.partitioner",
    "partitioned_program": "partitioning.partitioner",
    "report": "reporting.report",
    "StoredArray": "storing.stored_arrays",
    "store": "storing.stored_arrays",
    "stored": "storing.stored_arrays",
    "cut": "storing.tiles",
    "joined": "storing.tiles",
}

__all__ = ["StoredArray", "cut", "joined", "partition", "partitioned_program", "report", "store", "stored"]


def __getattr__(name: str) -> object:
    """Return a public name of this package; import the module that defines it at the first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f"{__name__}.{_HOMES[name]}")
    return getattr(home, "partitioned_program" if name == "partition" else name)
