"""Enumerated arguments: their words, and the spellings in which users know them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

import numpy as np

from hloom.errors import HloError, did_you_mean

Word: TypeAlias = "str | int | Enum"
"""An enumerated argument: see `enumerated`."""


def enumerated(value: object, words: Mapping[str, int], what: str, *, prefix: str = "") -> str:
    """Return the word of an enumeration that an argument stands for.

    Accepted are the word as HLO text spells it, in either case and with or without XLA's leading ``k`` and
    `prefix`; the number of the proto's enum; and a Python Enum member of that name.

    Raises HloError: by the rule ``builder.enum-value`` for other strings and numbers, by ``builder.argument``
    for other types.
    """
    listed = ", ".join(filter(None, words))
    if isinstance(value, Enum):
        value = value.name
    if isinstance(value, str):
        wanted = _plain(value, prefix)
        for word in words:
            if word == value or _plain(word, prefix) == wanted:
                return word
    elif hasattr(value, "__index__") and not isinstance(value, bool):
        for word, number in words.items():
            if number == value:
                return word
    else:
        raise HloError(f"{what} is one of {listed}, got {value!r}", rule="builder.argument")
    suggestion = did_you_mean(value, words) if isinstance(value, str) else ""
    raise HloError(f"{what} is one of {listed}, got {value!r}{suggestion}", rule="builder.enum-value")


def _plain(word: str, prefix: str) -> str:
    """Return the word in lower case, without separators, a leading ``k`` before a capital, and the prefix."""
    if word[:1] == "k" and word[1:2].isupper():
        word = word[1:]
    return word.lower().replace("_", "").replace("-", "").removeprefix(prefix)


def is_flag(value: object) -> bool:
    """Return whether a value can be a flag: a bool, or 0 or 1 of an integer type."""
    return isinstance(value, bool | np.bool_) or (isinstance(value, int | np.integer) and value in (0, 1))
