"""`hloom stats`: what a program consists of, how much it computes and how many bytes its values have."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.window import ConvolutionDimensionNumbers
from hloom.shape.shape import Shape

_FREE: Final = frozenset(
    (
        "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "bitcast-convert", "reshape",
        "broadcast", "iota", "copy", "transpose", "reverse", "slice", "pad", "concatenate",
        "dynamic-slice", "dynamic-update-slice", "gather", "after-all", "add-dependency", "opt-barrier",
        "domain", "select", "convert",
    )
)  # fmt: skip
"""Operations that move values and compute nothing."""
_TRANSCENDENTAL: Final = frozenset(
    (
        "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "sine", "cosine",
        "tan", "tanh", "sinh", "cosh", "asin", "acos", "asinh", "acosh", "atanh", "erf", "power",
        "atan2", "sqrt", "rsqrt", "cbrt",
    )
)  # fmt: skip


@dataclass
class Work:
    """Estimated operations on numbers: a multiplication and an addition are two.

    Attributes:
        flops: additions, multiplications, comparisons and the like.
        transcendentals: evaluations of exp, log, sin and their kin.
        unknown_loops: while loops, whose body is counted once because the number of turns is not known.
    """

    flops: float = 0
    transcendentals: float = 0
    unknown_loops: int = 0

    def add(self, other: Work, times: float = 1) -> None:
        """Count other work so many times."""
        self.flops += other.flops * times
        self.transcendentals += other.transcendentals * times
        self.unknown_loops += other.unknown_loops


@dataclass
class ModuleStatistics:
    """What a module consists of; bytes include the padding of layouts."""

    name: str
    instructions: int
    computations: int
    opcodes: Counter[str]
    work: Work
    work_by_opcode: dict[str, Work]
    parameters: list[tuple[str, Shape, int]]
    result: Shape
    result_bytes: int
    constant_bytes: int
    largest: list[tuple[str, Shape, int]] = field(default_factory=list[tuple[str, Shape, int]])


def statistics_of(module: HloModule) -> ModuleStatistics:
    """Count what is in a module."""
    by_opcode: dict[str, Work] = {}
    total = _computation_work(module.entry, by_opcode, {})
    instructions = list(module.instructions())
    parameters = [(p.name, p.shape, byte_size(p.shape)) for p in module.entry.parameters]
    entry = [i for i in module.entry.instructions if i.shape.is_array and i.opcode != "parameter"]
    entry.sort(key=lambda i: -byte_size(i.shape))
    return ModuleStatistics(
        name=module.name,
        instructions=len(instructions),
        computations=len(module.computations),
        opcodes=Counter(i.opcode for i in instructions),
        work=total,
        work_by_opcode=by_opcode,
        parameters=parameters,
        result=module.entry.root.shape,
        result_bytes=byte_size(module.entry.root.shape),
        constant_bytes=sum(byte_size(i.shape) for i in instructions if i.opcode == "constant"),
        largest=[(i.name, i.shape, byte_size(i.shape)) for i in entry[:5]],
    )


def byte_size(shape: Shape) -> int:
    """Bytes of a value, 0 where its size is not bounded."""
    return 0 if shape.is_unbounded else shape.byte_size


def _elements(shape: Shape) -> int:
    return 0 if shape.is_unbounded else shape.element_count


def _computation_work(
    computation: HloComputation, by_opcode: dict[str, Work] | None, known: dict[HloComputation, Work]
) -> Work:
    if computation in known and by_opcode is None:
        return known[computation]
    total = Work()
    for instruction in computation.instructions:
        work = _instruction_work(instruction, by_opcode, known)
        total.add(work)
        if by_opcode is not None and instruction.opcode not in ("call", "fusion", "while", "conditional"):
            by_opcode.setdefault(instruction.opcode, Work()).add(work)
    known[computation] = total
    return total


def _instruction_work(
    instruction: HloInstruction, by_opcode: dict[str, Work] | None, known: dict[HloComputation, Work]
) -> Work:
    opcode, called = instruction.opcode, instruction.called_computations
    if opcode in ("call", "fusion", "async-start"):
        return _computation_work(called[0], by_opcode, known)
    if opcode == "while":
        work = Work(unknown_loops=1)
        for computation in called:
            work.add(_computation_work(computation, by_opcode, known))
        return work
    if opcode == "conditional":
        branches = [_computation_work(c, by_opcode, known) for c in called]
        return max(branches, key=lambda w: w.flops, default=Work())
    elements = _elements(instruction.shape)
    if called:
        work = Work()
        work.add(_computation_work(called[0], None, known), _applications(instruction))
        return work
    if opcode in _TRANSCENDENTAL:
        return Work(transcendentals=elements)
    if opcode in ("dot", "convolution", "ragged-dot", "scaled-dot"):
        return Work(flops=2 * elements * _contracted(instruction))
    if opcode in ("cholesky", "triangular-solve"):
        size = instruction.operands[0].shape.dimensions[-1]
        return Work(flops=elements * size / (3 if opcode == "cholesky" else 1))
    if opcode == "fft":
        return Work(flops=5 * elements * max(1.0, math.log2(max(2, elements))))
    return Work(flops=elements if instruction.operation.elementwise and opcode not in _FREE else 0)


def _applications(instruction: HloInstruction) -> float:
    """How often an instruction applies its scalar computation."""
    operand = instruction.operands[0].shape
    sizes, result = _elements(operand), instruction.shape
    leaf = result.tuple_shapes[0] if result.is_tuple and result.tuple_shapes else result
    if instruction.opcode == "reduce":
        return max(0, sizes - _elements(leaf))
    window: Any = getattr(instruction.operation, "window", ())
    extent = math.prod(d.size for d in window or ())
    if instruction.opcode == "reduce-window":
        return _elements(leaf) * extent
    if instruction.opcode == "select-and-scatter":
        return _elements(instruction.operands[1].shape) * extent
    if instruction.opcode == "sort":
        return sizes * math.log2(max(2, sizes))
    if instruction.opcode == "scatter":
        return _elements(instruction.operands[-1].shape)
    return max(_elements(leaf), 0)


def _contracted(instruction: HloInstruction) -> int:
    """How many products are summed for one element of a dot or a convolution."""
    operation: Any = instruction.operation
    right = instruction.operands[1].shape
    if instruction.opcode == "convolution":
        labels: ConvolutionDimensionNumbers = operation.dim_labels
        window = math.prod(right.dimensions[d] for d in labels.kernel_spatial_dimensions)
        return window * right.dimensions[labels.kernel_input_feature_dimension]
    left = instruction.operands[0].shape
    contracting: tuple[int, ...] = operation.lhs_contracting_dims
    return math.prod(left.dimensions[d] for d in contracting)


def quantity(number: float, unit: str = "") -> str:
    """A number in its largest thousand: 12.3 M."""
    for factor, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= factor:
            return f"{number / factor:.3g} {letter}{unit}"
    return f"{number:.3g} {unit}".rstrip()


def statistics_text(found: ModuleStatistics, style: Any) -> str:
    """The report; `style(text, role)` colours titles and dim words."""
    lines = [
        style(found.name, "title"),
        f"  {found.instructions} instructions in {found.computations} computations",
        "  " + _work_words(found.work),
        f"  parameters {quantity(sum(size for _, _, size in found.parameters), 'B')}, "
        f"result {quantity(found.result_bytes, 'B')}, constants {quantity(found.constant_bytes, 'B')}",
        "",
        style("Operations", "title"),
        *_opcode_lines(found, style),
        "",
        style("Parameters", "title"),
        *_size_lines(found.parameters[:12]),
        *([f"  ... and {len(found.parameters) - 12} more"] if len(found.parameters) > 12 else []),
        "",
        style("Largest values of the entry", "title"),
        *_size_lines(found.largest),
    ]
    return "\n".join(lines) + "\n"


def _work_words(work: Work) -> str:
    words = f"{quantity(work.flops, 'flop')}, {quantity(work.transcendentals)} transcendental functions"
    return words + (f"; {work.unknown_loops} loops counted as one turn" if work.unknown_loops else "")


def _opcode_lines(found: ModuleStatistics, style: Any) -> list[str]:
    rows: list[str] = []
    most = max(found.opcodes.values(), default=1)
    for opcode, count in found.opcodes.most_common():
        work = found.work_by_opcode.get(opcode, Work())
        amount = quantity(work.flops, "flop") if work.flops else ""
        if work.transcendentals:
            amount = f"{amount}  {quantity(work.transcendentals)} transcendental".strip()
        bar = "▇" * max(1, round(20 * count / most))
        rows.append(f"  {opcode:26} {count:6}  {style(bar.ljust(20), 'dim')}  {amount}".rstrip())
    return rows


def _size_lines(values: list[tuple[str, Shape, int]]) -> list[str]:
    width = max((len(name) for name, _, _ in values), default=0)
    return [f"  {name.ljust(width)}  {quantity(size, 'B'):>9}  {shape}" for name, shape, size in values]
