"""Parses the text of literals: everything that XLA's parser accepts in `constant(...)`.

Plain text, numbers in braces that fit the shape, is checked and converted as a whole; scalars are cached by
text. Everything else (missing commas, NaN payloads, elided or dynamic arrays, errors) goes to a
scanner that tracks its position in the text.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Final

import numpy as np

from hloom.errors import HloError, ShapeError, plural
from hloom.regex import regex
from hloom.shape.element_type import F8E8M0FNU, S64, U64, ElementType
from hloom.shape.float_format import float_format
from hloom.shape.literal import Literal
from hloom.shape.packing import bit_patterns
from hloom.shape.scanner import CharacterScanner
from hloom.shape.shape import Shape

Array = np.ndarray

_NUMBER = r"-?(?:[0-9]+\.?[0-9]*|(?<=-)\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_TOKEN = regex(rf"(?P<number>{_NUMBER})|-?inf\b|-?nan\b(?:\((?P<payload>0x[0-9a-fA-F]+)\))?|true\b|false\b")
_INTEGER = regex(r"-?[0-9]{1,20}")
_SCALAR = regex(r"\s*((?:-?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|true|false|-?inf|-?nan))(?=\s*(?:\)|$))")
_PLAIN = regex(r"(?:[-+0-9.eE,{}()\snaif]++|/\*.*?\*/)*+", re.DOTALL)
_LAST_BRACE = regex(r"\}\s*\)")
_COMMENT = regex(r"/\*.*?\*/", re.DOTALL)
_ODD_NUMBER = regex(r"(?<![eE])\+|(?<![-0-9])\.")
_BRACES_TO_BLANKS = bytes.maketrans(b"{}()", b"    ")
_MOST_DIMENSIONS = 64
_ALL_64: Final = (1 << 64) - 1
_LARGEST_FILL = 1 << 28


def parse_literal(text: str, shape: Shape) -> Literal:
    """Parse the whole of `text` as a literal of this shape; otherwise ParseError with line and column."""
    literal, end = parse_literal_at(text, 0, shape)
    scanner = _Scanner(text, end)
    if scanner.peek():
        scanner.fail("the end of the literal", "literal.text-ends")
    return literal


def parse_literal_at(text: str, position: int, shape: Shape) -> tuple[Literal, int]:
    """Parse the literal of this shape that starts at `position`; return it and the position after it.

    Raises ParseError with line and column in `text`; ShapeError for a shape that no literal has.
    """
    if not shape.element_type.is_array:
        scanner = _Scanner(text, position)
        return scanner.other(shape), scanner.position
    if len(shape.dimensions) > _MOST_DIMENSIONS:
        raise ShapeError(f"literals have at most 64 dimensions; {shape} has more", rule="shape.rank")
    literal = (
        _plain_array(text, position, shape) if shape.dimensions else _plain_scalar(text, position, shape)
    )
    if literal is not None:
        return literal
    scanner = _Scanner(text, position)
    return scanner.array(shape), scanner.position


# Plain text.


def _plain_scalar(text: str, position: int, shape: Shape) -> tuple[Literal, int] | None:
    match = _SCALAR.match(text, position)
    if match is None:
        return None
    try:
        return _scalar(match[1], shape), match.end()
    except HloError:
        return None


@lru_cache(maxsize=1 << 12)
def _scalar(text: str, shape: Shape) -> Literal:
    return _Scanner(text, 0).array(shape)


def _plain_array(text: str, position: int, shape: Shape) -> tuple[Literal, int] | None:
    """Return the array if the text is plain: its braces and commas match the shape, its numbers are plain."""
    match = _PLAIN.match(text, position)
    assert match is not None
    last = _LAST_BRACE.search(text, position, match.end())
    end = last.start() + 1 if last is not None else text.rfind("}", position, match.end()) + 1
    element_type = shape.element_type
    if not end or shape.is_unbounded or not _may_fit(shape.dimensions, end - position):
        return None
    body = text[position:end]
    if "/*" in body:
        body = _COMMENT.sub(" ", body)
    if _ODD_NUMBER.search(body):
        return None
    octets = body.encode("ascii", "replace")
    if octets.translate(None, b" \t\r\n\f\v0123456789+-.eEnaif") != _skeleton(shape):
        return None
    numbers = octets.translate(_BRACES_TO_BLANKS).split(b",") if shape.element_count else []
    array = _plain_numbers(numbers, element_type, body)
    if array is None:
        return None
    return Literal(array.reshape(shape.dimensions), shape), end


def _may_fit(sizes: tuple[int, ...], length: int) -> bool:
    """Return false if a text of this length is too short for the braces of an array of these sizes."""
    braces = 1
    for size in sizes[:-1]:
        braces *= size
        if braces > length:
            return False
    return braces * sizes[-1] <= length


def _skeleton(shape: Shape) -> bytes:
    """Return the braces, commas and parentheses in the text of an array."""
    skeleton = b"(,)" if shape.element_type.is_complex else b""
    for size in reversed(shape.dimensions):
        skeleton = b"{" + b",".join([skeleton] * size) + b"}"
    return skeleton


def _plain_numbers(numbers: list[bytes], element_type: ElementType, text: str) -> Array | None:
    """Convert the numbers to elements; return None if one is not a number or is out of range."""
    try:
        if element_type.is_integer or element_type.is_predicate:
            wide = np.uint64 if element_type is U64 else np.int64
            integers = np.array(list(map(int, numbers)), wide)
            return _narrowed(integers, element_type)
        doubles = np.array(list(map(float, numbers)), np.float64)
    except (ValueError, OverflowError):
        return None
    spelled = "inf" in text or "nan" in text
    infinite = np.count_nonzero(~np.isfinite(doubles))
    if infinite != (text.count("inf") + text.count("nan") if spelled else 0):
        return None
    elements, bad = _rounded(doubles, element_type.component)
    return None if bad.any() else elements.view(element_type.numpy_dtype)


def _accepted(element_type: ElementType) -> tuple[int, int]:
    """Return the smallest and the largest integer that is accepted for an element.

    XLA reads constants as integers of 64 bits, signed or unsigned, and lets those of the other kind wrap.
    """
    if element_type.is_predicate:
        return -(1 << 63), (1 << 63) - 1
    return (-(1 << 63), (1 << 64) - 1) if element_type in (S64, U64) else element_type.limits


def _narrowed(integers: Array, element_type: ElementType) -> Array | None:
    """Convert wide integers to elements; return None if one is out of range."""
    if element_type.is_predicate:
        return integers != 0
    lowest, highest = element_type.limits
    if integers.size and (int(integers.min()) < lowest or int(integers.max()) > highest):
        return None
    return integers.astype(element_type.numpy_dtype)


def _rounded(doubles: Array, element_type: ElementType) -> tuple[Array, Array]:
    """Round doubles to a floating-point type; return the elements and a mask of those out of range.

    A number is in range if it rounds to a finite one. Infinities become what the type has: NaN, or its
    largest number. Types that have neither infinities nor NaN refuse nothing, as in XLA.
    """
    with np.errstate(all="ignore"):
        elements = doubles.astype(element_type.numpy_dtype)
    if not float_format(element_type).has_nan:
        return elements, np.zeros(doubles.shape, np.bool_)
    bad = np.isfinite(doubles) & ~np.isfinite(elements.astype(np.float64))
    if element_type is F8E8M0FNU:
        bad |= np.isfinite(doubles) & (doubles <= 0)
        # The least element is a subnormal f32, which ml_dtypes' conversion does not round to.
        elements[(doubles > 0) & (doubles < 1.5 * 2.0**-127)] = np.ldexp(1.0, -127)
    return elements, bad


# All other text.


class _Scanner(CharacterScanner):
    """Reads one literal from `position` on, element by element.

    `values` collects the numbers (two for a complex element), `places` where each stands, `payloads` the
    payloads of NaNs by their number.
    """

    form_rule = "literal.text-form"

    def __init__(self, text: str, position: int) -> None:
        super().__init__(text, position)
        self.values: list[float | int] = []
        self.places: list[int] = []
        self.payloads: dict[int, int] = {}
        self.elided = False

    def other(self, shape: Shape) -> Literal:
        """Read a tuple or a token."""
        if shape.is_token:
            self.peek()
            for spelling in ("token[]", "token"):
                if self.text.startswith(spelling, self.position):
                    self.position += len(spelling)
                    return Literal.token()
            self.fail("token", "literal.token")
        if not shape.is_tuple:
            self.fail(f"no literal of shape {shape}, which has none", "literal.has-value")
        self.expect("(", "before the elements of a tuple")
        elements: list[Literal] = []
        for number, child in enumerate(shape.tuple_shapes):
            if number:
                self.expect(",", "between the elements of a tuple")
            self.peek()
            element, self.position = parse_literal_at(self.text, self.position, child)
            elements.append(element)
        self.expect(")", f"after the {plural(len(elements), 'element')} of a tuple")
        return Literal.tuple_(elements)

    def array(self, shape: Shape) -> Literal:
        sizes: list[int | None] = [
            None if dynamic else size
            for size, dynamic in zip(shape.dimensions, shape.dynamic_dimensions, strict=True)
        ]
        bare = bool(sizes) and self.peek() != "{"
        if sizes and not bare:
            self.braces(shape, sizes, 0)
        else:
            self.element(shape.element_type)
        if self.elided:
            return Literal.elided(shape)
        elements = self.elements(shape.element_type)
        if bare:
            return self.first_element(shape, elements)
        return Literal(elements.reshape([size or 0 for size in sizes]), shape)

    def first_element(self, shape: Shape, elements: Array) -> Literal:
        """Read a bare number for an array: XLA sets the first element to it and leaves the others zero."""
        if shape.is_dynamic or not 0 < shape.element_count < _LARGEST_FILL:
            self.fail(f"{{ for dimension 0 of {shape.to_string(False)}", "literal.nesting", self.places[0])
        array = np.zeros(shape.dimensions, elements.dtype)
        array.reshape(-1)[:1] = elements
        return Literal(array, shape)

    def braces(self, shape: Shape, sizes: list[int | None], depth: int) -> None:
        """Read one pair of braces and its contents; like XLA, accept missing, doubled, trailing commas."""
        if self.peek() != "{":
            self.fail(f"{{ for dimension {depth} of {shape.to_string(False)}", "literal.nesting")
        self.position += 1
        count = 0
        while self.peek() != "}":
            if self.take(","):
                continue
            if depth == 0 and self.text.startswith("...", self.position):
                self.position += 3
                self.expect("}", "after ...")
                self.elided = True
                return
            expected = sizes[depth]
            bound = shape.dimensions[depth] if expected is None else expected
            if count >= bound and bound != Shape.UNBOUNDED:
                self.fail(f"}} after {bound} elements of dimension {depth}", "literal.element-count")
            if depth + 1 < len(sizes):
                self.braces(shape, sizes, depth + 1)
            else:
                self.element(shape.element_type)
            count += 1
        if sizes[depth] is None:
            sizes[depth] = count
        if sizes[depth] != count:
            self.fail(
                f"{plural(sizes[depth] or 0, 'element')} in dimension {depth}, not {count}",
                "literal.element-count",
            )
        self.position += 1

    def element(self, element_type: ElementType) -> None:
        if not element_type.is_complex:
            self.number(element_type)
            return
        self.expect("(", "before a complex number")
        self.number(element_type.component)
        self.expect(",", "after the real part")
        self.number(element_type.component)
        self.expect(")", "after the imaginary part")

    def number(self, element_type: ElementType) -> None:
        """Read one real number or truth value."""
        if self.peek() in ("{", "("):
            self.fail(f"an element of type {element_type}", "literal.nesting")
        start = self.position
        match = _TOKEN.match(self.text, start)
        after = "" if match is None else self.text[match.end() : match.end() + 1]
        if match is None or (match["number"] and (after.isalnum() or after in ("_", "."))):
            self.fail(f"a number of type {element_type}", "literal.number")
        self.position = match.end()
        self.places.append(start)
        if element_type.is_floating:
            self.values.append(self.floating(match, element_type))
        else:
            self.values.append(self.integer(match, element_type))

    def floating(self, token: re.Match[str], element_type: ElementType) -> float:
        if token[0] in ("true", "false"):
            self.fail(f"a number of type {element_type}", "literal.number", token.start())
        if token["payload"]:
            self.payload(int(token["payload"], 16), element_type, token.start())
            return math.copysign(math.nan, -1.0 if token[0][0] == "-" else 1.0)
        value = float(token[0])
        if math.isinf(value) and "inf" not in token[0]:
            self.refuse(f"{token[0]} is out of range for a double", "literal.value-in-range", token.start())
        return value

    def payload(self, payload: int, element_type: ElementType, position: int) -> None:
        if not float_format(element_type).has_infinity:
            self.refuse(f"{element_type} has no NaN payloads", "literal.nan-payload", position)
        most = (1 << element_type.mantissa_bits) - 1
        if not 0 < payload <= most:
            message = f"a NaN payload of {element_type} is 0x1 to {most:#x}, got {payload:#x}"
            self.refuse(message, "literal.nan-payload", position)
        self.payloads[len(self.values)] = payload

    def integer(self, token: re.Match[str], element_type: ElementType) -> int:
        if element_type.is_predicate and token[0] in ("true", "false"):
            return int(token[0] == "true")
        if token["number"] is None or _INTEGER.fullmatch(token[0]) is None:
            self.fail(f"an integer for an element of type {element_type}", "literal.integer", token.start())
        return int(token[0])

    def elements(self, element_type: ElementType) -> Array:
        """Return the collected numbers as a 1-D array of elements."""
        if not (element_type.is_floating or element_type.is_complex):
            for value, place in zip(self.values, self.places, strict=True):
                self.check_integer(int(value), element_type, place)
            integers = np.array([int(value) & _ALL_64 for value in self.values], np.uint64)
            return integers != 0 if element_type.is_predicate else integers.astype(element_type.numpy_dtype)
        component = element_type.component
        doubles = np.array(self.values, np.float64)
        elements, bad = _rounded(doubles, component)
        for number in np.flatnonzero(bad).tolist()[:1]:
            part = ("real part ", "imaginary part ")[number % 2] if element_type.is_complex else ""
            lowest, highest = component.limits
            message = (
                f"{part}{doubles[number]:g} is out of range for {element_type}: [{lowest:g}, {highest:g}]"
            )
            self.refuse(message, "literal.value-in-range", self.places[number])
        patterns = bit_patterns(elements, component)
        width = component.mantissa_bits
        for number, payload in self.payloads.items():
            patterns[number] = int(patterns[number]) >> width << width | payload
        return patterns.view(component.numpy_dtype).view(element_type.numpy_dtype)

    def check_integer(self, value: int, element_type: ElementType, place: int) -> None:
        lowest, highest = _accepted(element_type)
        if not lowest <= value <= highest:
            message = f"{value} is out of range for {element_type}: [{lowest}, {highest}]"
            self.refuse(message, "literal.value-in-range", place)
