"""Versions of XLA's text form, named by the jaxlib that contains the printer."""

from __future__ import annotations

from typing import Final, NamedTuple

from hloom.errors import HloError
from hloom.regex import regex

_WRITTEN: Final = regex(r"([0-9]{1,6})\.([0-9]{1,6})(?:\.([0-9]{1,6})?[0-9A-Za-z.+\-]*)?")


class XlaVersion(NamedTuple):
    """The major, minor and patch version of a jaxlib; versions compare by age."""

    major: int
    minor: int
    patch: int = 0

    @staticmethod
    def parse(text: str, *, newer: bool = False) -> XlaVersion:
        """Parse ``0.12`` or a full version such as ``0.12.0.1``.

        Raise HloError (``text.xla-version``) for other text, for versions older than the oldest one read,
        and, unless ``newer``, for versions after the newest minor one, whose text form is not known.
        """
        written = _WRITTEN.fullmatch(text.strip())
        version = XlaVersion(*(int(part or 0) for part in written.groups())) if written else None
        if version is None or version < OLDEST or (version[:2] > NEWEST[:2] and not newer):
            message = f"a version of XLA is that of a jaxlib, from {KNOWN}, such as 0.11.2; got {text!r}"
            raise HloError(message, rule="text.xla-version")
        return version

    def __str__(self) -> str:
        return ".".join(map(str, self if self.patch else self[:2]))


OLDEST: Final = XlaVersion(0, 10)
V0_11: Final = XlaVersion(0, 11)
V0_11_2: Final = XlaVersion(0, 11, 2)
V0_12: Final = XlaVersion(0, 12)
NEWEST: Final = V0_12
"""The newest version whose text form is known; later ones are taken to print as it does."""
KNOWN: Final = f"{OLDEST} to {NEWEST}"
