"""Regular expressions that are compiled when first used.

Compiling those of the text parser at import takes 20 ms, and programs that come from JAX use none of them.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def regex(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return the regular expression that `re.compile` returns, compiled when an attribute is first read."""
    return cast("re.Pattern[AnyStr]", _Regex(pattern, flags))


class _Regex:
    """Attributes of a `re.Pattern`, which are copied here one by one when they are first read."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self._source: tuple[Any, int] = (pattern, flags)

    def __getattr__(self, name: str) -> object:
        attribute: object = getattr(re.compile(*self._source), name)
        setattr(self, name, attribute)
        return attribute
