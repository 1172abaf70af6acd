"""Bound the rounding error of every element that a program computes, for given arguments.

Forward error analysis, instruction by instruction: each array has, element by element, the largest distance
to the result of another correct computation: one that adds in another order, or evaluates a function with
another error. A bound consists of

- the propagated errors of the operands (the operation's Lipschitz constant, or its value at both ends);
- of a sum of n products the sum of their magnitudes, times eps of the type of accumulation, times
  `growth` (n): twice, because both computations round;
- for functions `ULPS` units in the last place of the result;
- one unit in the last place where a result is rounded and the operands may differ.

Operations that round once, or not at all, have the bound 0 if their operands are exact: there bits must be
equal. Where inexact numbers decide, either outcome is within the bound (`decisions`). An infinite bound says
nothing about an element; an operation without a rule is refused (`NoBound`).

Magnitudes and errors go through the program's own operations, in f64: a copy of the module in which every
float type is f64 (`widened`) evaluates a dot, a window or a gather of them. So no dimension number is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import numpy as np

from hloom.debug import decisions
from hloom.debug.bounded import (
    MOST_STEPS,
    Bounded,
    NoBound,
    bounded,
    errors,
    exact,
    finite,
    is_inexact_type,
    leaves,
    parts_of,
    plain,
)  # fmt: skip
from hloom.debug.floating import Array, eps, ulp, wide
from hloom.debug.normwise import FACTORIZATIONS
from hloom.debug.orders import near_the_extreme
from hloom.evaluate.evaluator import Evaluator, live
from hloom.ir.computation import HloComputation
from hloom.ir.device import Pending
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.operations.collectives import AllReduce, ReduceScatter
from hloom.operations.rooted_collectives import CollectiveReduce
from hloom.operations.rounding import convert
from hloom.shape.element_type import F32, ElementType

ULPS: Final = 4.0
"""Maximum distance in ulp of two results of a real function, each at most 2 ulp off."""
COMPLEX_ULPS: Final = 32.0
"""The same of a complex function, in units of the larger part."""

LINEAR: Final = frozenset({
    "all-gather", "all-to-all", "bitcast", "broadcast", "collective-broadcast", "collective-permute",
    "concatenate", "copy", "dynamic-reshape", "dynamic-slice", "dynamic-update-slice",
    "gather", "get-dimension-size", "imag", "opt-barrier", "pad", "real", "reshape", "reverse", "select",
    "set-dimension-size", "shuffle", "slice", "transpose", "complex",
})  # fmt: skip
"""Operations that change an error as they change the number."""
SUMS_OF_DEVICES: Final = frozenset(cls.opcode for cls in (AllReduce, CollectiveReduce, ReduceScatter))
SUMMED: Final = frozenset({"dot", "convolution", "ragged-dot", "scaled-dot"})
ROUNDED: Final = frozenset({
    *SUMS_OF_DEVICES,
    "abs", "add", "add-dependency", "after-all", "and", "async-done", "async-start", "async-update",
    "bitcast-convert", "ceil", "clamp", "compare", "complex", "constant", "convert", "copy-done",
    "copy-start", "count-leading-zeros", "custom-call", "divide", "domain", "floor", "imag", "iota",
    "is-finite", "map", "maximum", "minimum", "multiply", "negate", "not", "or", "partition-id",
    "popcnt", "real", "reduce", "reduce-precision", "reduce-window", "remainder", "replica-id",
    "rng-bit-generator", "rng-get-and-update-state", "round-nearest-afz", "round-nearest-even",
    "scatter", "select-and-scatter", "shift-left", "shift-right-arithmetic", "shift-right-logical",
    "sign", "sort", "sqrt", "stochastic-convert", "subtract", "topk", "xor",
})  # fmt: skip
"""Operations of exact operands whose results have one right value (reductions: by their computations)."""
MONOTONE: Final = frozenset({
    "exponential", "exponential-minus-one", "exp2", "log", "log-plus-one", "log2", "logistic", "tan", "asin",
    "acos", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "sqrt", "rsqrt", "cbrt",
})  # fmt: skip
CORNERS: Final = frozenset({"power", "atan2"})
PLACED: Final = frozenset({"scatter", "select-and-scatter"})
"""Sums of which each partial one may be stored in the result, rounded to its type."""
PASSING: Final = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "convert", "copy"})


_FULL: Final = PrintOptions(print_large_constants=True)


def growth(terms: Any) -> Any:
    """Return the error of a sum of n terms in eps of the sum of magnitudes: n, from 16 terms on 4 √n.

    Independent roundings grow with the root (Higham and Mary 2019); four times that is practically never
    reached.
    """
    count = np.maximum(np.asarray(terms, np.float64), 1.0)
    return np.minimum(count, 4 * np.sqrt(count))


def widened(module: HloModule) -> HloModule:
    """Return the module with f64 for every float type and c128 for c64."""
    text = re.sub(r"\b(?:f32|f16|bf16|f[468]e\w+)(?=\[)", "f64", module.to_text(_FULL))
    return HloModule.from_text(re.sub(r"\bc64(?=\[)", "c128", text))


class ErrorAnalysis:
    """Evaluates a module for its values and their bounds.

    Attributes:
        unlimited: the first instruction that makes an infinite bound of finite ones.
    """

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.evaluator = Evaluator()
        self.unlimited = ""
        self._wide: dict[tuple[str, str], HloInstruction] | None = None

    def run(self, arguments: Sequence[Any]) -> Any:
        """Return (the evaluator's value, its bounds)."""
        given = [exact(a) for a in arguments]
        alone = self.evaluator.alone
        assert alone is not None
        with np.errstate(all="ignore"):
            found = alone.run(lambda _: self.call(self.module.entry, given))[0]
        return plain(found), errors(found)

    def call(self, computation: HloComputation, arguments: Sequence[Any]) -> Any:
        """Return the root of a computation."""
        known: dict[HloInstruction, Any] = dict(zip(computation.parameters, arguments, strict=True))
        for instruction in live(computation.post_order()):
            if instruction.opcode != "parameter":
                known[instruction] = self.step(instruction, [known[o] for o in instruction.operands])
        return known[computation.root]

    def step(self, instruction: HloInstruction, operands: list[Any]) -> Any:
        """Evaluate one instruction."""
        opcode = instruction.opcode
        structural = STRUCTURE.get(opcode)
        if structural is not None:
            return structural(self, instruction, operands)
        value: Any = self.evaluator.apply(instruction, [plain(o) for o in operands])
        if isinstance(value, Pending):
            raise NoBound(f"{opcode} %{instruction.name} is asynchronous")
        inexact = any(leaf.error is not None for o in operands for leaf in leaves(o))
        if not inexact and self.rounds_once(instruction):
            return exact(value)
        if isinstance(value, tuple) and combines_apart(instruction):
            return self.several(instruction, operands, parts_of(value))
        if inexact and opcode == "reduce" and isinstance(value, tuple):
            return decisions.reduce(self, instruction, operands, value)
        if inexact and opcode in decisions.OF_ANY:
            return decisions.OF_ANY[opcode](self, instruction, operands, value)
        if isinstance(value, tuple) and opcode in FACTORIZATIONS:
            found = FACTORIZATIONS[opcode](instruction, operands, parts_of(value))
            return tuple([Bounded(v, e) for v, e in zip(parts_of(value), found, strict=True)])
        if getattr(instruction.operation, "custom_call_target", "") == "TopK":
            return decisions.top_k(self, instruction, operands, value)
        if isinstance(value, tuple):
            raise NoBound(f"{opcode} %{instruction.name} has several inexact results")
        if inexact and not is_inexact_type(value):
            return self.of_integers(instruction, operands, value)
        error = self.error(instruction, operands, value, inexact)
        return self.noted(instruction, operands, bounded(value, error))

    def several(self, i: HloInstruction, operands: list[Bounded], values: Sequence[Array]) -> Any:
        """Return the bounds of a reduction of several arrays, each by an operation of its own."""
        sizes, spreads = [finite(o.value) for o in operands], [o.spread for o in operands]
        found: list[Bounded] = []
        for n, value in enumerate(values):
            own = (operands[n], operands[len(values) + n])
            if not is_inexact_type(value) and any(o.error is not None for o in own):
                raise NoBound(f"{i.opcode} %{i.name} has a result of undecided {value.dtype}")
            error = self.reduction(i, operands, sizes, spreads, value, n) if is_inexact_type(value) else None
            found.append(bounded(value, error) if error is not None else Bounded(value))
        return tuple(found)

    def noted(self, instruction: HloInstruction, operands: list[Any], found: Bounded) -> Bounded:
        """Remember the first instruction whose error has no limit, though those of its operands have."""
        known = [leaf.error for o in operands for leaf in leaves(o) if leaf.error is not None]
        begins = found.error is not None and not any(np.isinf(e).any() for e in known)
        if not self.unlimited and begins and np.isinf(found.spread).any():
            self.unlimited = f"{instruction.opcode} %{instruction.name}"
        return found

    def rounds_once(self, instruction: HloInstruction) -> bool:
        """Return whether exact operands have an exact result."""
        opcode, shape = instruction.opcode, instruction.shape
        kinds = [o.shape.element_type for o in instruction.operands if o.shape.is_array]
        if opcode in LINEAR or not any(
            leaf.element_type.is_floating or leaf.element_type.is_complex
            for _, leaf in shape.leaves()
            if leaf.is_array
        ):
            return True
        if any(k.is_complex for k in kinds) and opcode in ("abs", "divide", "sign", "sqrt"):
            return False
        if opcode == "rng":
            return instruction.operation.distribution != "rng_normal"  # type: ignore[attr-defined]
        return opcode in ROUNDED and not any(adds(c) for c in instruction.called_computations)

    def of_integers(self, instruction: HloInstruction, operands: list[Any], value: Array) -> Bounded:
        """Return an integer or predicate of inexact operands, with its bound."""
        opcode = instruction.opcode
        if opcode in LINEAR:
            return bounded(value, self.through(instruction, operands))
        if opcode in ("reduce", "reduce-window"):
            return decisions.reduced_integers(self, instruction, operands, value)
        rule = decisions.OF_INTEGERS.get(opcode)
        if rule is None:
            raise NoBound(f"{opcode} %{instruction.name} of an undecided {value.dtype} has no rule")
        return self.noted(instruction, operands, rule(self, instruction, operands, value))

    # -- through the operations in f64

    def wide(self, instruction: HloInstruction) -> HloInstruction:
        """Return the instruction of the same name in f64."""
        if self._wide is None:
            module = widened(self.module)
            self._wide = {(c.name, i.name): i for c in module.computations for i in c.instructions}
        assert instruction.parent is not None
        return self._wide[instruction.parent.name, instruction.name]

    def applied(self, instruction: HloInstruction, operands: Sequence[Any], output: int = -1) -> Array:
        """Return the value of the instruction in f64; of several results that of the number ``output``."""
        step = self.wide(instruction)
        given = [
            held(a, o.shape.element_type) if o.shape.is_array else a
            for a, o in zip(operands, step.operands, strict=True)
        ]
        value: Any = self.evaluator.apply(step, given)
        found = np.asarray(value if output < 0 else value[output])
        return np.abs(found) if found.dtype.kind == "c" else found.astype(np.float64)

    def through(self, i: HloInstruction, operands: list[Bounded]) -> Array:
        """Return the errors moved as the operation moves numbers."""
        sized = i.opcode in ("dynamic-reshape", "set-dimension-size")
        return self.applied(i, [o.value if sized and n else o.spread for n, o in enumerate(operands)])

    def error(self, i: HloInstruction, operands: list[Bounded], value: Array, inexact: bool) -> Array:
        """Return the bound of a float or complex result."""
        opcode = i.opcode
        sizes = [finite(o.value) for o in operands]
        spreads = [o.spread for o in operands]
        if opcode in ("real", "imag"):
            return spreads[0]
        if opcode == "complex":
            return spreads[0] + spreads[1]
        if opcode == "abs" and operands[0].value.dtype.kind == "c":
            return spreads[0] + ULPS * ulp(finite(value) + spreads[0], value.dtype)
        if opcode in LINEAR:
            return self.through(i, operands)
        if opcode in SUMMED:
            return self.sum_of_products(i, operands, sizes, spreads, value)
        if opcode in ("reduce", "reduce-window", "scatter", "select-and-scatter"):
            return self.reduction(i, operands, sizes, spreads, value)
        if opcode in FACTORIZATIONS:
            return FACTORIZATIONS[opcode](i, operands, (value,))[0]
        if opcode == "rng":
            return ULPS * ulp(2 * sizes[0] + finite(value), value.dtype)
        grown = self.grown(i, operands, sizes, spreads, value) if inexact else np.zeros(value.shape)
        return grown + self.rounding(opcode, value, grown, inexact)

    def rounding(self, opcode: str, value: Array, grown: Array, inexact: bool) -> Array:
        """Return the bound of the rounding of an elementwise result."""
        if (
            opcode in ("negate", "abs", "maximum", "minimum", "clamp", *decisions.STEPS)
            and value.dtype.kind != "c"
        ):
            return np.zeros(value.shape)
        once = opcode in ROUNDED
        units = 1.0 if once else ULPS
        if value.dtype.kind == "c":
            units = 4.0 if opcode in ("add", "subtract", "multiply") else COMPLEX_ULPS
        elif ElementType.from_dtype(value.dtype).bits < 32:
            units = 1.0
        return (
            units * ulp(finite(value) + grown, value.dtype) * (inexact or not once or value.dtype.kind == "c")
        )

    def grown(
        self, i: HloInstruction, operands: list[Bounded], sizes: Any, spreads: Any, value: Array
    ) -> Array:
        """Return the operands' errors propagated through an elementwise operation."""
        opcode = i.opcode
        if opcode in ("add", "subtract"):
            return spreads[0] + spreads[1]
        if opcode == "multiply":
            return sizes[0] * spreads[1] + spreads[0] * sizes[1] + spreads[0] * spreads[1]
        if opcode == "divide":
            least = sizes[1] - spreads[1]
            return np.where(least > 0, (spreads[0] + finite(value) * spreads[1]) / least, np.inf)
        if opcode in ("maximum", "minimum", "clamp"):
            return np.max(np.broadcast_arrays(*spreads), axis=0)
        if (
            opcode in ("negate", "abs", "convert", "reduce-precision", "sine", "cosine")
            and value.dtype.kind != "c"
        ):
            return np.minimum(spreads[0], 2.0) if opcode in ("sine", "cosine") else spreads[0]
        if opcode in ("negate", "convert"):
            return spreads[0]
        if opcode in decisions.STEPS:
            return decisions.step(self, i, operands, value).spread
        if (opcode in MONOTONE or opcode in CORNERS) and value.dtype.kind != "c":
            return self.ends(i, operands, spreads)
        raise NoBound(f"{opcode} %{i.name} of inexact {value.dtype}")

    def ends(self, i: HloInstruction, operands: list[Bounded], spreads: Any) -> Array:
        """Return the largest change of a function at the ends of its arguments' intervals."""
        values = [wide(o.value) for o in operands]
        middle = self.applied(i, values)
        worst = np.zeros(middle.shape)
        for signs in np.ndindex(*[2] * len(operands)):
            there = self.applied(i, [v + (2 * s - 1) * e for v, e, s in zip(values, spreads, signs)])
            change = np.where(
                (there == middle) | (np.isnan(there) & np.isnan(middle)), 0, np.abs(there - middle)
            )
            worst = np.maximum(worst, np.nan_to_num(change, nan=np.inf, posinf=np.inf))
        return worst

    # -- sums

    def sum_of_products(
        self, i: HloInstruction, operands: Any, sizes: Any, spreads: Any, value: Array
    ) -> Array:
        """Bound a contraction by twice `growth` times eps of the sum of the products' magnitudes."""
        whole = [z + e if is_inexact_type(o.value) else o.value for o, z, e in zip(operands, sizes, spreads)]
        magnitude = self.applied(i, whole)
        grown = np.zeros(value.shape)
        for n, operand in enumerate(operands):
            if operand.error is not None:
                grown = grown + self.applied(i, [*whole[:n], operand.error, *whole[n + 1 :]])
        return grown + accumulated(value, magnitude, growth(self.terms(i, operands)), grown)

    def terms(self, i: HloInstruction, operands: Any) -> float:
        """Return the largest number of terms of an element of a contraction or reduction."""
        shapes = [np.shape(o.value) for o in operands if not isinstance(o, tuple)]
        if i.opcode == "convolution":
            operation: Any = i.operation
            features = int(operation.dim_labels.kernel_output_feature_dimension)
            return math.prod(shapes[1]) / max(1, shapes[1][features])
        if i.opcode in SUMMED:
            return math.prod(shapes[0][d] for d in i.operation.lhs_contracting_dims)  # type: ignore[attr-defined]
        if i.opcode == "reduce":
            return 1 + math.prod(shapes[0][d] for d in i.operation.dimensions)  # type: ignore[attr-defined]
        return 1 + math.prod(d.size for d in i.operation.window)  # type: ignore[attr-defined]

    def reduction(
        self, i: HloInstruction, operands: Any, sizes: Any, spreads: Any, value: Array, output: int = -1
    ) -> Array:
        """Return the bound of a reduction, window or scatter by sum, product, maximum or minimum.

        Of a reduction of several arrays it is that of the result ``output``.
        """
        opcode = combiner(i.called_computations[-1], output)
        floats = [is_inexact_type(o.value) for o in operands]
        elsewhere = 0.0
        if i.opcode == "select-and-scatter":
            floats[0] = False
            if operands[0].error is not None:
                elsewhere = near_the_extreme(i, operands[0], sizes[1] + spreads[1])

        def through(arrays: Any) -> Array:
            given = [a if f else o.value for a, f, o in zip(arrays, floats, operands)]
            return self.applied(i, given, output)

        if opcode in ("maximum", "minimum"):
            sign = 1 if opcode == "maximum" else -1
            return np.abs(through([sign * e for e in spreads]))
        if i.opcode == "scatter" and opcode == "multiply":
            terms: Any = 1 + np.size(operands[-1].value)
        elif i.opcode == "scatter":
            terms = 1 + through([np.zeros_like(spreads[0]), spreads[1], np.ones_like(spreads[2])])
        else:
            terms = self.terms(i, operands)
        whole = through([z + e for z, e in zip(sizes, spreads)]) + elsewhere
        if opcode == "add":
            grown = through(spreads) + elsewhere
            return grown + accumulated(value, whole, growth(terms), grown, in_place=i.opcode in PLACED)
        if opcode == "multiply":
            grown = whole - finite(value)
            return grown + accumulated(value, whole, growth(terms), grown, in_place=i.opcode in PLACED)
        raise NoBound(f"{i.opcode} %{i.name} by {opcode}")


def accumulated(value: Array, magnitude: Array, rate: Any, grown: Array, *, in_place: bool = False) -> Array:
    """Return the rounding of both sums: in f32 at least, or in the result's type if it accumulates."""
    kind = ElementType.from_dtype(value.dtype).component
    if not kind.is_floating:
        return np.zeros(value.shape)
    within = eps(value.dtype) if in_place else min(eps(value.dtype), eps(np.float32))
    parts = 2.0 if value.dtype.kind == "c" else 1.0
    summed = 2 * parts * rate * within * finite(magnitude)
    # Subnormal numbers: a product below the least of the type loses up to that much.
    least = rate * float(np.finfo(np.float64 if kind.bits == 64 else np.float32).smallest_subnormal)
    summed = summed + np.where(magnitude > 0, least, 0.0)
    # Where partial sums can overflow, another order gives an infinity, its opposite or NaN.
    holds = kind if in_place or kind.bits >= 32 else F32
    summed = np.where(magnitude + grown <= float(holds.limits[1]), summed, np.inf)
    return summed + (ulp(finite(value) + grown + summed, value.dtype) if kind.bits < 32 else 0.0)


def held(numbers: Any, kind: ElementType) -> Array:
    """Return numbers or errors in the type of an operand; an integer's error is limited to `MOST_STEPS`."""
    array = np.asarray(numbers)
    if kind.is_integer and array.dtype == np.float64:
        most = min(float(kind.limits[1]), MOST_STEPS)
        if kind.bits < 32 and (array > most).any():
            raise NoBound(f"a {kind.name} of which nothing is known")
        array = np.clip(array, float(kind.limits[0]), most)
    return array.astype(kind.numpy_dtype)


def adds(computation: HloComputation) -> bool:
    """Return whether a called computation rounds, so that the order of its applications matters."""
    return any(
        i.opcode in ("add", "subtract", "multiply", "divide", "dot", "reduce")
        and (i.shape.element_type.is_floating or i.shape.element_type.is_complex)
        for i in computation.instructions
    ) or any(adds(c) for i in computation.instructions for c in i.called_computations)


def combines_apart(i: HloInstruction) -> bool:
    """Return whether a reduction of several arrays is one reduction of each of them."""
    if i.opcode not in ("reduce", "reduce-window"):
        return False
    found = [combiner(i.called_computations[-1], n) for n in range(len(i.operands) // 2)]
    return set(found) <= {"add", "multiply", "maximum", "minimum"}


def combiner(computation: HloComputation, output: int = -1) -> str:
    """Return the only operation of a reducing computation.

    Of one with several results that of the result ``output``; "" if it combines other parameters, too.
    """
    if output >= 0:
        root, parameters = computation.root, computation.parameters
        step = root.operands[output] if root.opcode == "tuple" else root
        own = {parameters[output], parameters[len(parameters) // 2 + output]}
        return step.opcode if len(step.operands) == 2 and set(step.operands) == own else ""
    found = [i.opcode for i in computation.instructions if i.opcode not in PASSING]
    return found[0] if len(found) == 1 else f"several operations, {found}"


# -- operations that call, and those of tuples


def _call(run: ErrorAnalysis, i: HloInstruction, operands: list[Any]) -> Any:
    return run.call(i.called_computations[0], operands)


def _map(run: ErrorAnalysis, i: HloInstruction, operands: list[Any]) -> Any:
    if not run.evaluator.mappable(i.called_computations[0]):
        raise NoBound(f"map %{i.name} is applied element by element")
    computation = i.called_computations[0]
    given = [converted(o, p.shape.element_type.numpy_dtype) for o, p in zip(operands, computation.parameters)]
    found = converted(run.call(computation, given), i.shape.element_type.numpy_dtype)
    sizes = np.broadcast_shapes(*(np.shape(o.value) for o in operands))
    error = None if found.error is None else np.broadcast_to(found.error, sizes)
    return Bounded(np.broadcast_to(found.value, sizes), error)


def converted(x: Bounded, dtype: Any) -> Bounded:
    """Return an array in the type of a parameter."""
    if x.value.dtype == dtype:
        return x
    value = convert(x.value, dtype)
    return Bounded(value, None if x.error is None else x.error + ulp(finite(value) + x.error, dtype))


def _async_start(run: ErrorAnalysis, i: HloInstruction, operands: list[Any]) -> Any:
    rest = [Bounded(None) for _ in i.shape.tuple_shapes[2:]]
    return tuple(operands), _call(run, i, operands), *rest


def _while(run: ErrorAnalysis, i: HloInstruction, operands: list[Any]) -> Any:
    body, condition = i.called_computations
    state = operands[0]
    while True:
        again = run.call(condition, [state])
        if again.error is not None:
            raise NoBound(f"rounding decides how often the while %{i.name} runs")
        if not again.value:
            return state
        state = run.call(body, [state])


def _scan(run: ErrorAnalysis, i: HloInstruction, operands: list[Any]) -> Any:
    operation: Any = i.operation
    (axis,) = operation.dimensions
    count = len(operands) - operation.num_carries
    inputs, carries = operands[:count], operands[count:]
    length = np.shape(inputs[0].value)[axis]
    rows: list[tuple[Any, ...]] = []
    for number in range(length)[:: -1 if operation.is_reverse else 1]:
        found = run.call(i.called_computations[0], [*(taken(x, number, axis) for x in inputs), *carries])
        parts: tuple[Any, ...] = cast("Any", found) if isinstance(found, tuple) else (found,)
        outputs = len(parts) - len(carries)
        rows.append(parts[:outputs])
        carries = list(parts[outputs:])
    columns = zip(*(rows[::-1] if operation.is_reverse else rows), strict=True)
    results = (*(stacked(column, axis) for column in columns), *carries)
    return results if i.shape.is_tuple else results[0]


def taken(x: Bounded, number: int, axis: int) -> Bounded:
    """Return a slice."""
    return Bounded(x.value.take(number, axis), None if x.error is None else x.error.take(number, axis))


def stacked(column: Sequence[Bounded], axis: int) -> Bounded:
    """Concatenate slices."""
    error = None if all(c.error is None for c in column) else np.stack([c.spread for c in column], axis)
    return Bounded(np.stack([c.value for c in column], axis), error)


def _conditional(run: ErrorAnalysis, i: HloInstruction, operands: list[Any]) -> Any:
    which = operands[0].value
    branches = len(i.called_computations)
    number = (
        int(not which) if which.dtype == bool else int(which) if 0 <= int(which) < branches else branches - 1
    )
    found = [
        run.call(i.called_computations[n], [operands[1 + n]])
        for n in (range(branches) if operands[0].error is not None else (number,))
    ]
    taken_first = found.pop(number if len(found) > 1 else 0)
    for other in found:
        taken_first = decisions.spanned(taken_first, other)
    return taken_first


STRUCTURE: dict[str, Callable[[ErrorAnalysis, HloInstruction, list[Any]], Any]] = {
    "tuple": lambda run, i, operands: tuple(operands),
    "get-tuple-element": lambda run, i, operands: operands[0][i.operation.index],  # type: ignore[attr-defined]
    "opt-barrier": lambda run, i, operands: operands[0],
    "call": _call,
    "fusion": _call,
    "while": _while,
    "conditional": _conditional,
    "map": _map,
    "scan": _scan,
    "async-start": _async_start,
    "async-update": lambda run, i, operands: operands[0],
    "async-done": lambda run, i, operands: operands[0][1],
}
