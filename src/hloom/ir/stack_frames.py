"""The stack frame table of a module: source locations of instructions, including callers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from hloom.ir.cursor import Cursor, escape
from hloom.records import dataclass
from hloom.regex import regex

_NUMBER: Final = regex(r"[0-9]++")
_LOCATION_FIELDS: Final = ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column")
_FRAME_FIELDS: Final = ("file_location_id", "parent_frame_id")


@dataclass(frozen=True, slots=True)
class FileLocation:
    """A location in a file. The ids are 1-based numbers of file and function names; 0 means none."""

    file_name_id: int
    function_name_id: int
    line: int
    end_line: int
    column: int
    end_column: int


@dataclass(frozen=True, slots=True)
class StackFrame:
    """A location, and the frame that called it (1-based; 0 for the outermost)."""

    file_location_id: int
    parent_frame_id: int = 0


@dataclass(frozen=True, slots=True)
class StackFrames:
    """The four tables, as in hlo.proto's StackFrameIndexProto."""

    file_names: tuple[str, ...] = ()
    function_names: tuple[str, ...] = ()
    file_locations: tuple[FileLocation, ...] = ()
    frames: tuple[StackFrame, ...] = ()

    @staticmethod
    def parse(cursor: Cursor) -> StackFrames:
        """Parse the tables ``FileNames``, ``FunctionNames``, ``FileLocations`` and ``StackFrames``.

        In text an outermost frame has parent 1, and a frame called by number n has parent n + 1.
        """
        cursor.expect("FileNames")
        file_names = _parse_names(cursor)
        cursor.expect("FunctionNames")
        function_names = _parse_names(cursor)
        cursor.expect("FileLocations")
        locations = [FileLocation(*row) for row in _parse_rows(cursor, _LOCATION_FIELDS)]
        cursor.expect("StackFrames")
        frames = [StackFrame(row[0], row[1] - 1) for row in _parse_rows(cursor, _FRAME_FIELDS)]
        return StackFrames(file_names, function_names, tuple(locations), tuple(frames))

    def chain(self, number: int) -> list[int]:
        """Return the numbers of a frame and its callers, outermost first; empty if one does not exist."""
        numbers: list[int] = []
        while number:
            if not 0 < number <= len(self.frames) or len(numbers) == len(self.frames):
                return []
            numbers.append(number)
            location = self.frames[number - 1].file_location_id
            if not 0 < location <= len(self.file_locations):
                return []
            number = self.frames[number - 1].parent_frame_id
        return numbers[::-1]

    def used(self, numbers: Iterable[int]) -> tuple[StackFrames, dict[int, int]]:
        """Return the tables of the given frames alone, in the order of first use, and their new numbers.

        Numbers of frames that do not exist are left out.
        """
        tables = _Tables()
        new: dict[int, int] = {}
        for number in numbers:
            for step in () if number in new else self.chain(number):
                if step not in new:
                    new[step] = tables.add(self, self.frames[step - 1], new)
        names = tuple(tables.files), tuple(tables.functions)
        return StackFrames(*names, tuple(tables.locations), tuple(tables.frames)), new

    def text(self) -> str:
        """Return the text of the tables as XLA prints them, each followed by an empty line."""
        files = (f'{i} "{escape(name)}"' for i, name in enumerate(self.file_names, 1))
        functions = (f'{i} "{escape(name)}"' for i, name in enumerate(self.function_names, 1))
        locations = (
            f"{i} {{" + " ".join(f"{field}={getattr(location, field)}" for field in _LOCATION_FIELDS) + "}"
            for i, location in enumerate(self.file_locations, 1)
        )
        frames = (
            f"{i} {{file_location_id={frame.file_location_id} parent_frame_id={frame.parent_frame_id + 1}}}"
            for i, frame in enumerate(self.frames, 1)
        )
        tables = {
            "FileNames": files,
            "FunctionNames": functions,
            "FileLocations": locations,
            "StackFrames": frames,
        }
        return "".join("\n".join([title, *rows]) + "\n\n" for title, rows in tables.items())


class _Tables:
    """Tables under construction, which hold each value once in the order of insertion."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.functions: dict[str, int] = {}
        self.locations: dict[FileLocation, int] = {}
        self.frames: dict[StackFrame, int] = {}

    def add(self, source: StackFrames, frame: StackFrame, new: dict[int, int]) -> int:
        """Return the number of a frame whose callers have been added."""
        old = source.file_locations[frame.file_location_id - 1]
        file = _renumbered(self.files, source.file_names, old.file_name_id)
        function = _renumbered(self.functions, source.function_names, old.function_name_id)
        location = replace(old, file_name_id=file, function_name_id=function)
        number = self.locations.setdefault(location, len(self.locations) + 1)
        renumbered = StackFrame(number, new.get(frame.parent_frame_id, 0))
        return self.frames.setdefault(renumbered, len(self.frames) + 1)


def _renumbered(table: dict[str, int], names: tuple[str, ...], number: int) -> int:
    if not 0 < number <= len(names):
        return 0
    return table.setdefault(names[number - 1], len(table) + 1)


def _parse_names(cursor: Cursor) -> tuple[str, ...]:
    return tuple([cursor.string() for _ in iter(lambda: cursor.match(_NUMBER), None)])


def _parse_rows(cursor: Cursor, fields: tuple[str, ...]) -> list[list[int]]:
    """Parse numbered rows of ``{field=1 other=2}``; each field occurs once, in any order."""
    rows: list[list[int]] = []
    while cursor.match(_NUMBER):
        start = cursor.start()
        row: dict[str, int] = {}
        for at in cursor.fields():
            key = cursor.key()
            if key not in fields or key in row:
                message = f"expected one of {', '.join(fields)}, each once, found {key!r}"
                raise cursor.error(message, rule="stack-frames.fields", position=at)
            row[key] = cursor.integer32()
        missing = [field for field in fields if field not in row]
        if missing:
            raise cursor.error(f"{missing[0]} is missing", rule="stack-frames.fields", position=start)
        rows.append([row[field] for field in fields])
    return rows
