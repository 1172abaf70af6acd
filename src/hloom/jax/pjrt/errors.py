"""Errors of PJRT: the status codes of Abseil."""

from __future__ import annotations

from typing import Final

CANCELLED: Final = 1
INVALID_ARGUMENT: Final = 3
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13


class PjrtError(Exception):
    """An error that a function of the interface returns.

    Attributes:
        code: one of the codes of this module.
        message: the text that the caller shows.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
