"""Programs of a dozen operations of many kinds, each on results of earlier ones.

Values are small whole numbers, so that every result is exact in any order of computation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from .case import Body, Case, Generator
from .conversion import shape_of
from .draw import Draw
from .movement import braces, factors
from .reduction import neutral

TYPES = ("s32", "f32", "s16", "f64", "u8")
LIMIT = 8


@dataclass(frozen=True)
class Known:
    """A value of a program: name, element type, sizes."""

    name: str
    element_type: str
    sizes: tuple[int, ...]


class Program:
    """A program under construction.

    Attributes:
        values: the arrays that there are.
    """

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.body = Body(draw)
        self.values: list[Known] = []
        for _ in range(draw.integer(2, 3)):
            element_type, sizes = draw.one(TYPES), draw.sizes(low=1, high=3, largest=5, most=60)
            name = self.body.parameter(draw.small_values(element_type, sizes))
            self.values.append(Known(name, element_type, sizes))

    def any(self) -> Known:
        """Return one of the values, newer ones more often."""
        return self.values[-1 - min(self.draw.integer(0, 3), len(self.values) - 1)]

    def add(self, expression: str, element_type: str, sizes: tuple[int, ...] | list[int]) -> Known:
        """Add a value."""
        value = Known(self.body.let(expression), element_type, tuple(sizes))
        self.values.append(value)
        return value

    def like(self, value: Known) -> Known:
        """Return a value of the same type and sizes, made from another one if necessary."""
        fitting = [v for v in self.values if (v.element_type, v.sizes) == (value.element_type, value.sizes)]
        if len(fitting) > 1 and self.draw.chance(0.7):
            return self.draw.one(fitting)
        scalar = self.body.let(f"{value.element_type}[] constant({self.draw.integer(0, 3)})")
        return self.add(
            f"{shape_of(value.element_type, value.sizes)} broadcast({scalar}), dimensions={{}}",
            value.element_type,
            value.sizes,
        )

    def bounded(self, value: Known) -> Known:
        """Return the value limited to small numbers."""
        low, high = (0 if value.element_type[0] == "u" else -LIMIT), LIMIT
        ends = [self.body.let(f"{value.element_type}[] constant({n})") for n in (low, high)]
        return self.add(f"clamp({ends[0]}, {value.name}, {ends[1]})", value.element_type, value.sizes)


def arithmetic(p: Program) -> None:
    x = p.any()
    y = p.like(x)
    opcode = p.draw.one(["add", "subtract", "multiply", "maximum", "minimum"])
    p.bounded(p.add(f"{opcode}({x.name}, {y.name})", x.element_type, x.sizes))


def choice(p: Program) -> None:
    x = p.any()
    y = p.like(x)
    predicate = p.body.let(f"compare({x.name}, {y.name}), direction={p.draw.one(['LT', 'EQ', 'GE', 'NE'])}")
    if p.draw.chance(0.5):
        predicate = p.body.let(f"not({predicate})")
    p.add(f"select({predicate}, {y.name}, {x.name})", x.element_type, x.sizes)


def conversion(p: Program) -> None:
    x, target = p.any(), p.draw.one(TYPES)
    if target[0] == "u":
        x = p.add(f"abs({x.name})", x.element_type, x.sizes) if x.element_type[0] != "u" else x
    p.add(f"{shape_of(target, x.sizes)} convert({x.name})", target, x.sizes)


def transposition(p: Program) -> None:
    x = p.any()
    order = p.draw.permutation(len(x.sizes))
    p.add(f"transpose({x.name}), dimensions={braces(order)}", x.element_type, [x.sizes[d] for d in order])


def reshaping(p: Program) -> None:
    x = p.any()
    sizes = factors(p.draw, math.prod(x.sizes)) if math.prod(x.sizes) else [0]
    p.add(f"{shape_of(x.element_type, sizes)} reshape({x.name})", x.element_type, sizes)


def broadcasting(p: Program) -> None:
    x = p.any()
    if math.prod(x.sizes) > 60:
        return
    at = p.draw.integer(0, len(x.sizes))
    sizes = (*x.sizes[:at], p.draw.integer(1, 3), *x.sizes[at:])
    places = braces([d + (d >= at) for d in range(len(x.sizes))])
    p.add(
        f"{shape_of(x.element_type, sizes)} broadcast({x.name}), dimensions={places}", x.element_type, sizes
    )


def slicing(p: Program) -> None:
    x = p.any()
    ranges, sizes = [], []
    for size in x.sizes:
        start, stride = p.draw.integer(0, max(size - 1, 0)), p.draw.integer(1, 2)
        ranges.append(f"[{start}:{size}:{stride}]")
        sizes.append(-((start - size) // stride))
    p.add(
        f"{shape_of(x.element_type, sizes)} slice({x.name}), slice={{{', '.join(ranges)}}}",
        x.element_type,
        sizes,
    )


def reversal(p: Program) -> None:
    x = p.any()
    p.add(
        f"reverse({x.name}), dimensions={braces(p.draw.subset(range(len(x.sizes))))}", x.element_type, x.sizes
    )


def padding(p: Program) -> None:
    x = p.any()
    if math.prod(x.sizes) > 60:
        return
    value = p.body.let(f"{x.element_type}[] constant({p.draw.integer(0, 2)})")
    configs, sizes = [], []
    for size in x.sizes:
        low, high, interior = p.draw.integer(-min(size, 1), 1), p.draw.integer(0, 1), p.draw.integer(0, 1)
        configs.append(f"{low}_{high}_{interior}")
        sizes.append(size + max(size - 1, 0) * interior + low + high)
    if x.sizes:
        p.add(f"pad({x.name}, {value}), padding={'x'.join(configs)}", x.element_type, sizes)


def joining(p: Program) -> None:
    x = p.any()
    if not x.sizes or math.prod(x.sizes) > 60:
        return
    y, axis = p.like(x), p.draw.integer(0, len(x.sizes) - 1)
    sizes = [2 * size if d == axis else size for d, size in enumerate(x.sizes)]
    p.add(f"concatenate({x.name}, {y.name}), dimensions={{{axis}}}", x.element_type, sizes)


def reducing(p: Program) -> None:
    x = p.any()
    opcode = p.draw.one(["add", "maximum", "minimum"])
    init = p.body.let(f"{x.element_type}[] constant({neutral(opcode, x.element_type)})")
    dimensions = p.draw.subset(range(len(x.sizes)))
    sizes = [size for d, size in enumerate(x.sizes) if d not in dimensions]
    function = p.body.binary(x.element_type, opcode)
    p.bounded(
        p.add(
            f"reduce({x.name}, {init}), dimensions={braces(dimensions)}, to_apply={function}",
            x.element_type,
            sizes,
        )
    )


def windows(p: Program) -> None:
    x = p.any()
    if not x.sizes:
        return
    init = p.body.let(f"{x.element_type}[] constant(0)")
    window = [p.draw.integer(1, 2) for _ in x.sizes]
    function = p.body.binary(x.element_type, p.draw.one(["add", "maximum"]))
    pads = "x".join(f"{w - 1}_0" for w in window)
    attribute = f"{{size={'x'.join(map(str, window))} pad={pads}}}"
    sizes = x.sizes
    p.bounded(
        p.add(
            f"reduce-window({x.name}, {init}), window={attribute}, to_apply={function}", x.element_type, sizes
        )
    )


def product(p: Program) -> None:
    x = p.any()
    y = p.like(x)
    if not x.sizes or math.prod(x.sizes) > 60:
        return
    axis = p.draw.integer(0, len(x.sizes) - 1)
    free = [size for d, size in enumerate(x.sizes) if d != axis]
    numbers = f"lhs_contracting_dims={{{axis}}}, rhs_contracting_dims={{{axis}}}"
    if math.prod(free) ** 2 <= 200:
        p.bounded(p.add(f"dot({x.name}, {y.name}), {numbers}", x.element_type, [*free, *free]))


def sorting(p: Program) -> None:
    x = p.any()
    if not x.sizes:
        return
    scalar = f"{x.element_type}[]"
    function = p.body.computation(
        [scalar, scalar], f"r = compare(a, b), direction={p.draw.one(['LT', 'GT'])}"
    )
    axis = p.draw.integer(0, len(x.sizes) - 1)
    p.add(
        f"sort({x.name}), dimensions={{{axis}}}, is_stable=true, to_apply={function}", x.element_type, x.sizes
    )


def dynamic_slicing(p: Program) -> None:
    x = p.any()
    index = next((v for v in reversed(p.values) if v.element_type == "s32" and not v.sizes), None)
    name = index.name if index else p.body.let(f"s32[] constant({p.draw.integer(-1, 3)})")
    window = [p.draw.integer(min(1, size), size) for size in x.sizes]
    if not x.sizes:
        return
    names = ", ".join([x.name, *[name] * len(x.sizes)])
    expression = (
        f"{shape_of(x.element_type, window)} dynamic-slice({names}), dynamic_slice_sizes={braces(window)}"
    )
    part = p.add(expression, x.element_type, window)
    if p.draw.chance(0.5):
        part = p.like(part)  # XLA may read what it has just written to a part of the same array
        if part.name.startswith("@p") or "slice" in p.body.lines[int(part.name[2:])]:
            return
        zero = p.body.let("s32[] constant(1)")
        names = ", ".join([x.name, part.name, *[zero] * len(x.sizes)])
        p.add(f"{shape_of(x.element_type, x.sizes)} dynamic-update-slice({names})", x.element_type, x.sizes)


def looping(p: Program) -> None:
    x = p.any()
    y = p.like(x)
    shape = shape_of(x.element_type, x.sizes)
    state = f"(s32[], {shape}, {shape})"
    condition = p.body.computation(
        [state],
        "i = get-tuple-element(a), index=0",
        f"n = s32[] constant({p.draw.integer(0, 3)})",
        "r = compare(i, n), direction=LT",
    )
    step = p.body.computation(
        [state],
        "i = get-tuple-element(a), index=0",
        "x = get-tuple-element(a), index=1",
        "y = get-tuple-element(a), index=2",
        "one = s32[] constant(1)",
        "j = add(i, one)",
        f"z = {p.draw.one(['add', 'maximum', 'minimum'])}(x, y)",
        "r = tuple(j, y, z)",
    )
    zero = p.body.let("s32[] constant(0)")
    start = p.body.let(f"tuple({zero}, {x.name}, {y.name})")
    loop = p.body.let(f"while({start}), condition={condition}, body={step}")
    p.bounded(p.add(f"get-tuple-element({loop}), index=2", x.element_type, x.sizes))


def gathering(p: Program) -> None:
    x = p.any()
    if not x.sizes or 0 in x.sizes:
        return
    indices = p.body.let(f"s32[{p.draw.integer(1, 4)}] iota(), iota_dimension=0")
    count = int(p.body.lines[-1].split("[")[1].split("]")[0])
    rest = range(1, len(x.sizes))
    attributes = (
        f"offset_dims={braces(rest)}, collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim=1, "
        f"slice_sizes={braces([1, *x.sizes[1:]])}"
    )
    p.add(f"gather({x.name}, {indices}), {attributes}", x.element_type, (count, *x.sizes[1:]))


def calling(p: Program) -> None:
    x = p.any()
    y = p.like(x)
    shape = shape_of(x.element_type, x.sizes)
    opcodes = [p.draw.one(["add", "subtract", "maximum", "minimum"]) for _ in range(2)]
    function = p.body.computation([shape, shape], f"m = {opcodes[0]}(a, b)", f"r = {opcodes[1]}(m, b)")
    # No fusion here: XLA's passes before its own fusion ignore its content, or their process ends.
    p.bounded(p.add(f"call({x.name}, {y.name}), to_apply={function}", x.element_type, x.sizes))


def branching(p: Program) -> None:
    x = p.any()
    y = p.like(x)
    shape = shape_of(x.element_type, x.sizes)
    branches = [p.body.computation([shape], f"r = {opcode}(a)") for opcode in ("copy", "negate")]
    flag = p.body.let(f"pred[] constant({p.draw.one(['true', 'false'])})")
    where = f"true_computation={branches[0]}, false_computation={branches[1]}"
    p.bounded(p.add(f"conditional({flag}, {x.name}, {y.name}), {where}", x.element_type, x.sizes))


def mapping(p: Program) -> None:
    x = p.any()
    scalar = f"{x.element_type}[]"
    function = p.body.computation([scalar], f"k = {scalar} constant(2)", "m = add(a, k)", "r = maximum(m, a)")
    dimensions = braces(range(len(x.sizes)))
    expression = f"map({x.name}), dimensions={dimensions}, to_apply={function}"
    p.bounded(p.add(expression, x.element_type, x.sizes))


def counting(p: Program) -> None:
    x = p.any()
    if not x.sizes:
        return
    axis = p.draw.integer(0, len(x.sizes) - 1)
    p.add(f"{shape_of(x.element_type, x.sizes)} iota(), iota_dimension={axis}", x.element_type, x.sizes)


def laying_out(p: Program) -> None:
    x = p.any()
    layout = braces(p.draw.permutation(len(x.sizes))) if x.sizes else ""
    p.add(f"{shape_of(x.element_type, x.sizes)}{layout} copy({x.name})", x.element_type, x.sizes)


def scattering(p: Program) -> None:
    x = p.any()
    if not x.sizes or 0 in x.sizes:
        return
    count = p.draw.integer(1, 3)
    indices = p.body.let(f"s32[{count}] iota(), iota_dimension=0")
    shape = shape_of(x.element_type, (count, *x.sizes[1:]))
    one = p.body.let(f"{x.element_type}[] constant({p.draw.integer(0, 3)})")
    updates = p.body.let(f"{shape} broadcast({one}), dimensions={{}}")
    function = p.body.binary(x.element_type, p.draw.one(["add", "maximum"]))
    attributes = (
        f"update_window_dims={braces(range(1, len(x.sizes)))}, inserted_window_dims={{0}}, "
        f"scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply={function}"
    )
    p.bounded(p.add(f"scatter({x.name}, {indices}, {updates}), {attributes}", x.element_type, x.sizes))


STEPS: tuple[Callable[[Program], None], ...] = (
    arithmetic, arithmetic, arithmetic, choice, conversion, transposition, reshaping, broadcasting, slicing,
    reversal, padding, joining, reducing, windows, product, sorting, dynamic_slicing, looping, gathering,
    calling, branching, mapping, counting, laying_out, scattering,
)  # fmt: skip


def whole_program(draw: Draw) -> Case:
    """Take four to fourteen steps; the last values are the results."""
    p = Program(draw)
    names: list[str] = []
    for _ in range(draw.integer(4, 14)):
        step = draw.one(STEPS)
        names.append(step.__name__)
        step(p)
    return p.body.case("program", *dict.fromkeys(v.name for v in p.values[-3:]))


FAMILIES: dict[str, Generator] = {"programs": whole_program}
