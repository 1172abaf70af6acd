"""Generators of conversions between element types, of values and of bits; reduced precision."""

from __future__ import annotations

from hloom.fuzzing.generators.case import Case, CaseBody, family
from hloom.fuzzing.generators.draw import COMPLEX, EVERY, FLOATS, WIDE_FLOATS, Draw
from hloom.shape.element_type import ElementType


@family("convert", weight=4, corners=True)
def convert(draw: Draw, body: CaseBody) -> Case:
    """Draw a conversion between any types. XLA's process ends for complex numbers to integers or pred."""
    source, target = draw.one(EVERY), draw.one(EVERY)
    if draw.restricted and source in COMPLEX and target not in FLOATS:
        target = draw.one(COMPLEX)
    sizes = draw.sizes()
    operand = body.parameter(draw.any_values(source, sizes))
    return body.case(
        f"convert {source} {target}", body.let(f"{draw.shape(target, sizes)} convert({operand})")
    )


@family("bitcast-convert")
def bitcast_convert(draw: Draw, body: CaseBody) -> Case:
    """Draw a bitcast to a type of equal width, to a narrower or to a wider one.

    A narrower type adds a minor dimension, and a wider one removes it.
    """
    types = [t for t in EVERY if t != "pred" and t not in COMPLEX]
    source = ElementType.parse(draw.element_type(types))
    fitting = [
        t
        for t in types
        if ElementType.parse(t).bits % source.bits * (source.bits % ElementType.parse(t).bits) == 0
    ]
    target = ElementType.parse(draw.element_type(fitting))
    sizes = list(draw.sizes(high=3))
    result = list(sizes)
    if target.bits < source.bits:
        result.append(source.bits // target.bits)
    elif target.bits > source.bits:
        sizes.append(target.bits // source.bits)
    operand = body.parameter(draw.any_values(source.name, sizes))
    root = body.let(f"{draw.shape(target.name, result)} bitcast-convert({operand})")
    return body.case(f"bitcast-convert {source.name} {target.name}", root)


@family("reduce-precision")
def reduce_precision(draw: Draw, body: CaseBody) -> Case:
    """Draw a `reduce-precision` to a format with fewer or more exponent and mantissa bits."""
    element_type = draw.element_type(WIDE_FLOATS)
    exponent_bits, mantissa_bits = draw.integer(1, 12), draw.integer(0, 25)
    sizes = draw.sizes()
    operand = body.parameter(draw.any_values(element_type, sizes))
    attributes = f"exponent_bits={exponent_bits}, mantissa_bits={mantissa_bits}"
    root = body.let(f"{draw.shape(element_type, sizes)} reduce-precision({operand}), {attributes}")
    return body.case(f"reduce-precision {element_type}", root)


def shape_of(element_type: str, sizes: list[int] | tuple[int, ...]) -> str:
    """Return the text of a shape without its layout."""
    return f"{element_type}[{','.join(map(str, sizes))}]"
