"""Origin of an instruction: the framework's operation and source line."""

from __future__ import annotations

from hloom.ir.instruction import HloInstruction
from hloom.ir.metadata import OpMetadata
from hloom.ir.module import HloModule


def op_name(instruction: HloInstruction) -> str:
    """Return the framework's name of the operation; empty if none is recorded."""
    return instruction.metadata.op_name if instruction.metadata is not None else ""


def source_line(instruction: HloInstruction) -> str:
    """Return ``FILE:LINE``, from the metadata or the module's stack frames; empty if none is recorded."""
    return line_of(
        instruction.metadata, instruction.parent.module if instruction.parent is not None else None
    )


def line_of(metadata: OpMetadata | None, module: HloModule | None) -> str:
    """Return ``FILE:LINE`` of metadata of a module; empty if none is recorded."""
    if metadata is None:
        return ""
    if metadata.source_file:
        return f"{metadata.source_file}:{metadata.source_line}"
    if module is None or not metadata.stack_frame_id:
        return ""
    tables = module.config.stack_frames
    if not tables.chain(metadata.stack_frame_id):
        return ""
    location = tables.file_locations[tables.frames[metadata.stack_frame_id - 1].file_location_id - 1]
    if not 0 < location.file_name_id <= len(tables.file_names):
        return ""
    return f"{tables.file_names[location.file_name_id - 1]}:{location.line}"


def place(instruction: HloInstruction) -> str:
    """Return the operation's name and the source line, joined."""
    return ", ".join(part for part in (op_name(instruction), source_line(instruction)) if part)


def scope_parts(op_name: str) -> list[str]:
    """Return the scopes of an op_name: of ``jit(f)/layer_0/dot_general``, jit(f) and layer_0.

    Slashes in brackets do not separate scopes.
    """
    parts: list[str] = []
    depth = start = 0
    for at, letter in enumerate(op_name):
        if letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif letter == "/" and depth <= 0:
            parts.append(op_name[start:at])
            start = at + 1
    return parts
