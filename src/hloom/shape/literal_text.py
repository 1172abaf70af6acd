"""The text of literals, as XLA prints them: `{ { 1, 2 }, { 3, -inf } }`, `(1, {true})`, `nan(0x7)`."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from hloom.shape.element_type import F32, F64, ElementType
from hloom.shape.float_format import float_format
from hloom.shape.packing import bit_patterns

if TYPE_CHECKING:
    from hloom.shape.literal import Literal

Array = np.ndarray


def literal_text(literal: Literal, shape: bool, layout: bool, oneline: bool) -> str:
    """Return the text of a literal; `shape` prefixes each array with its shape, `layout` adds the layout."""
    if literal.shape.is_tuple:
        parts = [literal_text(element, shape, layout, oneline) for element in literal.elements]
        return f"( {', '.join(parts)} )" if oneline else "(\n" + ",\n".join(parts) + "\n)"
    prefix = literal.shape.to_string(layout) + _dynamic_sizes(literal) + " " if shape else ""
    if literal.shape.is_token:
        return literal.shape.to_string() if shape else "token"
    if literal.is_elided:
        return prefix + "{...}"
    array = literal.array
    return prefix + array_text(array, literal.shape.element_type, oneline)


def _dynamic_sizes(literal: Literal) -> str:
    if literal.is_elided or literal.shape.is_static:
        return ""
    return f"({','.join(map(str, literal.array.shape))})"


def array_text(array: Array, element_type: ElementType, oneline: bool) -> str:
    """Return the elements of an array in nested braces; a scalar bare."""
    texts = element_texts(array.reshape(-1), element_type, scalar=array.ndim == 0)
    if array.ndim == 0:
        return texts[0]
    return _nested(texts, array.shape, (), " " if oneline else "\n")


def _nested(texts: list[str], sizes: tuple[int, ...], index: tuple[int, ...], line_break: str) -> str:
    """Return the braces of the dimensions `sizes`; `index` holds the positions in the enclosing ones."""
    size = sizes[0]
    if len(sizes) == 1:
        body = ", ".join(texts)
        if not index:
            return f"{{{body}}}"
        indent = "" if line_break == " " else "  "
        return f"{indent}{{ {body} }}" if size > 1 else f"{indent}{{{body}}}"
    each = len(texts) // size if size else 0
    inner = [
        _nested(texts[number * each : (number + 1) * each], sizes[1:], (*index, number), line_break)
        for number in range(size)
    ]
    opening = "{" + line_break
    if index and len(index) + len(sizes) > 3:
        opening = f"{{ /*i{len(index) - 1}={index[-1]}*/" + (line_break if size else "")
    return opening + f",{line_break}".join(inner) + line_break + "}"


def element_texts(elements: Array, element_type: ElementType, scalar: bool = False) -> list[str]:
    """Return each element of a 1-D array in XLA's spelling; pred as a word only if it is a scalar."""
    if element_type.is_predicate:
        true, false = ("true", "false") if scalar else ("1", "0")
        return [true if element else false for element in elements.tolist()]
    if element_type.is_complex:
        parts = element_texts(_components(elements, element_type), element_type.component)
        return [f"({real}, {imag})" for real, imag in zip(parts[::2], parts[1::2], strict=True)]
    if element_type.is_floating:
        return _floating_texts(elements, element_type)
    if element_type.bits < 8:
        elements = elements.astype(np.int8)
    return list(map(str, elements.tolist()))


def _components(elements: Array, element_type: ElementType) -> Array:
    return np.ascontiguousarray(elements).view(element_type.component.numpy_dtype)


def _floating_texts(elements: Array, element_type: ElementType) -> list[str]:
    if element_type.bits <= 8:
        table = _byte_texts(element_type)
        return [table[pattern] for pattern in bit_patterns(elements, element_type).tolist()]
    return _formatted(elements, element_type)


@lru_cache
def _byte_texts(element_type: ElementType) -> list[str]:
    """Return the text of every bit pattern of a floating-point type of at most eight bits."""
    patterns = np.arange(1 << element_type.bits, dtype=np.uint8)
    return _formatted(patterns.view(element_type.numpy_dtype), element_type)


def _formatted(elements: Array, element_type: ElementType) -> list[str]:
    """Print f32 and f64 with 6 and 15 digits if these round-trip; else every digit that can be needed."""
    with np.errstate(invalid="ignore"):
        values = elements.astype(np.float64)
    most = 1 + math.ceil((element_type.mantissa_bits + 1) * math.log10(2))
    numbers = values.tolist()
    if element_type is not F32 and element_type is not F64:
        texts = [f"{number:.{most}g}" for number in numbers]
    else:
        few = f"%.{6 if element_type is F32 else 15}g"
        texts = [few % number for number in numbers]
        back = np.array(list(map(float, texts))).astype(elements.dtype)
        for position in np.flatnonzero((back != elements) & ~np.isnan(values)).tolist():
            texts[position] = f"{numbers[position]:.{most}g}"
    for position in np.flatnonzero(np.isnan(values)).tolist():
        texts[position] = _nan_text(elements[position : position + 1], element_type)
    return texts


def _nan_text(element: Array, element_type: ElementType) -> str:
    """Return a NaN with its sign, and with its payload unless only the quiet bit is set."""
    pattern = int(bit_patterns(element, element_type)[0])
    sign = "-" if element_type.limits[0] < 0 and pattern >> (element_type.bits - 1) else ""
    if not float_format(element_type).has_infinity:
        return sign + "nan"
    width = element_type.mantissa_bits
    payload = pattern & ((1 << width) - 1)
    return sign + ("nan" if payload == 1 << (width - 1) else f"nan({payload:#x})")
