"""Properties of an instruction that do not change its value: metadata, statistics, original values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from hloom.errors import ParseError, did_you_mean
from hloom.ir.codec import float_text
from hloom.ir.cursor import Cursor, escape, is_json_dictionary
from hloom.ir.naming import sanitized
from hloom.ir.xla_version import NEWEST, V0_11, XlaVersion
from hloom.records import dataclass
from hloom.regex import regex

Message: TypeAlias = Any
ShapeIndex: TypeAlias = tuple[int, ...]

_NAMES: Final = ("op_type", "op_name", "source_file", "deduplicated_name", "scheduling_name")
_TEXTS: Final = (*_NAMES, "metadata_payload")
_INT32S: Final = ("source_line", "source_end_line", "source_column", "source_end_column", "stack_frame_id")
_SIZES: Final = ("size_of_generated_code_in_bytes", "size_of_memory_working_set_in_bytes")
_STORED: Final = (*_NAMES, *_INT32S, *_SIZES)
_PROFILE_TYPES: Final = range(4)


@dataclass(frozen=True, slots=True)
class OpMetadata:
    """The origin of an instruction: framework operation, source location, profile hints.

    Attributes:
        stack_frame_id: 1-based number of a frame of the module's stack frame table; 0 for none.
        profile_type: numbers of the ProfileType enum.
        profile_info: a serialized ProfileInfo message.
    """

    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0
    source_end_line: int = 0
    source_column: int = 0
    source_end_column: int = 0
    stack_frame_id: int = 0
    profile_type: tuple[int, ...] = ()
    profile_info: bytes = b""
    size_of_generated_code_in_bytes: int = 0
    size_of_memory_working_set_in_bytes: int = 0
    deduplicated_name: str = ""
    scheduling_name: str = ""
    metadata_payload: str = ""

    @classmethod
    def parse(cls, cursor: Cursor) -> OpMetadata:
        """Parse ``{op_type="a" op_name="b" source_line=3}``; commas between the fields are allowed."""
        printed = _PRINTED.match(cursor.text, cursor.position)
        if printed is not None:
            cursor.position = printed.end()
            return cls._of_printed(printed)
        values: dict[str, Any] = {}
        for start in cursor.fields():
            key = cursor.key("a metadata field")
            if key in values:
                raise cursor.error(
                    f"metadata field {key!r} is given twice", rule="metadata.fields", position=start
                )
            if key in _TEXTS:
                values[key] = cursor.string()
            elif key in _INT32S:
                values[key] = cursor.integer32()
            elif key == "profile_type":
                values[key] = cursor.integers()
                if any(number not in _PROFILE_TYPES for number in values[key]):
                    raise cursor.error(
                        "profile types are 0 to 3", rule="metadata.profile-type", position=start
                    )
            else:
                fields = (*_TEXTS, *_INT32S)
                message = (
                    f"unexpected metadata field {key!r}; there are {', '.join(fields)}"
                    f"{did_you_mean(key, fields)}"
                )
                raise cursor.error(message, rule="metadata.fields", position=start)
        return cls(**values)

    @classmethod
    def parse_printed(cls, text: str) -> OpMetadata | None:
        """Parse text in the form that XLA prints, without escapes; return None for any other text."""
        printed = _PRINTED.fullmatch(text)
        return None if printed is None else cls._of_printed(printed)

    @classmethod
    def _of_printed(cls, printed: re.Match[str]) -> OpMetadata:
        op_type, op_name, source_file, line, end_line, column, end_column, frame = printed.groups("")
        return cls(
            op_type,
            op_name,
            source_file,
            int(line or 0),
            int(end_line or 0),
            int(column or 0),
            int(end_column or 0),
            int(frame or 0),
        )

    @classmethod
    def parse_one_or_list(cls, cursor: Cursor) -> tuple[OpMetadata, ...]:
        """Parse ``{op_name="a"}`` or ``{{op_name="a"}, {op_name="b"}}``."""
        start = cursor.position
        cursor.expect("{")
        if not cursor.peek("{"):
            cursor.position = start
            return (cls.parse(cursor),)
        parsed = [cls.parse(cursor)]
        while cursor.accept(","):
            parsed.append(cls.parse(cursor))
        cursor.expect("}")
        return tuple(parsed)

    @property
    def is_shown(self) -> bool:
        """Return whether text shows the metadata: an operation, a source or a schedule name is set."""
        return bool(self.op_type or self.op_name or self.source_file or self.scheduling_name)

    def text(self, stack_frame_id: int = 0) -> str:
        """Return the text ``{op_name="..." source_file="..."}`` of the fields that are set."""
        parts: list[str] = []
        if self.op_type:
            parts.append(f'op_type="{escape(self.op_type)}"')
        if self.op_name:
            parts.append(f'op_name="{escape(self.op_name)}"')
        if self.source_file:
            parts.append(f'source_file="{escape(self.source_file)}"')
        for field in ("source_line", "source_end_line", "source_column", "source_end_column"):
            number = getattr(self, field)
            if number:
                parts.append(f"{field}={number}")
        if self.profile_type:
            parts.append("profile_type={" + ",".join(map(str, self.profile_type)) + "}")
        if self.deduplicated_name:
            parts.append(f'deduplicated_name="{escape(self.deduplicated_name)}"')
        if self.scheduling_name:
            parts.append(f'scheduling_name="{escape(self.scheduling_name)}"')
        if stack_frame_id:
            parts.append(f"stack_frame_id={stack_frame_id}")
        if self.metadata_payload:
            parts.append(f'metadata_payload="{escape(self.metadata_payload)}"')
        return "{" + " ".join(parts) + "}"

    def write(self, message: Message) -> None:
        """Store the metadata in an OpMetadata message."""
        message.SetInParent()
        for field in _STORED:
            value = getattr(self, field)
            if value:
                setattr(message, field, value)
        message.profile_type.extend(self.profile_type)
        if self.profile_info:
            message.profile_info.ParseFromString(self.profile_info)
        if self.metadata_payload:
            message.metadata_payload.value = self.metadata_payload.encode("utf-8", "surrogateescape")

    @staticmethod
    def read(message: Message, payloads: Sequence[bytes] = ()) -> OpMetadata:
        """Return the metadata of an OpMetadata message; ``payloads`` are those of the module."""
        values: dict[str, Any] = {field: getattr(message, field) for field in _STORED}
        values["metadata_payload"] = _payload(message.metadata_payload, payloads).decode(
            "utf-8", "surrogateescape"
        )
        return OpMetadata(
            **values,
            profile_type=tuple(message.profile_type),
            profile_info=message.profile_info.SerializeToString(deterministic=True)
            if message.HasField("profile_info")
            else b"",
        )


def _payload(message: Message, payloads: Sequence[bytes]) -> bytes:
    """Return the bytes of a Payload message, which holds them or their number in the module."""
    if message.WhichOneof("payload_source") != "id":
        return bytes(message.value)
    number = int(message.id)
    if not 0 <= number < len(payloads):
        raise ParseError(f"no payload has the number {number}", rule="metadata.payload")
    return payloads[number]


# The form that XLA prints, without escapes, is matched at once, because dumps contain much metadata.
_PRINTED: Final = regex(
    r"\{"
    + "".join(rf'(?:{field}="([^"\\\n]*+)" ?+)?+' for field in _TEXTS[:3])
    + "".join(rf"(?:{field}=([0-9]{{1,9}}+)(?: |(?=\}})))?+" for field in _INT32S)
    + r"\}"
)


# -- frontend attributes


def parse_frontend_attributes(cursor: Cursor) -> dict[str, str]:
    """Parse ``{key="value",other={...}}``; JSON needs no quotes. The last of equal keys counts."""
    values: dict[str, str] = {}
    for _ in cursor.items():
        key = cursor.key()
        values[key] = cursor.string_or_json()
    return values


def frontend_attributes_text(values: dict[str, str]) -> str:
    """Return the text ``{key="value"}`` in the order of the keys; JSON dictionaries are not quoted."""
    return "{" + ",".join(f"{key}={quoted_or_json(values[key])}" for key in sorted(values)) + "}"


def quoted_or_json(value: str) -> str:
    """Return a JSON dictionary unchanged, and any other text as a quoted string."""
    return value if is_json_dictionary(value) else f'"{escape(value)}"'


# -- statistics


_STATISTIC: Final = regex(r"[A-Za-z_][A-Za-z0-9_.\-]*+")


@dataclass(frozen=True, slots=True)
class ViewerStatistics:
    """Named numbers for viewers; ``visualizing_index`` selects the one to show first."""

    visualizing_index: int
    values: tuple[tuple[str, float], ...]

    @staticmethod
    def parse(cursor: Cursor) -> ViewerStatistics:
        """Parse ``{visualizing_index=0,flops=3,bytes=4.5}``."""
        cursor.expect("{")
        if cursor.accept("}"):
            return ViewerStatistics(0, ())
        cursor.key("visualizing_index=")
        index = cursor.integer()
        values: list[tuple[str, float]] = []
        while cursor.accept(","):
            key = cursor.key("the name of a statistic")
            values.append((key, cursor.number()))
        cursor.expect("}")
        return ViewerStatistics(index, tuple(values))

    def text(self) -> str:
        """Return the text ``{visualizing_index=0,flops=3}``."""
        values = "".join(f",{_statistic_name(name)}={float_text(value)}" for name, value in self.values)
        return f"{{visualizing_index={self.visualizing_index}{values}}}"

    def write(self, message: Message) -> None:
        """Store the statistics in a StatisticsViz message."""
        message.SetInParent()
        message.stat_index_to_visualize = self.visualizing_index
        for name, value in self.values:
            message.statistics.add(stat_name=name, stat_val=value)

    @staticmethod
    def read(message: Message) -> ViewerStatistics:
        """Return the statistics of a StatisticsViz message."""
        values = tuple((s.stat_name, s.stat_val) for s in message.statistics)
        return ViewerStatistics(message.stat_index_to_visualize, values)


def _statistic_name(name: str) -> str:
    """Return a name that text can represent; a proto may hold any string."""
    return name if _STATISTIC.fullmatch(name) else sanitized(name) or "_"


# -- original values


@dataclass(frozen=True, slots=True)
class OriginalArray:
    """An array of the program before all passes: an instruction and an index into its tuple."""

    instruction: str
    index: ShapeIndex = ()

    @staticmethod
    def parse(cursor: Cursor) -> OriginalArray | None:
        """Parse ``{"name"}``, ``{"name" {0,1}}``, or ``{}`` for an unknown array."""
        cursor.expect("{")
        if cursor.accept("}"):
            return None
        name = cursor.string()
        index = cursor.integers() if cursor.peek("{") else ()
        cursor.expect("}")
        return OriginalArray(name, index) if name else None

    def text(self) -> str:
        """Return the text ``{"name" {0,1}}``."""
        index = " {" + ",".join(map(str, self.index)) + "}" if self.index else ""
        return f'{{"{escape(self.instruction)}"{index}}}'

    def write(self, message: Message) -> None:
        """Store the array in an OriginalArrayProto."""
        message.SetInParent()
        message.instruction_name = self.instruction
        message.shape_index.extend(self.index)

    @staticmethod
    def read(message: Message) -> OriginalArray:
        """Return the array of an OriginalArrayProto."""
        return OriginalArray(message.instruction_name, tuple(message.shape_index))


_TREE_TOKEN: Final = regex(r"[(),{}]")
_DEEPEST: Final = 200
_WIDEST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class OriginalValue:
    """The original arrays that the arrays of an instruction's value are equal to.

    Attributes:
        arrays: the original array for each index into the value, in order; None where it is unknown.
        is_synthetic_call: the instruction is a call that a pass made; it has no original.
        call_hierarchy: the calls, inlined since, through which the value was computed, as ``a/b``.
    """

    arrays: tuple[tuple[ShapeIndex, OriginalArray | None], ...] = ()
    is_synthetic_call: bool = False
    call_hierarchy: str | None = None

    @staticmethod
    def parse(cursor: Cursor) -> OriginalValue:
        """Parse ``{{"a"}}``, ``{({"a"}, {"b" {1}})}``, ``{{"a"},["b/c"]}`` or ``{[synthetic_call]}``."""
        cursor.expect("{")
        if cursor.accept("["):
            cursor.expect("synthetic_call")
            cursor.expect("]")
            cursor.expect("}")
            return OriginalValue(is_synthetic_call=True)
        arrays: list[tuple[ShapeIndex, OriginalArray | None]] = []
        index: list[int] = []
        while not cursor.accept("}"):
            if cursor.peek("{"):
                arrays.append((tuple(index), OriginalArray.parse(cursor)))
                continue
            start = cursor.start()
            token = cursor.take(_TREE_TOKEN, "an original array")[0]
            if token == "(" and len(index) < _DEEPEST:
                index.append(0)
            elif token == ")" and index:
                index.pop()
            elif token == "," and index:
                index[-1] += 1
            elif token == "," and cursor.accept("["):
                hierarchy = cursor.string()
                cursor.expect("]")
                cursor.expect("}")
                return OriginalValue(tuple(arrays), not arrays and not hierarchy, hierarchy)
            else:
                raise cursor.error(f"unexpected {token!r}", rule="origin.tree", position=start)
        return OriginalValue(tuple(arrays))

    def text(self, version: XlaVersion = NEWEST) -> str:
        """Return the text, as a version of XLA prints it."""
        if self.is_synthetic_call and version < V0_11:
            return "{[synthetic_call]}"
        hierarchy = "" if self.is_synthetic_call and self.call_hierarchy is None else self.call_hierarchy
        ending = "" if hierarchy is None or version < V0_11 else f',["{escape(hierarchy)}"]'
        return "{" + _tree_text(dict(self.arrays), 0, [_WIDEST]) + ending + "}"

    def write(self, message: Message) -> None:
        """Store the value in an OriginalValueProto."""
        message.SetInParent()
        message.is_synthetic_call = self.is_synthetic_call
        if self.call_hierarchy is not None:
            message.call_hierarchy = self.call_hierarchy
        for index, array in self.arrays:
            element = message.elements.add(shape_index=index)
            if array is not None:
                array.write(element.original_array)

    @staticmethod
    def read(message: Message) -> OriginalValue:
        """Return the value of an OriginalValueProto."""
        arrays = tuple(
            (
                tuple(e.shape_index),
                OriginalArray.read(e.original_array) if e.HasField("original_array") else None,
            )
            for e in message.elements
        )
        hierarchy = message.call_hierarchy if message.HasField("call_hierarchy") else None
        return OriginalValue(arrays, message.is_synthetic_call, hierarchy)


def _tree_text(arrays: Mapping[ShapeIndex, OriginalArray | None], depth: int, left: list[int]) -> str:
    """Return the text of the subtree whose indices agree up to ``depth``; missing parts are empty tuples.

    ``left[0]`` is the number of parts that may still be printed.
    """
    if depth > _DEEPEST:
        raise ParseError("an original value is nested too deeply", rule="origin.depth")
    children: dict[int, dict[ShapeIndex, OriginalArray | None]] = {}
    for index, array in arrays.items():
        if len(index) == depth:
            return "{}" if array is None else array.text()
        children.setdefault(index[depth], {})[index] = array
    left[0] -= max(children, default=-1) + 1
    if left[0] < 0 or min(children, default=0) < 0:
        raise ParseError("an original value has an index out of range", rule="origin.index")
    parts = (
        _tree_text(children[i], depth + 1, left) if i in children else "()"
        for i in range(max(children, default=-1) + 1)
    )
    return "(" + ", ".join(parts) + ")"
