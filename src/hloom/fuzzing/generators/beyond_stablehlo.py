"""Generators of operations that StableHLO lacks: scans, ragged dots, asynchronous calls, some functions."""

from __future__ import annotations

from hloom.fuzzing.generators.case import Case, CaseBody, family
from hloom.fuzzing.generators.contraction import operand_values
from hloom.fuzzing.generators.conversion import shape_of
from hloom.fuzzing.generators.draw import INTEGERS, Draw
from hloom.fuzzing.generators.movement import braces
from hloom.fuzzing.generators.opcodes import beyond_stablehlo, operand_count, reducers

SCANNED = ("f32", "f64", "s32", "u8", "s64", "pred", "u32")
MULTIPLIED = ("f32", "f32", "f64", "bf16", "f16", "s32", "s8", "u64", "c64")
ROUNDED = {"f32": ("bf16", "f16", "f8e5m2", "f8e4m3fn"), "bf16": ("f8e5m2",), "f64": ("f32",)}
"""Types to which `stochastic-convert` rounds a type."""


@family("functions", weight=4, client=False)
def function(draw: Draw, body: CaseBody) -> Case:
    """Draw an elementwise operation on a type for which StableHLO has none, with corner values."""
    opcode, element_type = draw.one(beyond_stablehlo())
    sizes = draw.sizes()
    operands = [body.parameter(draw.any_values(element_type, sizes)) for _ in range(operand_count(opcode))]
    return body.case(f"{opcode} {element_type}", body.let(f"{opcode}({', '.join(operands)})"))


@family("scan", client=False)
def scan(draw: Draw, body: CaseBody) -> Case:
    """Draw a scan of one or two arrays with one carry, which is combined with a slice of each."""
    element_type = draw.element_type(SCANNED)
    sizes = draw.sizes(low=1, high=3)
    axis = draw.integer(0, len(sizes) - 1)
    arrays = [body.parameter(draw.small_values(element_type, sizes, 1)) for _ in range(draw.integer(1, 2))]
    carry = (*sizes[:axis], *sizes[axis + 1 :])
    initial = body.parameter(draw.small_values(element_type, carry, 1))
    slice_shape = shape_of(element_type, carry)
    parameters = "abc"[: len(arrays) + 1]
    opcodes = [draw.one(reducers(element_type)) for _ in arrays]
    steps = [
        f"n{n} = {opcode}({parameters[-1] if n == 0 else f'n{n - 1}'}, {parameters[n]})"
        for n, opcode in enumerate(opcodes)
    ]
    last = f"n{len(arrays) - 1}"
    step = body.computation([slice_shape] * len(parameters), *steps, f"r = tuple({last}, {last})")
    attributes = f"dimensions={{{axis}}}, num_carries=1"
    if draw.chance(0.5):
        attributes += ", is_reverse=true"
    if len(arrays) == 1 and draw.chance(0.5):
        attributes += ", is_associative=true"
    shape = f"({shape_of(element_type, sizes)}, {slice_shape})"
    root = body.let(f"{shape} scan({', '.join([*arrays, initial])}), {attributes}, to_apply={step}")
    return body.case(f"scan {' '.join(opcodes)} {element_type}", *body.elements(root, 2))


@family("ragged-dot", client=False)
def ragged_dot(draw: Draw, body: CaseBody) -> Case:
    """Draw a ragged dot of any kind; groups may be empty, and leave elements over or reach too far."""
    element_type = draw.element_type(MULTIPLIED)
    groups = draw.integer(1, 4)
    batch = [draw.integer(1, 3)] if draw.chance(0.4) else []
    rows, terms, columns = (draw.size(6) for _ in range(3))
    ragged = draw.one([len(batch), len(batch) + 1, *range(len(batch))])
    exact = draw.chance(0.5)
    grouped = [groups] if ragged == len(batch) else []
    lhs = body.parameter(operand_values(draw, element_type, [*batch, rows, terms], exact))
    rhs = body.parameter(operand_values(draw, element_type, [*grouped, *batch, terms, columns], exact))
    extent = [*batch, rows, terms][ragged]
    sizes = draw.numbers.integers(0, 2 + extent // groups + 1, groups)
    counts = body.parameter(sizes.astype(draw.one(["int32", "int64", "uint32"])))
    shift = len(grouped)
    attributes = [f"lhs_contracting_dims={{{len(batch) + 1}}}"]
    attributes += [f"rhs_contracting_dims={{{shift + len(batch)}}}", f"lhs_ragged_dims={{{ragged}}}"]
    if batch:
        attributes += ["lhs_batch_dims={0}", f"rhs_batch_dims={{{shift}}}"]
    if grouped:
        attributes.append("rhs_group_dims={0}")
    root = body.let(f"ragged-dot({lhs}, {rhs}, {counts}), {', '.join(attributes)}")
    return body.case(f"ragged-dot {element_type}", root)


@family("stochastic-convert", client=False)
def stochastic_convert(draw: Draw, body: CaseBody) -> Case:
    """Draw a conversion that rounds by random bits of the operand's width."""
    element_type = draw.one(tuple(ROUNDED))
    target, sizes = draw.one(ROUNDED[element_type]), draw.sizes()
    operand = body.parameter(draw.any_values(element_type, sizes))
    bits = body.parameter(draw.any_values({"f32": "u32", "bf16": "u16", "f64": "u64"}[element_type], sizes))
    root = body.let(f"{shape_of(target, sizes)} stochastic-convert({operand}, {bits})")
    return body.case(f"stochastic-convert {element_type} {target}", root)


@family("asynchronous", client=False)
def asynchronous(draw: Draw, body: CaseBody) -> Case:
    """Draw an asynchronous call of an elementwise operation, or an asynchronous copy."""
    element_type, sizes = draw.element_type(INTEGERS), draw.sizes()
    shape = shape_of(element_type, sizes)
    operand = body.parameter(draw.any_values(element_type, sizes), shape)
    if draw.chance(0.4):
        started = body.let(f"({shape}, {shape}, u32[]) copy-start({operand})")
        return body.case(f"copy-start {element_type}", body.let(f"{shape} copy-done({started})"))
    called = body.computation([shape], "m = not(a)", f"r = {draw.one(reducers(element_type))}(m, a)")
    state = f"(({shape}), {shape}, u32[])"
    started = body.let(f"{state} async-start({operand}), calls={called}")
    for _ in range(draw.integer(0, 2)):
        started = body.let(f"{state} async-update({started})")
    return body.case(f"async-start {element_type}", body.let(f"{shape} async-done({started})"))


@family("sizes", client=False)
def size(draw: Draw, body: CaseBody) -> Case:
    """Draw the size of a dimension that was cut."""
    element_type, sizes = draw.element_type(INTEGERS), draw.sizes(low=1)
    axis = draw.integer(0, len(sizes) - 1)
    operand = body.parameter(draw.any_values(element_type, sizes))
    count = body.parameter(draw.numbers.integers(0, sizes[axis] + 1, ()).astype("int32"))
    bounded = ",".join(f"<={n}" if d == axis else str(n) for d, n in enumerate(sizes))
    cut = body.let(f"{element_type}[{bounded}] set-dimension-size({operand}, {count}), dimensions={{{axis}}}")
    root = body.let(f"s32[] get-dimension-size({cut}), dimensions={braces([axis])}")
    return body.case(f"get-dimension-size {element_type}", root)
