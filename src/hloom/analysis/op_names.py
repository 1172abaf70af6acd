"""Scopes of op_names: ``jit(f)/layer_0/dot_general`` is a dot_general in the scope jit(f)/layer_0."""

from __future__ import annotations


def scope_parts(op_name: str) -> list[str]:
    """Return the parts of an op_name before its last; slashes in brackets do not separate."""
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
