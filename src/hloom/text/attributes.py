"""The parsed attributes of one instruction, before its operation is made."""

from __future__ import annotations

from typing import Any, NamedTuple

from hloom.ir.computation import HloComputation


class Attributes(NamedTuple):
    """The parsed attributes of one instruction.

    Attributes:
        fields: values of the operation's fields by name.
        called: called computations by the name of their role.
        thread: the thread stated by an async-update or async-done, which must be that of its async-start;
            None if it is not stated.
    """

    fields: dict[str, Any]
    called: dict[str, list[HloComputation]]
    thread: str | None = None
