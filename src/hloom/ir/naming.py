"""Names of instructions and computations: well-formed names and unique names."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from hloom.regex import regex
from hloom.shape.element_type import NAMES

_BAD_START: Final = regex(r"[^A-Za-z_]")
_BAD: Final = regex(r"[^A-Za-z0-9_.\-]")
_NUMBER: Final = regex(r"[+-]?[0-9]{1,19}")
_INT64_END: Final = 1 << 63
_remembered: Final = lru_cache(maxsize=1 << 14)
"""Passes and clones take the names of a module again and again."""


@_remembered
def sanitized(name: str) -> str:
    """Return the name with invalid characters replaced, as XLA does.

    Names consist of ASCII letters, digits, ``_``, ``.`` and ``-``, and start with a letter or ``_``; they are
    not element types, and do not start with ``__`` (reserved for ``__xla_``).
    """
    if not name:
        return ""
    if not name.isascii():
        name = name.encode("utf-8", "surrogateescape").decode("latin-1")  # one "_" per UTF-8 byte
    name = _BAD_START.sub("_", name[0]) + _BAD.sub("_", name[1:])
    if name in NAMES and name not in ("tuple", "buffer"):
        name += "_"
    if name.startswith("__") and not name.startswith("__xla_"):
        name = "a" + name[1:]
    return name


class NameUniquer:
    """Source of distinct names, which differ in a number after the last dot: ``add``, ``add.1``, ``add.2``.

    ``add`` and ``add.0`` count as the same name, as in XLA.
    """

    __slots__ = ("_roots",)

    def __init__(self) -> None:
        self._roots: dict[str, int | _Numbers] = {}

    def unique(self, wanted: str) -> str:
        """Return ``wanted`` if it is new, else the same root with the next free number."""
        return self.unique_of_sanitized(sanitized(wanted) or "name")

    def unique_of_sanitized(self, name: str) -> str:
        """Return a unique name as `unique` does, for a name that is well formed."""
        root, number, numbered = _split(name)
        counter = self._roots.get(root)
        if counter is None:
            self._roots[root] = number
        else:
            if isinstance(counter, int):
                counter = self._roots[root] = _Numbers(counter)
            number = counter.register(number)
        if number == 0:
            return f"{root}.0" if numbered else root
        return f"{root}.{number}"

    def take(self, name: str) -> None:
        """Reserve a name that is in use."""
        root, number, _ = _split(sanitized(name) or "name")
        counter = self._roots.get(root)
        if counter is None:
            self._roots[root] = number
        elif isinstance(counter, _Numbers):
            counter.used.add(number)
        elif counter != number:
            self._roots[root] = numbers = _Numbers(counter)
            numbers.used.add(number)


class _Numbers:
    """The numbers in use after one root."""

    __slots__ = ("following", "used")

    def __init__(self, first: int) -> None:
        self.used = {first}
        self.following = 0

    def register(self, number: int) -> int:
        """Reserve and return the number if it is free, else the next free one."""
        if number in self.used:
            while self.following in self.used:
                self.following += 1
            number = self.following
            self.following += 1
        self.used.add(number)
        return number


@_remembered
def _split(name: str) -> tuple[str, int, bool]:
    """Return the root of a name, its number (0 if it has none), and whether it has one."""
    root, dot, suffix = name.rpartition(".")
    if not dot or not root or not suffix or _NUMBER.fullmatch(suffix) is None:
        return name, 0, False
    number = int(suffix)
    if not -_INT64_END <= number < _INT64_END:
        return name, 0, False
    return root, number, True
