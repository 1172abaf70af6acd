"""Generators of sorts by comparators of all kinds, and of topk."""

from __future__ import annotations

import math

import numpy as np

from hloom.fuzzing.generators.case import Case, CaseBody, family
from hloom.fuzzing.generators.draw import FLOATS, INTEGERS, Draw
from hloom.fuzzing.generators.movement import braces, plain_shape
from hloom.shape.element_type import ElementType

REAL = tuple(t for t in (*INTEGERS, *FLOATS) if ElementType.parse(t).bits >= 8)
"""Key types. XLA refuses to sort narrower ones with others; its process ends for them alone."""


@family("sort", weight=2, corners=True)
def sort(draw: Draw, body: CaseBody) -> Case:
    """Draw a sort of one to three operands by the first key, by two keys, or by a computed key.

    An unstable sort has an index as the last key, so that its order is determined. XLA requires one layout
    for all operands.
    """
    sizes = draw.sizes(low=1, largest=12)
    if draw.chance(0.1):
        sizes = (draw.one([35, 100]), *sizes[:1])
    axis = draw.integer(0, len(sizes) - 1)
    stable, indexed = draw.chance(0.6), draw.chance(0.5)
    count = draw.integer(1, 2)
    keys = [draw.one(REAL if draw.restricted else (*INTEGERS, *FLOATS)) for _ in range(count)]
    operands = [body.parameter(a, plain_shape(a)) for a in (draw.values(t, sizes) for t in keys)]
    kinds = list(keys)
    if indexed or not stable:
        order = np.argsort(draw.numbers.random(math.prod(sizes))).reshape(sizes).astype(np.int32)
        operands.append(body.parameter(order, plain_shape(order)))
        kinds.append("s32")
    lines: list[str] = []
    direction = draw.one(["LT", "GT"])
    total = draw.chance(0.4)
    compared = len(kinds) if not stable else len(keys)
    names = [(chr(97 + 2 * i), chr(98 + 2 * i)) for i in range(len(kinds))]
    result = ""
    for number in reversed(range(compared)):
        a, b = names[number]
        as_total = ", type=TOTALORDER" if total and kinds[number] in FLOATS else ""
        if kinds[number] in FLOATS and not as_total:
            # Numbers that are not NaN have a weak order; NaN comes last, as in JAX.
            lines += [
                f"na{number} = compare({a}, {a}), direction=NE",
                f"nb{number} = compare({b}, {b}), direction=NE",
            ]
            lines += [
                f"less{number} = compare({a}, {b}), direction={direction}",
                f"ok{number} = not(na{number})",
            ]
            lines += [
                f"last{number} = and(ok{number}, nb{number})",
                f"before{number} = or(less{number}, last{number})",
            ]
            lines += [
                f"even{number} = compare({a}, {b}), direction=EQ",
                f"nan{number} = and(na{number}, nb{number})",
            ]
            lines += [f"same{number} = or(even{number}, nan{number})"]
        else:
            lines.append(f"before{number} = compare({a}, {b}), direction={direction}{as_total}")
            lines.append(f"same{number} = compare({a}, {b}), direction=EQ{as_total}")
        if result:
            lines += [
                f"then{number} = and(same{number}, {result})",
                f"by{number} = or(before{number}, then{number})",
            ]
            result = f"by{number}"
        else:
            result = f"before{number}"
    lines.append(f"r = copy({result})")
    function = body.computation([f"{kinds[i // 2]}[]" for i in range(2 * len(kinds))], *lines)
    attributes = f"dimensions={braces([axis])}" + (", is_stable=true" if stable else "")
    root = body.let(f"sort({', '.join(operands)}), {attributes}, to_apply={function}")
    roots = body.elements(root, len(kinds)) if len(kinds) > 1 else [root]
    return body.case(f"sort {' '.join(keys)}{' total' if total else ''}", *roots)


@family("topk")
def topk(draw: Draw, body: CaseBody) -> Case:
    """Draw a topk of the largest or smallest elements, with ties and NaN."""
    element_type = draw.one(["f32", "f32", "bf16", "f16", "f64", "s32", "u8", "s8", "u32", "s64"])
    sizes = draw.sizes(low=1, high=3, largest=12)
    largest = draw.chance(0.7)
    operand = body.parameter(draw.values(element_type, sizes))
    root = body.let(
        f"topk({operand}), k={draw.integer(min(1, sizes[-1]), sizes[-1])}, largest={str(largest).lower()}"
    )
    return body.case(f"topk {element_type}", *body.elements(root, 2))
