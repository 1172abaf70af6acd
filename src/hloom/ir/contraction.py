"""Attributes of dots and convolutions: precision of the operands, algorithm, and structured sparsity."""

from __future__ import annotations

from typing import Any, Final

from hloom.ir.codec import EnumCodec, Message, attribute
from hloom.ir.cursor import Cursor
from hloom.records import dataclass

PRECISIONS: Final = {"default": 0, "high": 1, "highest": 2}
"""Precisions of an operand and their proto numbers."""

ALGORITHMS: Final = {
    "unset": 0,
    "dot_any_f8_any_f8_f32": 1,
    "dot_any_f8_any_f8_f32_fast_accum": 2,
    "dot_f16_f16_f16": 3,
    "dot_f16_f16_f32": 4,
    "dot_bf16_bf16_bf16": 5,
    "dot_bf16_bf16_f32": 6,
    "dot_bf16_bf16_f32_x3": 7,
    "dot_bf16_bf16_f32_x6": 8,
    "dot_tf32_tf32_f32": 9,
    "dot_tf32_tf32_f32_x3": 10,
    "dot_f32_f32_f32": 11,
    "dot_f64_f64_f64": 12,
    "dot_bf16_bf16_f32_x9": 13,
}
"""Algorithms of a dot, named by operand and accumulator types, and their proto numbers."""


class PrecisionCodec:
    """Codec of ``{high,highest}``: one precision per operand, by default ``count`` times ``default``."""

    def __init__(self, count: int) -> None:
        self.words = PRECISIONS
        self.default = ("default",) * count

    def parse(self, cursor: Cursor) -> tuple[str, ...]:
        """Parse a list of precisions; a list of any length that holds only ``default`` is the default."""
        words: list[str] = []
        for start in cursor.items():
            word = cursor.word().lower()
            if word not in PRECISIONS:
                message = f"expected a precision ({', '.join(PRECISIONS)}), found {word!r}"
                raise cursor.error(message, rule="operand-precision.known", position=start)
            words.append(word)
        return self._known(words)

    def _known(self, words: list[str]) -> tuple[str, ...]:
        return self.default if all(word == "default" for word in words) else tuple(words)

    def text(self, value: tuple[str, ...]) -> str:
        """Return the text ``{high,highest}``."""
        return "{" + ",".join(value) + "}"

    def write(self, message: Message, field: str, value: tuple[str, ...]) -> None:
        """Append the numbers to a repeated enum field."""
        getattr(message, field).extend(PRECISIONS[word] for word in value)

    def read(self, message: Message, field: str) -> tuple[str, ...]:
        """Return the precisions of a repeated enum field; unknown numbers are read as ``default``."""
        words = {number: word for word, number in PRECISIONS.items()}
        return self._known([words.get(number, "default") for number in getattr(message, field)])


@dataclass(frozen=True, slots=True)
class TensorSparsity:
    """Sparsity that keeps ``num_non_zero`` of every ``block_size`` neighbors along ``dimension``.

    Attributes:
        num_non_zero, block_size: the pattern, such as 2 of 4.
        dimension: the sparse dimension.
        stride: distance between neighbors in elements.
    """

    num_non_zero: int
    block_size: int
    dimension: int = 0
    stride: int = 0


@dataclass(frozen=True, slots=True)
class Sparsity:
    """Structured sparsity of the two operands of a contraction; None for a dense operand."""

    lhs: TensorSparsity | None = None
    rhs: TensorSparsity | None = None


class SparsityCodec:
    """Codec of ``{lhs={sparsity=2x4 dimension=1 stride=1} rhs={...}}``."""

    def parse(self, cursor: Cursor) -> Sparsity:
        """Parse the sparsity of either operand or both."""
        by_operand: dict[str, TensorSparsity] = {}
        for start in cursor.fields():
            side = cursor.word()
            if side not in ("lhs", "rhs") or side in by_operand:
                raise cursor.error(f"unexpected operand {side!r}", rule="sparsity.operand", position=start)
            cursor.expect("=")
            by_operand[side] = self._tensor(cursor)
        return Sparsity(**by_operand)

    @staticmethod
    def _tensor(cursor: Cursor) -> TensorSparsity:
        start = cursor.start()
        fields: dict[str, int] = {}
        for _ in cursor.fields():
            key = cursor.word()
            cursor.expect("=")
            if key == "sparsity":
                fields["num_non_zero"] = cursor.integer()
                cursor.expect("x")
                fields["block_size"] = cursor.integer()
            elif key in ("dimension", "stride"):
                fields[key] = cursor.integer()
            else:
                raise cursor.error(f"unexpected field {key!r}", rule="sparsity.fields", position=start)
        if "block_size" not in fields:
            raise cursor.error("the pattern sparsity=NxM is missing", rule="sparsity.fields", position=start)
        return TensorSparsity(**fields)

    def text(self, value: Sparsity) -> str:
        """Return the text of the sparse operands."""
        sides = [
            f"{name}={{sparsity={side.num_non_zero}x{side.block_size}"
            f" dimension={side.dimension} stride={side.stride}}}"
            for name, side in (("lhs", value.lhs), ("rhs", value.rhs))
            if side is not None
        ]
        return "{" + " ".join(sides) + "}"

    def write(self, message: Message, field: str, value: Sparsity) -> None:
        """Store a SparsityConfig message."""
        stored = getattr(message, field)
        stored.SetInParent()
        for name, side in (("lhs", value.lhs), ("rhs", value.rhs)):
            if side is not None:
                part = getattr(stored, name)
                part.SetInParent()
                for key in TensorSparsity.__slots__:
                    setattr(part, key, getattr(side, key))

    def read(self, message: Message, field: str) -> Sparsity:
        """Return the sparsity of a SparsityConfig message."""
        stored = getattr(message, field)
        sides = {
            name: TensorSparsity(
                **{key: getattr(getattr(stored, name), key) for key in TensorSparsity.__slots__}
            )
            for name in ("lhs", "rhs")
            if stored.HasField(name)
        }
        return Sparsity(**sides)


# -- field functions


def operand_precision(count: int = 2) -> tuple[str, ...]:
    """Declare an ``operand_precision={high,high}`` for ``count`` operands."""
    codec = PrecisionCodec(count)
    return attribute(codec, default=codec.default, proto="precision_config.operand_precision")


def dot_algorithm() -> str:
    """Declare an ``algorithm=dot_bf16_bf16_f32``."""
    return attribute(
        EnumCodec(ALGORITHMS), default="unset", name="algorithm", proto="precision_config.algorithm"
    )


def sparsity_config() -> Any:
    """Declare a ``sparsity_config={lhs={sparsity=2x4 dimension=1 stride=1}}``."""
    return attribute(SparsityCodec(), default=Sparsity())
