"""Operations that run computations: call, while, conditional, fusion.

The pages "Call", "CompositeCall", "While" and "Conditional".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from hloom.error_bounds.bounded import Bounded, Tree
from hloom.error_bounds.rules import either, no_bound
from hloom.errors import ShapeError, plural
from hloom.ir.calling import (
    OutputAlias,
    output_to_operand_aliasing,
)
from hloom.ir.codec import enum, flag
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, ErrorRun, Operation, ProgramShape, Role, Run, Value, operation
from hloom.ir.traits import ElementCost, Family, LayoutSource, Roundoff
from hloom.shape.element_type import PRED, S32
from hloom.shape.shape import Shape


def check_arguments(opcode: str, role: str, program: ProgramShape, arguments: Sequence[Shape]) -> None:
    """Refuse arguments that do not match the parameters of a called computation.

    Raises ShapeError by the rule ``OPCODE.arguments``.
    """
    parameters = ", ".join(map(str, program.parameters))
    shapes = ", ".join(map(str, arguments))
    if len(program.parameters) != len(arguments):
        count = len(program.parameters)
        message = f"{role} takes {plural(count, 'argument')} ({parameters}), got {len(arguments)} ({shapes})"
        raise ShapeError(message, rule=f"{opcode}.arguments")
    for number, (parameter, argument) in enumerate(zip(program.parameters, arguments, strict=True)):
        if not parameter.admits(argument):
            message = f"parameter {number} of {role} is {parameter}, the argument is {argument}"
            raise ShapeError(message, rule=f"{opcode}.arguments")


class Control(Operation):
    """Common to operations that run computations on whole values."""

    __slots__ = ()
    family: ClassVar[Family] = Family.CONTROL
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.NONE


class _Calling(Control):
    """Common to operations that run a computation on their operands."""

    __slots__ = ()

    @classmethod
    def callee_of(cls, operands: Sequence[Shape], result: Shape) -> ProgramShape | None:
        return ProgramShape(tuple(operands), result)

    def evaluate_bounded(self, run: ErrorRun, *operands: Tree) -> Tree:
        return run.call(0, *operands)

    def evaluate(self, run: Run, *operands: Value) -> Value:
        return run.call(0, *operands)


@operation("call", "*operands", computations=["to_apply"])
class Call(_Calling):
    """Runs a computation on the operands; the result is the computation's.

    The computation of a composite call (``is_composite=true``) is the decomposition of a higher-level
    operation, whose name, attributes and version are the frontend attributes ``composite.name``,
    ``composite.attributes`` and ``composite.version``. It is evaluated as a plain call.

    Arguments:
        operands: the arguments, one for each parameter.
        to_apply: the computation.
    """

    layout_source: ClassVar[LayoutSource] = LayoutSource.INFERRED
    calls_program: ClassVar[bool] = True
    is_composite: bool = flag(default=False, after_computations=True)

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Return the result of the computation, whose parameters have the shapes of the operands."""
        (to_apply,) = computations
        check_arguments(self.opcode, "to_apply", to_apply, operands)
        return to_apply.result

    def verify(self, instruction: HloInstruction) -> None:
        """Check that a composite call names its composite."""
        named = "composite.name" in (instruction.frontend_attributes or {})
        if self.is_composite and not named:
            message = "a composite call needs the frontend attribute composite.name"
            raise ShapeError(message, rule="call.composite-name", instruction=instruction.name)


@operation("while", "init", computations=["body", "condition"])
class While(Control):
    """Runs ``body`` as long as ``condition`` holds: ``init``, body(init), body(body(init)) ...

    Arguments:
        init: the first value of the state, of any shape.
        condition: T -> pred[]; tried before every run of the body.
        body: T -> T.
    """

    calls_program: ClassVar[bool] = True

    def infer(self, init: Shape, *, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Return the shape T of the state."""
        body, condition = computations
        check_arguments(self.opcode, "condition", condition, [init])
        check_arguments(self.opcode, "body", body, [init])
        if not condition.result.is_scalar or condition.result.element_type is not PRED:
            message = f"condition gives pred[], not {condition.result}"
            raise ShapeError(message, rule="while.condition-result")
        (state,) = body.parameters
        if not body.result.compatible(init):
            message = f"body gives {body.result}, the state is {init}"
            raise ShapeError(message, rule="while.body-result")
        check_arguments(self.opcode, "condition", condition, [body.result])
        check_arguments(self.opcode, "body", body, [body.result])
        return body.result if body.result.admits(init) else state

    def role_of(self, instruction: HloInstruction) -> list[tuple[Role, list[HloComputation]]]:
        """Return the roles with the condition first, in the order of printing."""
        body, condition = instruction.called_computations
        return [(self.roles[1], [condition]), (self.roles[0], [body])]

    def evaluate_bounded(self, run: ErrorRun, *operands: Tree) -> Tree:
        """Bound the loop; raise NoBound if rounding decides on the number of iterations."""
        (state,) = operands
        while True:
            again = run.call(1, state)
            if again.error is not None:
                raise no_bound(run, "runs as often as rounding decides")
            if not again.value:
                return state
            state = run.call(0, state)

    def evaluate(self, run: Run, init: Value) -> Value:
        """Evaluate the loop."""
        state = init
        while run.call(1, state):
            state = run.call(0, state)
        return state


@operation(
    "conditional",
    "branch_index *branch_operands",
    computations=[
        Role("true_computation", required=False),
        Role("false_computation", required=False),
        Role("branch_computations", many=True, required=False),
    ],
)
class Conditional(Control):
    """Runs one of several computations, each of which has an operand of its own.

    With a pred[] first operand: ``true_computation`` on the second operand if it is true, otherwise
    ``false_computation`` on the third. With an s32[] first operand: the branch of that number on its operand;
    a number out of range chooses the last branch.

    Arguments:
        branch_index: pred[] or s32[].
        branch_operands: one for each branch, in the order of the branches.
        true_computation, false_computation: the branches of a pred[].
        branch_computations: the branches of an s32[]. All branches give the same shape.
    """

    layout_source: ClassVar[LayoutSource] = LayoutSource.INFERRED
    calls_program: ClassVar[bool] = True

    def infer(
        self, branch_index: Shape, *branch_operands: Shape, computations: tuple[ProgramShape, ...] = ()
    ) -> Shape:
        """Return the common result shape of the branches."""
        if not branch_index.is_scalar or branch_index.element_type not in (PRED, S32):
            message = f"the first operand is pred[] or s32[], not {branch_index}"
            raise ShapeError(message, rule="conditional.branch-index")
        by_truth = branch_index.element_type is PRED
        if not computations or (by_truth and len(computations) != 2):
            message = f"{'two branches' if by_truth else 'a branch'} wanted, got {len(computations)}"
            raise ShapeError(message, rule="conditional.branch-count")
        if len(branch_operands) != len(computations):
            message = (
                f"{plural(len(computations), 'branch', 'branches')}, but "
                f"{plural(len(branch_operands), 'operand')}"
            )
            raise ShapeError(message, rule="conditional.operand-count")
        for number, (branch, operand) in enumerate(zip(computations, branch_operands, strict=True)):
            check_arguments(self.opcode, f"branch {number}", branch, [operand])
            if not branch.result.compatible(computations[0].result):
                message = f"branch {number} gives {branch.result}, branch 0 {computations[0].result}"
                raise ShapeError(message, rule="conditional.branch-results")
        results = [branch.result for branch in computations]
        for result in results:
            if all(map(result.admits, results)):
                return result
        message = f"no branch has all dynamic sizes of the others: {', '.join(map(str, results))}"
        raise ShapeError(message, rule="conditional.dynamic-results")

    def role_of(self, instruction: HloInstruction) -> list[tuple[Role, list[HloComputation]]]:
        """Return two named branches for pred, otherwise a list."""
        branches = list(instruction.called_computations)
        if instruction.operands and instruction.operands[0].shape.element_type is PRED:
            return [(role, [branch]) for role, branch in zip(self.roles, branches, strict=False)]
        return [(self.roles[2], branches)]

    def evaluate(self, run: Run, branch_index: Array, *branch_operands: Value) -> Value:
        """Evaluate the chosen branch on its operand."""
        number = branch_number(branch_index, len(branch_operands))
        return run.call(number, branch_operands[number])

    def evaluate_bounded(self, run: ErrorRun, *operands: Tree) -> Tree:
        """Bound the chosen branch; if the index is undecided, include the results of all others."""
        index, *arguments = operands
        assert isinstance(index, Bounded)
        number = branch_number(index.value, len(arguments))
        result = run.call(number, arguments[number])
        for other, argument in enumerate(arguments):
            if index.error is not None and other != number:
                result = either(result, run.call(other, argument))
        return result


def branch_number(index: Array, count: int) -> int:
    """Return the branch that a pred (true is branch 0) or an integer selects, out of range the last one."""
    if index.dtype == bool:
        return 0 if index else 1
    return int(index) if 0 <= index < count else count - 1


@operation("fusion", "*operands", computations=["calls"])
class Fusion(_Calling):
    """Runs a computation that is compiled as one kernel; it is evaluated as a call.

    Arguments:
        kind: kLoop (one loop over the output), kInput (rooted in a reduction), kOutput (rooted in the
            users of a dot or convolution), kCustom (defined by the backend).
        output_to_operand_aliasing: outputs that share the buffer of an operand.
        calls: the computation.
    """

    infers: ClassVar[bool] = False
    kind: str = enum(("kLoop", "kInput", "kOutput", "kCustom"), proto="fusion_kind", stored_as_text=True)
    output_to_operand_aliasing: tuple[OutputAlias, ...] = output_to_operand_aliasing()

    def highlights(self) -> Sequence[str]:
        return (self.kind,)

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check that the computation takes the operands and gives the stated shape."""
        (calls,) = computations
        check_arguments(self.opcode, "the fused computation", calls, operands)
        if not shape.admits(calls.result):
            message = f"the fused computation gives {calls.result}, the fusion {shape}"
            raise ShapeError(message, rule="fusion.result")
        check_aliasing(self.opcode, self.output_to_operand_aliasing, shape, operands)


def check_aliasing(
    opcode: str, aliasing: tuple[OutputAlias, ...], shape: Shape, operands: Sequence[Shape]
) -> None:
    """Refuse aliases of missing leaves, of different shapes, or of one output twice.

    Raises ShapeError by the rule ``OPCODE.aliasing``.
    """
    seen: set[tuple[int, ...]] = set()
    for output, number, index in aliasing:
        if not 0 <= number < len(operands):
            message = f"output {list(output)} shares operand {number} of {len(operands)}"
            raise ShapeError(message, rule=f"{opcode}.aliasing")
        if output in seen:
            raise ShapeError(f"output {list(output)} shares two operands", rule=f"{opcode}.aliasing")
        seen.add(output)
        ours, theirs = shape.subshape(output), operands[number].subshape(index)
        if not ours.compatible(theirs) and not (ours.is_buffer or theirs.is_buffer):
            message = f"output {list(output)} is {ours}, operand {number} at {list(index)} is {theirs}"
            raise ShapeError(message, rule=f"{opcode}.aliasing")
