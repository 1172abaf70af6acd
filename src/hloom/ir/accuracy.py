"""The attribute ``result_accuracy``: the accuracy required of a transcendental function."""

from __future__ import annotations

from typing import Any, Final

from hloom.ir.codec import Message, attribute, float_text
from hloom.ir.cursor import Cursor
from hloom.records import dataclass

_MODES: Final = ("default", "highest")


@dataclass(frozen=True, slots=True)
class ResultAccuracy:
    """An accuracy mode, or the largest error that is allowed.

    Attributes:
        mode: ``default`` or ``highest``; ``default`` where a tolerance is given.
        tolerance: absolute error, relative error and error in units in the last place; None if none is given.
    """

    mode: str = "default"
    tolerance: tuple[float, float, int] | None = None


class ResultAccuracyCodec:
    """Codec of ``{mode=highest}`` and ``{tolerance={atol=0,rtol=0.5,ulps=2}}``."""

    def parse(self, cursor: Cursor) -> ResultAccuracy:
        """Parse a mode or a tolerance; parts of a tolerance that are left out are 0."""
        cursor.expect("{")
        if cursor.accept("mode"):
            cursor.expect("=")
            start = cursor.start()
            mode = cursor.word().lower()
            if mode not in _MODES:
                raise cursor.error(f"expected a mode ({', '.join(_MODES)}), found {mode!r}", position=start)
            value = ResultAccuracy(mode)
        elif cursor.accept("tolerance"):
            cursor.expect("=")
            value = ResultAccuracy(tolerance=_tolerance(cursor))
        else:
            raise cursor.expected("mode or tolerance")
        cursor.expect("}")
        return value

    def text(self, value: ResultAccuracy) -> str:
        """Return the text of the mode or of all three tolerances."""
        if value.tolerance is None:
            return f"{{mode={value.mode}}}"
        atol, rtol, ulps = value.tolerance
        return f"{{tolerance={{atol={float_text(atol)},rtol={float_text(rtol)},ulps={ulps}}}}}"

    def write(self, message: Message, field: str, value: ResultAccuracy) -> None:
        """Store the tolerance, or a mode other than ``default``."""
        target = getattr(message, field)
        if value.tolerance is None:
            if value.mode != "default":
                target.mode = _MODES.index(value.mode)
        else:
            target.tolerance.atol, target.tolerance.rtol, target.tolerance.ulps = value.tolerance

    def read(self, message: Message, field: str) -> ResultAccuracy:
        """Return the stored tolerance or mode; ``default`` if nothing is stored."""
        stored: Any = getattr(message, field)
        if stored.HasField("tolerance"):
            tolerance = stored.tolerance
            return ResultAccuracy(tolerance=(tolerance.atol, tolerance.rtol, tolerance.ulps))
        return ResultAccuracy("highest" if stored.mode == _MODES.index("highest") else "default")


def _tolerance(cursor: Cursor) -> tuple[float, float, int]:
    values: dict[str, Any] = {"atol": 0.0, "rtol": 0.0, "ulps": 0}
    seen: set[str] = set()
    for start in cursor.items():
        name = cursor.word()
        if name not in values or name in seen:
            raise cursor.error(f"expected atol, rtol and ulps, each once, found {name!r}", position=start)
        seen.add(name)
        cursor.expect("=")
        values[name] = cursor.integer() if name == "ulps" else cursor.number()
        if not values[name] >= 0:
            raise cursor.error(f"{name} is negative", rule="result-accuracy.tolerance", position=start)
    return values["atol"], values["rtol"], values["ulps"]


def result_accuracy() -> ResultAccuracy:
    """Declare the attribute ``result_accuracy``, which is not printed in the default mode."""
    return attribute(ResultAccuracyCodec(), default=ResultAccuracy())
