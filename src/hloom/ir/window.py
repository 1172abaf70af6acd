"""Codecs of windows, paddings, slices and convolution dimension numbers."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from hloom.errors import ParseError, plural
from hloom.ir.codec import REQUIRED, Message, attribute
from hloom.ir.cursor import Cursor
from hloom.records import dataclass
from hloom.regex import regex


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """One dimension of a window, as in xla_data.proto's WindowDimension.

    Attributes:
        size: number of window elements.
        stride: step between windows in the (dilated, padded) base.
        padding_low, padding_high: elements added before and after the base; negative ones crop.
        window_dilation: step between window elements in the base.
        base_dilation: step between base elements after dilation.
        window_reversal: the window elements are in reverse order.
    """

    size: int
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    window_dilation: int = 1
    base_dilation: int = 1
    window_reversal: bool = False

    @property
    def dilated_size(self) -> int:
        """Return the extent of the dilated window in the base; 0 for an empty window."""
        return dilate(self.size, self.window_dilation)

    def extents(self, base: int) -> tuple[int, ...]:
        """Return the numbers of the dimension and the extents that positions over a base dimension reach."""
        steps = self.size, self.stride, self.window_dilation, self.base_dilation, self.dilated_size
        return (*steps, *_padded(dilate(base, self.base_dilation), self.padding_low, self.padding_high))

    def output_size(self, base: int) -> int:
        """Return the number of window positions over a base of ``base`` elements; 0 if none fits."""
        padded = dilate(base, self.base_dilation) + self.padding_low + self.padding_high
        extent = self.dilated_size
        if padded < extent or padded <= 0:
            return 0
        return (padded - extent) // self.stride + 1


def _padded(size: int, low: int, high: int) -> tuple[int, ...]:
    """Return the paddings of a dilated dimension, and its sizes without and with each of them."""
    return low, high, size, size + low, size + high, size + low + high


def fits_int64(number: int) -> bool:
    """Return whether a number is one of 64 bits, as attribute values and the positions computed from them."""
    return -(1 << 63) <= number < 1 << 63


def dilate(size: int, dilation: int) -> int:
    """Return the extent of ``size`` elements with ``dilation - 1`` holes between neighbors."""
    return 0 if size == 0 else (size - 1) * dilation + 1


Window: TypeAlias = tuple[WindowDimension, ...]

_DIGITS_X: Final = regex(r"-?\d+(?:x-?\d+)*")
_PADS: Final = regex(r"-?\d+_-?\d+(?:_-?\d+)?(?:x-?\d+_-?\d+(?:_-?\d+)?)*")
_EDGES: Final = regex(r"-?\d+_-?\d+(?:x-?\d+_-?\d+)*(?![\dx_])")
_WINDOW_FIELDS: Final = {
    "stride": "stride",
    "lhs_dilate": "base_dilation",
    "rhs_dilate": "window_dilation",
    "rhs_reversal": "window_reversal",
}


class WindowCodec:
    """Codec of ``{size=3x3 stride=2x2 pad=0_1x0_1 lhs_dilate=... rhs_dilate=... rhs_reversal=1x0}``."""

    def parse(self, cursor: Cursor) -> Window:
        """Parse a window; ``size`` may be missing only in an empty one."""
        cursor.expect("{")
        start = cursor.position
        parts: dict[str, list[Any]] = {}
        while not cursor.accept("}"):
            key = cursor.word()
            if key in parts or key not in ("size", "pad", *_WINDOW_FIELDS):
                raise cursor.error(f"unexpected window field {key!r}", rule="window.fields")
            cursor.expect("=")
            if key == "pad":
                pads = cursor.take(_EDGES, "a padding such as 0_1x2_3")[0].split("x")
                parts[key] = [tuple(map(int, pad.split("_"))) for pad in pads]
            else:
                parts[key] = [int(word) for word in cursor.take(_DIGITS_X, "sizes such as 3x3")[0].split("x")]
        sizes = parts.pop("size", [])
        if not sizes and parts:
            raise cursor.error("a window must state its size", rule="window.size-missing", position=start)
        for key, values in parts.items():
            if len(values) != len(sizes):
                message = f"{key} has {plural(len(values), 'dimension')}, size has {len(sizes)}"
                raise cursor.error(message, rule="window.rank", position=start)
        return tuple(self._dimension(i, size, parts) for i, size in enumerate(sizes))

    @staticmethod
    def _dimension(i: int, size: int, parts: dict[str, list[Any]]) -> WindowDimension:
        values: dict[str, Any] = {_WINDOW_FIELDS[key]: v[i] for key, v in parts.items() if key != "pad"}
        if "window_reversal" in values:
            values["window_reversal"] = bool(values["window_reversal"])
        low, high = parts["pad"][i] if "pad" in parts else (0, 0)
        return WindowDimension(size, padding_low=low, padding_high=high, **values)

    def text(self, value: Window) -> str:
        """Return the text of the window with the fields that differ from their defaults."""
        if not value:
            return "{}"
        parts = ["size=" + "x".join(str(d.size) for d in value)]
        if any(d.stride != 1 for d in value):
            parts.append("stride=" + "x".join(str(d.stride) for d in value))
        if any(d.padding_low or d.padding_high for d in value):
            parts.append("pad=" + "x".join(f"{d.padding_low}_{d.padding_high}" for d in value))
        if any(d.base_dilation != 1 for d in value):
            parts.append("lhs_dilate=" + "x".join(str(d.base_dilation) for d in value))
        if any(d.window_dilation != 1 for d in value):
            parts.append("rhs_dilate=" + "x".join(str(d.window_dilation) for d in value))
        if any(d.window_reversal for d in value):
            parts.append("rhs_reversal=" + "x".join(str(int(d.window_reversal)) for d in value))
        return "{" + " ".join(parts) + "}"

    def write(self, message: Message, field: str, value: Window) -> None:
        """Store a Window message."""
        window = getattr(message, field)
        window.SetInParent()
        for d in value:
            window.dimensions.add(
                size=d.size,
                stride=d.stride,
                padding_low=d.padding_low,
                padding_high=d.padding_high,
                window_dilation=d.window_dilation,
                base_dilation=d.base_dilation,
                window_reversal=d.window_reversal,
            )

    def read(self, message: Message, field: str) -> Window:
        """Return the dimensions of a Window message; dilations of 0 mean 1, as in XLA."""
        return tuple(map(_read_dimension, getattr(message, field).dimensions))


def _read_dimension(d: Message) -> WindowDimension:
    dilations = d.window_dilation or 1, d.base_dilation or 1
    return WindowDimension(d.size, d.stride, d.padding_low, d.padding_high, *dilations, d.window_reversal)


@dataclass(frozen=True, slots=True)
class PaddingDimension:
    """Padding of one dimension: elements before, after (negative numbers crop) and between neighbors."""

    low: int
    high: int
    interior: int = 0

    def extents(self, size: int) -> tuple[int, ...]:
        """Return the numbers of the dimension and the extents that positions in the result reach."""
        return (self.interior + 1, *_padded(dilate(size, self.interior + 1), self.low, self.high))

    def output_size(self, size: int) -> int:
        """Return the padded size: for a size d, d + max(d - 1, 0) * interior + low + high."""
        return size + max(size - 1, 0) * self.interior + self.low + self.high


class PaddingCodec:
    """Codec of ``0_1x2_3_1``: low_high or low_high_interior for every dimension, joined by x."""

    def parse(self, cursor: Cursor) -> tuple[PaddingDimension, ...]:
        """Parse a padding; that of a scalar is empty."""
        match = cursor.match(_PADS)
        if match is None:
            return ()
        return tuple(PaddingDimension(*map(int, pad.split("_"))) for pad in match[0].split("x"))

    def text(self, value: tuple[PaddingDimension, ...]) -> str:
        """Return the text, which has the interior padding of every dimension if one of them has any."""
        interior = any(d.interior for d in value)
        return "x".join(f"{d.low}_{d.high}_{d.interior}" if interior else f"{d.low}_{d.high}" for d in value)

    def write(self, message: Message, field: str, value: tuple[PaddingDimension, ...]) -> None:
        """Store a PaddingConfig."""
        config = getattr(message, field)
        config.SetInParent()
        for d in value:
            config.dimensions.add(
                edge_padding_low=d.low, edge_padding_high=d.high, interior_padding=d.interior
            )

    def read(self, message: Message, field: str) -> tuple[PaddingDimension, ...]:
        """Return the dimensions of a PaddingConfig."""
        dimensions = getattr(message, field).dimensions
        return tuple(
            PaddingDimension(d.edge_padding_low, d.edge_padding_high, d.interior_padding) for d in dimensions
        )


@dataclass(frozen=True, slots=True)
class SliceDimension:
    """A range of one dimension, ``[start:limit:stride]``."""

    start: int
    limit: int
    stride: int = 1


class SliceCodec:
    """Codec of ``{[0:4], [0:8:2]}``."""

    def parse(self, cursor: Cursor) -> tuple[SliceDimension, ...]:
        """Parse a list of ranges in braces."""
        ranges: list[SliceDimension] = []
        for _ in cursor.items():
            cursor.expect("[")
            start = cursor.integer()
            cursor.expect(":")
            limit = cursor.integer()
            stride = cursor.integer() if cursor.accept(":") else 1
            cursor.expect("]")
            ranges.append(SliceDimension(start, limit, stride))
        return tuple(ranges)

    def text(self, value: tuple[SliceDimension, ...]) -> str:
        """Return the text, which has the strides of all dimensions if one of them differs from 1."""
        strided = any(d.stride != 1 for d in value)
        return (
            "{"
            + ", ".join(
                f"[{d.start}:{d.limit}:{d.stride}]" if strided else f"[{d.start}:{d.limit}]" for d in value
            )
            + "}"
        )

    def write(self, message: Message, field: str, value: tuple[SliceDimension, ...]) -> None:
        """Store SliceDimensions messages."""
        for d in value:
            getattr(message, field).add(start=d.start, limit=d.limit, stride=d.stride)

    def read(self, message: Message, field: str) -> tuple[SliceDimension, ...]:
        """Return the stored ranges."""
        return tuple(SliceDimension(d.start, d.limit, d.stride) for d in getattr(message, field))


@dataclass(frozen=True, slots=True)
class ConvolutionDimensionNumbers:
    """The roles of the dimensions of input, kernel and output of a convolution."""

    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: tuple[int, ...]
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: tuple[int, ...]
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: tuple[int, ...]


_DIMENSION_NUMBERS: Final = range(64)
_LABELS: Final = regex(r"([0-9bf?]+)_([0-9io?]+)->([0-9bf?]+)")


class DimLabelsCodec:
    """Codec of ``b01f_01io->b01f``: b batch, f feature, i and o input and output feature, digits spatial."""

    def parse(self, cursor: Cursor) -> ConvolutionDimensionNumbers:
        """Parse dimension labels: each once, spatial digits 0..n-1 in all three parts; ``?`` is ignored."""
        start = cursor.start()
        parts = cursor.take(_LABELS, "dim_labels such as b01f_01io->b01f").groups()
        lhs, rhs, out = (
            self._part(cursor, start, part, letters)
            for part, letters in zip(parts, ("bf", "io", "bf"), strict=True)
        )
        if not len(lhs[2]) == len(rhs[2]) == len(out[2]):
            raise cursor.error(
                "input, kernel and output must have the same number of spatial dimensions",
                rule="dim-labels.spatial",
                position=start,
            )
        return ConvolutionDimensionNumbers(*lhs, *rhs, *out)

    @staticmethod
    def _part(cursor: Cursor, start: int, part: str, letters: str) -> tuple[int, int, tuple[int, ...]]:
        spatial = sorted(c for c in part if c.isdigit())
        expected = [str(i) for i in range(len(spatial))]
        if any(part.count(letter) != 1 for letter in letters) or spatial != expected:
            message = f"{part!r} needs each of {letters[0]}, {letters[1]} and the digits 0..n-1 once"
            raise cursor.error(message, rule="dim-labels.roles", position=start)
        return part.index(letters[0]), part.index(letters[1]), tuple(part.index(d) for d in spatial)

    def text(self, value: ConvolutionDimensionNumbers) -> str:
        """Return the text of the labels."""
        v = value
        return (
            self._labels("bf", v.input_batch_dimension, v.input_feature_dimension, v.input_spatial_dimensions)
            + "_"
            + self._labels(
                "io",
                v.kernel_input_feature_dimension,
                v.kernel_output_feature_dimension,
                v.kernel_spatial_dimensions,
            )
            + "->"
            + self._labels(
                "bf", v.output_batch_dimension, v.output_feature_dimension, v.output_spatial_dimensions
            )
        )

    @staticmethod
    def _labels(letters: str, first: int, second: int, spatial: tuple[int, ...]) -> str:
        places = {first: letters[0], second: letters[1]} | {d: str(i) for i, d in enumerate(spatial)}
        return "".join(places.get(i, "?") for i in range(max(places) + 1))

    def write(self, message: Message, field: str, value: ConvolutionDimensionNumbers) -> None:
        """Store a ConvolutionDimensionNumbers message."""
        stored = getattr(message, field)
        stored.SetInParent()
        for name in ConvolutionDimensionNumbers.__slots__:
            number = getattr(value, name)
            if isinstance(number, tuple):
                getattr(stored, name).extend(number)
            else:
                setattr(stored, name, number)

    def read(self, message: Message, field: str) -> ConvolutionDimensionNumbers:
        """Return the dimension numbers; raise ParseError for numbers that no array's dimensions have."""
        stored = getattr(message, field)
        values: dict[str, Any] = {}
        for name in ConvolutionDimensionNumbers.__slots__:
            value = getattr(stored, name)
            values[name] = value if isinstance(value, int) else tuple(value)
            numbers = (value,) if isinstance(value, int) else values[name]
            if any(number not in _DIMENSION_NUMBERS for number in numbers):
                raise ParseError(f"{name} is {value}", rule="dim-labels.range")
        return ConvolutionDimensionNumbers(**values)


# -- field functions


def window(*, default: Any = REQUIRED, always: bool = True) -> Window:
    """Declare a ``window={...}``."""
    return attribute(WindowCodec(), default=default, always=always)


def padding_config() -> tuple[PaddingDimension, ...]:
    """Declare a ``padding=0_1x2_3``."""
    return attribute(PaddingCodec(), name="padding", proto="padding_config")


def slice_ranges() -> tuple[SliceDimension, ...]:
    """Declare a ``slice={[0:4], [0:8:2]}``."""
    return attribute(SliceCodec(), name="slice", proto="slice_dimensions")


def dim_labels(*, default: Any = REQUIRED) -> ConvolutionDimensionNumbers:
    """Declare a ``dim_labels=b01f_01io->b01f``."""
    return attribute(
        DimLabelsCodec(), default=default, name="dim_labels", proto="convolution_dimension_numbers"
    )
