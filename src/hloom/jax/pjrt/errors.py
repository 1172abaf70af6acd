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
    """An error for a PJRT function to return: a status code of this module, and a message for the user."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
