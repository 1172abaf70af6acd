"""Generator of modules: 10 to 60 instructions of many kinds, types and sizes, in nested control flow.

They are compared with the reference evaluator only: exact values bit for bit, others within their error
bounds. Run ``python -m tests.differential.module_runs``.
"""

from __future__ import annotations

import re

import numpy as np

from hloom.fuzzing.generators.case import Case
from hloom.fuzzing.generators.draw import Array, Draw
from hloom.fuzzing.generators.opcodes import arithmetic
from hloom.fuzzing.generators.scope import FLOATS, INTEGERS, SIZES, ArrayValue, ModuleScope, ModuleText
from hloom.fuzzing.generators.steps import STEPS, updating

NAMES = (*FLOATS, *INTEGERS, "pred", "f32", "f32", "s32", "s32", "c64")
DEEPEST = 2


def draw_module(number: int, seed: int, *, fusions: bool = True) -> Case:
    """Draw module `number`, whose results are the last values that it does not use itself.

    Args:
        number: the number of the module.
        seed: the seed of all modules.
        fusions: whether it contains fusions; XLA's passes before its own fusion expect none.
    """
    draw = Draw(seed, "module", number)
    large = draw.chance(0.08)
    sizes = tuple(draw.subset(SIZES, 3)) + ((draw.one([256, 500, 1025]), 130) if large else ())
    writer = ModuleText(draw, 200_000 if large else draw.one([60, 600, 4000, 20_000]), sizes, fusions=fusions)
    order = Draw(seed, "order", number)
    writer.order = order if order.chance(0.3) else None
    entry = ModuleScope(writer)
    arguments: list[Array] = []
    shapes: list[str] = []
    for _ in range(draw.integer(2, 5)):
        kind, dimensions = draw.one(NAMES), entry.sizes(low=0 if draw.chance(0.2) else 1)
        arguments.append(entry.argument(kind, dimensions))
        value = ArrayValue(f"@p{len(shapes)}", kind, dimensions)
        shapes.append(draw.shape(kind, dimensions) if draw.chance(0.3) else value.shape)
        entry.values.append(value)
    with np.errstate(all="ignore"):
        take_steps(entry, draw.integer(5, 45))
    entry.lines = writer.ordered(entry.lines)
    used = set(re.findall(r"@\w+", " ".join(line.split(" = ", 1)[1] for line in entry.lines)))
    idle = [v for v in entry.values if v.name not in used][-12:]
    candidates = [*idle, *(entry.some() for _ in range(draw.integer(0, 2)))]
    results = tuple({v.name: v for v in candidates}.values())
    return Case(
        f"modules/{number}", "module", tuple(shapes), tuple(arguments), tuple(entry.lines),
        tuple(v.name for v in results), tuple(writer.computations),
    )  # fmt: skip


def take_steps(s: ModuleScope, count: int) -> None:
    """Add `count` operations to a computation, some of them control flow."""
    for _ in range(count):
        if s.depth < DEEPEST and s.draw.chance(0.13):
            s.draw.one([loop, loop, branch, call, fuse, hold])(s)
        else:
            s.draw.one(STEPS)(s)


# -- control flow


def inside(s: ModuleScope, values: list[ArrayValue], first: int = 0) -> tuple[ModuleScope, str]:
    """Return the scope of a new computation, whose parameter is a tuple, and the tuple's shape.

    Args:
        s: the calling computation.
        values: values of the types and dimensions of the tuple's elements.
        first: the first element that the computation may use.
    """
    scope = ModuleScope(s.writer, s.depth + 1)
    state = f"({', '.join(v.shape for v in values)})"
    parameter = scope.line(state, "parameter(0)")
    for n, v in enumerate(values):
        name = scope.line(v.shape, f"get-tuple-element({parameter}), index={n}")
        if n >= first:
            scope.values.append(ArrayValue(name, v.element_type, v.sizes))
    return scope, state


def some_exact(s: ModuleScope, most: int) -> list[ArrayValue]:
    """Return from one to `most` exact values, perhaps with repetitions."""
    exact_values = [
        v for v in (s.any(lambda v: v.exact) for _ in range(s.draw.integer(1, most))) if v is not None
    ]
    return exact_values or [s.like(ArrayValue("", "s32", (3,)))]


def returned(s: ModuleScope, wanted: list[ArrayValue]) -> str:
    """Add a tuple of exact values with the types and dimensions of `wanted`, and return its name."""
    names: list[str] = []
    for v in wanted:
        fitting = [
            u for u in s.values if (u.element_type, u.sizes, u.exact) == (v.element_type, v.sizes, True)
        ]
        if not fitting or s.draw.chance(0.2):
            names.append(s.like(v).name)
        else:
            names.append((fitting[-1] if s.draw.chance(0.6) else s.draw.one(fitting)).name)
    return s.line(f"({', '.join(v.shape for v in wanted)})", f"tuple({', '.join(names)})")


def taken(s: ModuleScope, whole: str, values: list[ArrayValue], first: int = 0) -> None:
    """Add the elements of a tuple, from element `first` on, as values."""
    for n, v in enumerate(values):
        if n >= first:
            s.add(f"get-tuple-element({whole}), index={n}", v.element_type, v.sizes)


def loop(s: ModuleScope) -> None:
    """Add a while loop over a counter.

    Its body updates arrays in place, permutes them, and may nest loops.
    """
    counter = s.draw.one(["s32", "s32", "u8", "s64", "u32"])
    index = ArrayValue(s.constant(counter, s.draw.integer(0, 2)), counter, ())
    values = [index, *some_exact(s, 4)]
    state = f"({', '.join(v.shape for v in values)})"
    ending = s.writer.shared.get(("condition", state)) or _condition(s, values, state)
    s.writer.shared["condition", state] = ending
    body, _ = inside(s, values, first=1)
    number = body.lines[1].split(" = ")[0]
    if counter == "s32":
        body.values.append(ArrayValue(number, counter, ()))
    take_steps(body, s.draw.integer(1, 8))
    if s.draw.chance(0.5):
        updating(body)
    next_number = body.line(f"{counter}[]", f"add({number}, {body.constant(counter, 1)})")
    result = returned(body, values[1:])
    outputs = body.lines.pop().split("tuple(")[1]
    root = body.line(state, f"tuple({next_number}, {outputs}")
    assert result
    step = body.finish(root)

    start = s.line(state, f"tuple({', '.join(v.name for v in values)})")
    final = s.line(state, f"while({start}), condition={ending}, body={step}")
    taken(s, final, values)


def _condition(s: ModuleScope, values: list[ArrayValue], state: str) -> str:
    """Add a loop condition, counter below a limit and perhaps a predicate of the state; return its name."""
    condition = ModuleScope(s.writer, s.depth + 1)
    parameter = condition.line(state, "parameter(0)")
    number = condition.line(f"{values[0].element_type}[]", f"get-tuple-element({parameter}), index=0")
    limit = condition.constant(values[0].element_type, s.draw.one([0, 1, 2, 3, 5, 9]))
    test = condition.line("pred[]", f"compare({number}, {limit}), direction=LT")
    flags = [n for n, v in enumerate(values) if n and v.element_type == "pred" and not v.sizes]
    if flags and s.draw.chance(0.5):
        flag = condition.line("pred[]", f"get-tuple-element({parameter}), index={flags[0]}")
        test = condition.line("pred[]", f"and({test}, {flag})")
    return condition.finish(test)


def branch(s: ModuleScope) -> None:
    """Add a conditional on a predicate or an index, with computations of tuples."""
    values = some_exact(s, 3)
    results = some_exact(s, 2)
    shape = f"({', '.join(v.shape for v in results)})"
    flag = s.any(lambda v: v.element_type == "pred" and not v.sizes)
    number = s.any(lambda v: v.element_type == "s32" and not v.sizes and v.exact)
    count = 2 if flag is not None and (number is None or s.draw.chance(0.5)) else s.draw.integer(1, 3)
    names: list[str] = []
    operands: list[str] = []
    for _ in range(count):
        operand_values = values if s.draw.chance(0.7) else some_exact(s, 2)
        scope, state = inside(s, operand_values)
        take_steps(scope, s.draw.integer(0, 4))
        names.append(scope.finish(returned(scope, results)))
        operands.append(s.line(state, f"tuple({', '.join(v.name for v in operand_values)})"))
    if flag is not None and count == 2:
        which = f"true_computation={names[0]}, false_computation={names[1]}"
        choice = flag.name
    else:
        which = f"branch_computations={{{', '.join(names)}}}"
        choice = number.name if number is not None else s.constant("s32", s.draw.integer(-1, 3))
    outcome = s.line(shape, f"conditional({choice}, {', '.join(operands)}), {which}")
    taken(s, outcome, results)


def call(s: ModuleScope) -> None:
    """Add a computation of a tuple, and one or two calls of it."""
    values, results = some_exact(s, 3), some_exact(s, 2)
    scope, state = inside(s, values)
    take_steps(scope, s.draw.integer(1, 5))
    name = scope.finish(returned(scope, results))
    shape = f"({', '.join(v.shape for v in results)})"
    for _ in range(s.draw.integer(1, 2)):
        operand_values = [s.like(v) for v in values]
        operand = s.line(state, f"tuple({', '.join(v.name for v in operand_values)})")
        taken(s, s.line(shape, f"call({operand}), to_apply={name}"), results)


def fuse(s: ModuleScope) -> None:
    """Add a fusion of three elementwise operations, or a call of the same computation."""
    x = s.any(lambda v: v.exact and v.element_type in (*FLOATS, *INTEGERS))
    if x is None:
        return
    y = s.like(x)
    lines = (f"m = {s.draw.one(arithmetic(x.element_type))}(a, b)", "n = negate(m)", "r = maximum(n, a)")
    name = s.function([x.shape, x.shape], *lines)
    how = f"kind=kLoop, calls={name}" if s.writer.fusions else f"to_apply={name}"
    opcode = "fusion" if s.writer.fusions else "call"
    s.add(f"{opcode}({x.name}, {y.name}), {how}", x.element_type, x.sizes)


def hold(s: ModuleScope) -> None:
    """Add an `opt-barrier` around nested tuples."""
    values = some_exact(s, 3)
    shape = f"({', '.join(v.shape for v in values)})"
    inner = s.line(shape, f"tuple({', '.join(v.name for v in values)})")
    outer = s.line(f"({shape}, {values[0].shape})", f"tuple({inner}, {values[0].name})")
    barrier = s.line(f"({shape}, {values[0].shape})", f"opt-barrier({outer})")
    again = s.line(shape, f"get-tuple-element({barrier}), index=0")
    taken(s, again, values)
