"""What travels with an instruction and does not change its meaning: metadata, statistics, original values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from hloom.ir.cursor import Cursor, escape

_KEY: Final = re.compile(r"[A-Za-z_][\w\-]*")
_TEXT_FIELDS: Final = ("op_type", "op_name", "source_file", "deduplicated_name", "scheduling_name")
_NUMBER_FIELDS: Final = ("source_line", "source_end_line", "source_column", "source_end_column", "stack_frame_id")


@dataclass(frozen=True, slots=True)
class OpMetadata:
    """Where an instruction comes from: framework operation, source place, profile hints."""

    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0
    source_end_line: int = 0
    source_column: int = 0
    source_end_column: int = 0
    stack_frame_id: int = 0
    size_of_generated_code_in_bytes: int = 0
    size_of_memory_working_set_in_bytes: int = 0
    deduplicated_name: str = ""
    scheduling_name: str = ""
    preserve_layout: bool = False

    @classmethod
    def parse(cls, cursor: Cursor) -> OpMetadata:
        """``{op_type="a" op_name="b" source_line=3}``; commas between the fields are allowed."""
        cursor.expect("{")
        values: dict[str, Any] = {}
        while not cursor.accept("}"):
            cursor.accept(",")
            start = cursor.position
            key = cursor.take(_KEY, "a metadata field")[0]
            cursor.expect("=")
            if key in values or key not in cls.__slots__:
                raise cursor.error(f"unexpected metadata field {key!r}", rule="metadata.fields", position=start)
            kind = type(getattr(_EMPTY, key))
            values[key] = cursor.string() if kind is str else cursor.boolean() if kind is bool else cursor.integer()
        return cls(**values)

    def text(self) -> str:
        """``{op_name="..." source_file="..."}``: the fields that are set."""
        parts: list[str] = []
        for name in _PRINTED:
            value = getattr(self, name)
            if value:
                parts.append(f'{name}="{escape(value)}"' if isinstance(value, str) else f"{name}={_plain(value)}")
        return "{" + " ".join(parts) + "}"


_PRINTED: Final = (
    "op_type", "op_name", "source_file", "source_line", "source_end_line", "source_column", "source_end_column",
    "deduplicated_name", "preserve_layout", "scheduling_name", "stack_frame_id",
)  # fmt: skip
_EMPTY: Final = OpMetadata()


def _plain(value: int) -> str:
    return "true" if value is True else str(value)


def parse_frontend_attributes(cursor: Cursor) -> dict[str, str]:
    """``{key="value",other={...}}``; values that are no quoted strings are kept as they are."""
    cursor.expect("{")
    values: dict[str, str] = {}
    while not cursor.accept("}"):
        if values:
            cursor.expect(",")
        key = cursor.string() if cursor.peek('"') else cursor.take(re.compile(r"[\w.\-]+"), "an attribute name")[0]
        cursor.expect("=")
        values[key] = cursor.braced_text() if cursor.peek("{") else '"' + escape(cursor.string()) + '"'
    return values


def frontend_attributes_text(values: dict[str, str]) -> str:
    """``{key="value"}`` in the order of the keys."""
    return "{" + ",".join(f"{key}={values[key]}" for key in sorted(values)) + "}"


@dataclass(frozen=True, slots=True)
class Statistics:
    """Named numbers for visualization; ``visualizing_index`` chooses the one to show."""

    visualizing_index: int
    values: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class OriginalValue:
    """Which instruction of the unoptimized program computed each leaf of this value; kept as its text."""

    text_form: str
