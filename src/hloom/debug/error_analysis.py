"""Bounds of the rounding error of every element that a program computes, for given arguments.

Forward error analysis, instruction by instruction: each element is bounded by its largest distance to the
result of any other correct computation, which may add in another order or evaluate functions with other
errors. Operations state their rules (`Operation.errors`, `Traits.roundoff`); a bound consists of

- the errors of the operands, propagated to the result;
- for a sum of n products, the sum of their magnitudes times eps of the type of accumulation times
  `growth` (n): twice, because both computations round;
- for functions `ULPS` units in the last place of the result;
- one unit in the last place where a result is rounded and the operands may differ.

Operations that round at most once have the bound 0 on exact operands: bits must be equal. Where inexact
numbers decide a comparison, the bound covers both outcomes. An infinite bound means that no bound is known;
an operation without a rule raises `NoBound`.

Magnitudes and errors are propagated by the program's own operations in f64: a copy of the module with f64 in
place of every float type (`widened`) evaluates a dot, a window or a gather of them, so that the analysis
reads no dimension numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from hloom.error_bounds.bounded import (
    MOST_STEPS,
    Bounds,
    Tree,
    bounded,
    errors,
    exact,
    leaves,
    parts_of,
    plain,
)
from hloom.error_bounds.floating import Array
from hloom.errors import NoBound
from hloom.evaluate.evaluator import Evaluator, live
from hloom.ir.cloning import clone_with_types
from hloom.ir.computation import HloComputation
from hloom.ir.device import Pending
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.traits import Roundoff
from hloom.ir.value import Value
from hloom.operations.structure import Parameter
from hloom.shape.element_type import C64, C128, F64, ElementType


def widened(module: HloModule) -> HloModule:
    """Return a copy of a module with f64 in place of every float type, and c128 in place of c64."""
    return clone_with_types(module, _wide_type)


def _wide_type(element_type: ElementType) -> ElementType:
    if element_type is C64:
        return C128
    return F64 if element_type.is_floating else element_type


class ErrorAnalysis:
    """Evaluates a module, and bounds the rounding errors that a correct implementation may have.

    Attributes:
        unlimited: the first instruction, as text, whose error bound is infinite although its operands' are
            finite; "" if there is none.
    """

    rounds_partial_sums: ClassVar[bool] = False
    """Whether partial sums may have the result's type; if not, sums of narrower floats accumulate in f32."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.evaluator = Evaluator()
        self.unlimited = ""
        self._wide: dict[tuple[str, str], HloInstruction] | None = None

    def run(self, arguments: Sequence[Value]) -> tuple[Value, Bounds]:
        """Evaluate the module on exact arguments.

        Returns its result, and a bound on the rounding error of each element, nested like the result.
        """
        values = [exact(a) for a in arguments]
        alone = self.evaluator.alone
        assert alone is not None
        with np.errstate(all="ignore"):
            result = alone.run(lambda _: self.call(self.module.entry, values))[0]
        return plain(result), errors(result)

    def call(self, computation: HloComputation, arguments: Sequence[Tree]) -> Tree:
        """Evaluate a computation on arguments with error bounds; return its root's value with bounds."""
        values: dict[HloInstruction, Tree] = dict(zip(computation.parameters, arguments, strict=True))
        for instruction in live(computation.post_order()):
            if not isinstance(instruction.operation, Parameter):
                values[instruction] = self.step(instruction, [values[o] for o in instruction.operands])
        return values[computation.root]

    def step(self, instruction: HloInstruction, operands: Sequence[Tree]) -> Tree:
        """Evaluate one instruction on operands with error bounds; return its value with bounds."""
        return instruction.operation.evaluate_bounded(ErrorStep(self, instruction, operands), *operands)

    def note_unlimited(self, instruction: HloInstruction, operands: Sequence[Tree], result: Tree) -> None:
        """Set `unlimited` to an instruction whose result has infinite error bounds, but not its operands.

        Only the first such instruction of the evaluation is kept.
        """
        before = [leaf.spread for o in operands for leaf in leaves(o) if leaf.error is not None]
        if self.unlimited or any(np.isinf(error).any() for error in before):
            return
        if any(leaf.error is not None and np.isinf(leaf.error).any() for leaf in leaves(result)):
            self.unlimited = f"{instruction.opcode} %{instruction.name}"

    def wide(self, instruction: HloInstruction) -> HloInstruction:
        """Return the counterpart of an instruction in the f64 copy of the module."""
        if self._wide is None:
            module = widened(self.module)
            self._wide = {(c.name, i.name): i for c in module.computations for i in c.instructions}
        assert instruction.parent is not None
        return self._wide[instruction.parent.name, instruction.name]


def is_exact(instruction: HloInstruction) -> bool:
    """Return whether all correct implementations of an instruction give the same bits for exact operands.

    True for values without floats, and for operations that do not round or round once, such as an addition.
    """
    leaf_shapes = (shape for _, shape in instruction.shape.leaves() if shape.is_array)
    if not any(shape.element_type.is_floating or shape.element_type.is_complex for shape in leaf_shapes):
        return True
    return instruction.operation.roundoff_of(instruction) in (Roundoff.NONE, Roundoff.ONCE)


class ErrorStep:
    """One instruction, its operands and its value, from which the operation's rule computes error bounds.

    It implements the protocol `ErrorRun`, which is the argument of `Operation.errors`.

    Args:
        analysis: the analysis of the module.
        instruction: the instruction.
        operands: the operand values with error bounds.
        value: the value of the instruction; None if the method `bounded` is to evaluate it.
    """

    def __init__(
        self,
        analysis: ErrorAnalysis,
        instruction: HloInstruction,
        operands: Sequence[Tree],
        value: Any = None,
    ) -> None:
        self.analysis = analysis
        self.instruction = instruction
        self.operands = operands
        self.value: Any = value

    @property
    def inexact(self) -> bool:
        """True if the value of any operand of the instruction may have rounding errors."""
        return any(leaf.error is not None for o in self.operands for leaf in leaves(o))

    @property
    def rounds_partial_sums(self) -> bool:
        """True if partial sums may be rounded to the result's type, such as bf16; False if kept in f32."""
        return self.analysis.rounds_partial_sums

    def bounded(self) -> Tree:
        """Evaluate the instruction; return its value with the error bounds that its operation computes.

        The value is exact if the operands are exact and the instruction has only one correct result. Raises
        NoBound if no bounds are known.
        """
        i = self.instruction
        self.value = self.analysis.evaluator.apply(i, [plain(o) for o in self.operands])
        if isinstance(self.value, Pending):
            raise NoBound(f"{i.opcode} %{i.name} is asynchronous")
        if not self.inexact and is_exact(i):
            return exact(self.value)
        result = self._with(i.operation.errors(self))
        self.analysis.note_unlimited(i, self.operands, result)
        return result

    def _with(self, found: Any) -> Tree:
        if self.instruction.shape.is_tuple:
            return tuple(bounded(v, e) for v, e in zip(parts_of(self.value), found, strict=True))
        return bounded(self.value, found)

    def call(self, index: int, *operands: Tree) -> Tree:
        """Evaluate the computation ``called_computations[index]`` of the instruction on ``operands``.

        Operands and result are values with error bounds.
        """
        return self.analysis.call(self.instruction.called_computations[index], operands)

    def map(self, index: int, *operands: Tree) -> Tree:
        """Apply ``called_computations[index]`` of the instruction, a computation of scalars, to whole arrays.

        Operands and result are values with error bounds. Raises NoBound for a computation that can be
        evaluated only on one element after the other, not on whole arrays.
        """
        i = self.instruction
        if not self.analysis.evaluator.mappable(i.called_computations[index]):
            raise NoBound(f"{i.opcode} %{i.name} is applied element by element")
        return self.call(index, *operands)

    def apply(self, operands: Sequence[Any], output: int | None = None) -> Array:
        """Evaluate the instruction in f64 on other operands, such as their errors; return the result in f64.

        A complex result is returned as its magnitudes.

        Args:
            operands: the values to use in place of the instruction's operands.
            output: the index of the element of a tuple result to return; None for a result that is an array.

        Raises NoBound if the result is a tuple and ``output`` is None.
        """
        step = self.analysis.wide(self.instruction)
        values = [
            _fitted(a, o.shape.element_type) if o.shape.is_array else a
            for a, o in zip(operands, step.operands, strict=True)
        ]
        value: Any = self.analysis.evaluator.apply(step, values)
        if step.shape.is_tuple and output is None:
            raise NoBound(f"{step.opcode} %{step.name} has several inexact results")
        array: Array = np.asarray(value if output is None else value[output])
        return np.abs(array) if array.dtype.kind == "c" else array.astype(np.float64)


def _fitted(numbers: object, element_type: ElementType) -> Array:
    """Convert an operand's values, or bounds of their errors, to the operand's element type.

    Bounds of errors are f64 numbers. For an integer type they are clipped to its range, and to a number
    beyond which an integer counts as unknown (`MOST_STEPS`). A type of less than 32 bits may be too narrow to
    say so: raises NoBound if it cannot hold a bound.
    """
    array = np.asarray(numbers)
    if element_type.is_integer and array.dtype == np.float64:
        most = min(float(element_type.limits[1]), MOST_STEPS)
        if element_type.bits < 32 and (array > most).any():
            raise NoBound(f"a {element_type.name} of which nothing is known")
        array = np.clip(array, float(element_type.limits[0]), most)
    return array.astype(element_type.numpy_dtype)
