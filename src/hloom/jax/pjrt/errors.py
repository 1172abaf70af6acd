"""PJRT errors, with Abseil's status codes."""

from __future__ import annotations

from typing import Final

CANCELLED: Final = 1
INVALID_ARGUMENT: Final = 3
NOT_FOUND: Final = 5
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13


class PjrtError(Exception):
    """An exception that becomes the error which a PJRT function returns.

    It has a status code, a constant of this module such as `INVALID_ARGUMENT`, and a message for the user.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
