"""A typed reader of JSON objects from outside: configurations of custom calls, metadata of files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from hloom.errors import HloError
from hloom.records import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Settings:
    """A JSON object. Absent fields have the defaults of proto3; a field of another type is refused.

    Attributes:
        fields: the values by name.
        refuse: make the error for a message, with the rule and the place of the object.
        path: the fields that lead to this object, with a dot behind each.
    """

    fields: Mapping[str, Any]
    refuse: Callable[[str], HloError]
    path: str = ""

    @staticmethod
    def parse(text: str | bytes, refuse: Callable[[str], HloError]) -> Settings:
        """Parse a JSON object."""
        try:
            value = json.loads(text)
        except ValueError as error:
            raise refuse(f"it is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise refuse(f"it is {_shortened(value)}, wanted is a JSON object")
        return Settings(cast("dict[str, Any]", value), refuse)

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a number, which JSON has as a string if it has 64 bits, is infinite or NaN."""
        return self._read(name, default, _number, "a number")

    def integer(self, name: str, default: int = 0) -> int:
        """Return an integer."""
        return self._read(name, default, _integer, "an integer")

    def word(self, name: str, default: str = "") -> str:
        """Return a string, such as an enumerated value."""
        return self._read(name, default, _word, "a string")

    def flag(self, name: str) -> bool:
        """Return a truth value."""
        return self._read(name, False, _flag, "true or false")

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of integers."""
        return self._read(name, (), lambda value: _list(value, _integer), "a list of integers")

    def integer_lists(self, name: str) -> tuple[tuple[int, ...], ...]:
        """Return a list of lists of integers."""
        return self._read(
            name, (), lambda value: _list(value, lambda row: _list(row, _integer)), "lists of integers"
        )

    def words(self, name: str) -> tuple[str, ...]:
        """Return a list of strings."""
        return self._read(name, (), lambda value: _list(value, _word), "a list of strings")

    def message(self, name: str) -> Settings:
        """Return a nested object."""
        fields = self._read(name, {}, _object, "an object")
        return Settings(fields, self.refuse, f"{self.path}{name}.")

    def require(self, *names: str) -> None:
        """Refuse an object without some fields."""
        for name in names:
            if name not in self.fields:
                raise self.refuse(f"{self.path}{name} is missing")

    def _read(self, name: str, default: T, read: Callable[[object], T | None], wanted: str) -> T:
        if name not in self.fields:
            return default
        value = read(self.fields[name])
        if value is None:
            raise self.refuse(f"{self.path}{name} is {_shortened(self.fields[name])}, wanted is {wanted}")
        return value


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _integer(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _object(value: object) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _list(value: object, read: Callable[[object], T | None]) -> tuple[T, ...] | None:
    if not isinstance(value, list):
        return None
    items = [read(item) for item in cast("list[Any]", value)]
    return None if any(item is None for item in items) else tuple(cast("list[T]", items))


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
