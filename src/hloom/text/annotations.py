"""Readers of the attributes that every instruction may have besides those of its operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from hloom.ir.cursor import Cursor
from hloom.ir.instruction import HloInstruction
from hloom.ir.metadata import OpMetadata, OriginalValue, ViewerStatistics, parse_frontend_attributes
from hloom.ir.sharding import Sharding

Reader: TypeAlias = Callable[[Cursor, HloInstruction], None]


def _metadata(cursor: Cursor, instruction: HloInstruction) -> None:
    instruction.metadata = OpMetadata.parse(cursor)


def _sharding(cursor: Cursor, instruction: HloInstruction) -> None:
    instruction.sharding = Sharding.parse(cursor).for_shape(instruction.shape)


def _frontend_attributes(cursor: Cursor, instruction: HloInstruction) -> None:
    instruction.frontend_attributes = parse_frontend_attributes(cursor) or None


def _backend_config(cursor: Cursor, instruction: HloInstruction) -> None:
    instruction.backend_config = cursor.string_or_json()


def _origin(cursor: Cursor, instruction: HloInstruction) -> None:
    instruction.original_value = OriginalValue.parse(cursor)


def _statistics(cursor: Cursor, instruction: HloInstruction) -> None:
    statistics = ViewerStatistics.parse(cursor)
    instruction.statistics = statistics if statistics.values else None


READERS: Final[dict[str, Reader]] = {
    "metadata": _metadata,
    "sharding": _sharding,
    "frontend_attributes": _frontend_attributes,
    "backend_config": _backend_config,
    "origin": _origin,
    "statistics": _statistics,
}

CONTROL_PREDECESSORS: Final = "control-predecessors"

NAMES: Final = frozenset((*READERS, CONTROL_PREDECESSORS))
