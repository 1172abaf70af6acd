"""custom-call: a function that is not made of HLO. The page "CustomCall".

HLO does not define the function of a target: `TARGETS` maps names to implementations, which `runtime/`
registers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import ClassVar, Final, TypeAlias

import numpy as np

from hloom.error_bounds.floating import wide
from hloom.error_bounds.rules import no_bound
from hloom.errors import EvaluationError, ShapeError, VerifyError, plural
from hloom.ir.calling import (
    LayoutConstraintsCodec,
    OptionalCodec,
    OutputAlias,
    PositiveCodec,
    TypedLiteralCodec,
    output_to_operand_aliasing,
)
from hloom.ir.codec import Message, attribute, enum, flag, string
from hloom.ir.computation import HloComputation
from hloom.ir.contraction import PrecisionCodec
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, ErrorRun, Operation, ProgramShape, Role, Run, Value, operation
from hloom.ir.sharding_rule import Factor, parallel, with_halos
from hloom.ir.traits import ElementCost, Family, Roundoff
from hloom.ir.window import ConvolutionDimensionNumbers, DimLabelsCodec, Window, WindowCodec
from hloom.operations.arithmetic import Add
from hloom.operations.control_flow import check_aliasing
from hloom.operations.sorting import errors_of_leading
from hloom.operations.values import described, elements_of, fits
from hloom.regex import regex
from hloom.shape.literal import Literal, python_array
from hloom.shape.shape import Shape

Target: TypeAlias = Callable[[HloInstruction, Sequence[Value]], object]
"""The implementation of a custom call: from the instruction and its operands' values to its value."""

TARGETS: Final[dict[str, Target]] = {}
"""The registered targets, by name."""

KNOWN: Final[dict[str, Target]] = {}
"""The targets that hloom provides, as far as their modules have been loaded; see `target_of`."""

_HOMES: Final = (
    (regex(r"lapack_[sdcz]\w+_ffi"), "hloom.operations.lapack.evaluation"),
    (regex(r"TopK"), "hloom.runtime.top_k"),
    (
        regex(r"__(cu\w*|onednn)\$.*|(cu|hip)_threefry2x32\w*|Qr|Eigh|ProductOf\w+Reflectors"),
        "hloom.library_calls.evaluation",
    ),
)
"""Modules that fill `KNOWN` when they are imported, by the names of their targets."""

_IDENTITIES: Final = regex(
    r"Sharding|SPMDFullToShardShape|SPMDShardToFullShape|xla\.sdy\.\w+"
    r"|MoveToHost|MoveToDevice|annotate_device_placement|Pin|Unpin|LayoutConstraint|ShardBarrier(From|To)"
    r"|SetBound"
)
"""Targets that only annotate their operands: on one partition they return them unchanged."""

_CONSTRAINTS: Final = ("Sharding", "xla.sdy.FuncResultSharding")
"""Targets of calls that state the sharding of their operand, and nothing else."""
SHARDING_GROUP: Final = "xla.sdy.ShardingGroup"
"""The target of calls that put their operand into a group of arrays with the same sharding."""
TO_LOCAL: Final = "xla.sdy.GlobalToLocalShape"
TO_GLOBAL: Final = "xla.sdy.LocalToGlobalShape"
"""The targets of calls that enter and leave a manual region of Shardy."""
ROTATE_RIGHT: Final = "_SPMDInternalOp_RotateRight"
"""The target of calls by which XLA's partitioner rotates an array along a dimension."""
ALLOCATION: Final = "AllocateBuffer"
"""The target of calls that return an array whose elements are not defined; the evaluator's are 0."""
CONTROL_DEPENDENCY: Final = "control_dep"
"""The target of calls that order the second operand after the first one (`jax.experimental.control_deps`)."""


def target_of(name: str) -> Target | None:
    """Return the implementation of a target: the registered one, else hloom's own, else None."""
    if name in TARGETS:
        return TARGETS[name]
    for pattern, home in _HOMES:
        if pattern.fullmatch(name):
            import_module(home)
    return KNOWN.get(name)


def replaced_targets() -> list[str]:
    """Return hloom's own targets for which other functions have been registered."""
    return sorted(name for name in TARGETS if any(pattern.fullmatch(name) for pattern, _ in _HOMES))


def is_identity(instruction: HloInstruction) -> bool:
    """Return whether a custom call returns its operand or the tuple of its operands unchanged."""
    operation = instruction.operation
    if not isinstance(operation, CustomCall) or operation.custom_call_target in TARGETS:
        return False
    return not is_statement(instruction) and _IDENTITIES.fullmatch(operation.custom_call_target) is not None


def is_constraint(instruction: HloInstruction) -> bool:
    """Return whether a custom call returns its only operand, an array, whose sharding it states."""
    operation = instruction.operation
    if not isinstance(operation, CustomCall) or not is_identity(instruction):
        return False
    is_named = operation.custom_call_target in _CONSTRAINTS
    return is_named and instruction.shape.is_array and len(instruction.operands) == 1


def is_allocation(instruction: HloInstruction) -> bool:
    """Return whether a custom call returns an array whose elements are not defined."""
    operation = instruction.operation
    if not isinstance(operation, CustomCall) or operation.custom_call_target in TARGETS:
        return False
    return operation.custom_call_target == ALLOCATION and instruction.shape.is_array


def _zeros(call: HloInstruction, operands: Sequence[Value]) -> Array:
    return np.zeros(call.shape.dimensions, call.shape.element_type.numpy_dtype)


KNOWN[ALLOCATION] = _zeros


def is_statement(instruction: HloInstruction) -> bool:
    """Return whether a custom call states something about its operands and returns an empty tuple."""
    operation = instruction.operation
    if not isinstance(operation, CustomCall) or operation.custom_call_target in TARGETS:
        return False
    return operation.custom_call_target in (SHARDING_GROUP, CONTROL_DEPENDENCY)


def rotation_of(instruction: HloInstruction) -> tuple[int, int] | None:
    """Return the dimension along which a call rotates its operand, and by how much; None for other calls."""
    operation, shape = instruction.operation, instruction.shape
    if not isinstance(operation, CustomCall) or operation.custom_call_target != ROTATE_RIGHT:
        return None
    match = re.fullmatch(r"dimension=(\d+),amount=(\d+)", str(instruction.backend_config))
    if match is None or ROTATE_RIGHT in TARGETS or not shape.is_array or int(match[1]) >= shape.rank:
        return None
    return int(match[1]), int(match[2])


def is_ordering(instruction: HloInstruction) -> bool:
    """Return whether a custom call orders its second operand after its first one."""
    operation = instruction.operation
    if not isinstance(operation, CustomCall) or not is_statement(instruction):
        return False
    return operation.custom_call_target == CONTROL_DEPENDENCY


def check_order(call: HloInstruction) -> None:
    """Raise VerifyError by the rule ``computation.cycle`` if the first operand of a call needs the second."""
    if len(call.operands) != 2:
        message = f"%{call.name} orders two operands, got {len(call.operands)}"
        raise VerifyError(message, rule="custom-call.control-dependency", instruction=call.name)
    before, after = call.operands
    if before is after or before.depends_on(after):
        message = f"%{call.name} orders %{after.name} after %{before.name}, which needs %{after.name}"
        raise VerifyError(message, rule="computation.cycle", instruction=call.name)


PADDING_TYPES: Final = ("PADDING_INVALID", "PADDING_VALID", "PADDING_SAME")
SCHEDULES: Final = ("SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST")
API_VERSIONS: Final = (
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
)


@operation(
    "custom-call",
    "*operands",
    computations=[
        Role("called_computations", many=True, required=False),
        Role("to_apply", required=False),
    ],
)
class CustomCall(Operation):
    """Calls a function that was registered under the name ``custom_call_target``.

    The function gets the operands' arrays and gives the result: it must be of the stated shape, and two calls
    with the same operands should give the same. `hloom.register_custom_call` takes a Python function or the
    address of a C function ``void target(void* out, void** in)``.

    Arguments:
        operands: any values.
        custom_call_target: the name of the function.
        custom_call_has_side_effect: the call does something beside giving its result.
        literal: a constant for the function.
        window, dim_labels, feature_group_count, batch_group_count, operand_precision, padding_type: for
            functions that are convolutions.
        operand_layout_constraints: shapes of the operands with the layouts that the function wants.
        output_to_operand_aliasing: outputs that share the buffer of an operand.
        schedule: how early or late the call should run.
        api_version: the signature of the function; the backend config is passed on by some.
        called_computations: computations that the function may run.
    """

    family: ClassVar[Family] = Family.CUSTOM
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    configured: ClassVar[bool] = True
    reads_layout: ClassVar[bool] = True
    infers: ClassVar[bool] = False
    window: Window | None = attribute(OptionalCodec(WindowCodec()), default=None)
    dim_labels: ConvolutionDimensionNumbers | None = attribute(
        OptionalCodec(DimLabelsCodec()), default=None, proto="convolution_dimension_numbers"
    )
    feature_group_count: int = attribute(PositiveCodec(), default=1)
    batch_group_count: int = attribute(PositiveCodec(), default=1)
    operand_precision: tuple[str, ...] = attribute(
        PrecisionCodec(0), default=(), proto="precision_config.operand_precision"
    )
    padding_type: str = enum(PADDING_TYPES, default="PADDING_INVALID")
    custom_call_target: str = string()
    operand_layout_constraints: tuple[Shape, ...] | None = attribute(
        LayoutConstraintsCodec(), default=None, proto="operand_shapes_with_layout"
    )
    custom_call_has_side_effect: bool = flag()
    literal: Literal | None = attribute(TypedLiteralCodec(), default=None)
    output_to_operand_aliasing: tuple[OutputAlias, ...] = output_to_operand_aliasing()
    schedule: str = enum(SCHEDULES, default="SCHEDULE_NONE", proto="custom_call_schedule")
    api_version: str = enum(API_VERSIONS, default="API_VERSION_ORIGINAL", proto="custom_call_api_version")

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return the factors of targets whose meaning is known: constraints, TopK, block-scaled products."""
        if is_constraint(call):
            return parallel(call.shape, operands)
        match self.custom_call_target:
            case "TopK":
                return parallel(operands[0], operands, {operands[0].rank - 1})
            case target if target == ROTATE_RIGHT and (rotation := rotation_of(call)) is not None:
                return with_halos(call.shape, operands, {rotation[0]})
            case "__op$block_scaled_dot":
                return _factors_of_block_scaled_dot(call.shape, operands)
            case _:
                return []

    def highlights(self) -> Sequence[str]:
        return (f'"{self.custom_call_target}"',)

    def write_rest(self, message: Message, instruction: HloInstruction) -> None:
        """Write a precision for every operand."""
        if not self.operand_precision:
            message.precision_config.operand_precision.extend([0] * len(instruction.operands))

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check that layout constraints and aliases fit the operands and the result."""
        constraints = self.operand_layout_constraints
        if constraints is not None:
            if len(constraints) != len(operands):
                message = (
                    f"{plural(len(operands), 'operand')}, {plural(len(constraints), 'layout constraint')}"
                )
                raise ShapeError(message, rule="custom-call.layout-constraints")
            for number, (operand, constraint) in enumerate(zip(operands, constraints, strict=True)):
                if not operand.compatible(constraint):
                    message = f"operand {number} is {operand}, its layout constraint is {constraint}"
                    raise ShapeError(message, rule="custom-call.layout-constraints")
        check_aliasing(self.opcode, self.output_to_operand_aliasing, shape, operands)

    def role_of(self, instruction: HloInstruction) -> list[tuple[Role, list[HloComputation]]]:
        """Return the called computations as one list."""
        computations = list(instruction.called_computations)
        return [(self.roles[0], computations)] if computations else []

    def errors(self, run: ErrorRun) -> Value:
        """Bound the largest elements (TopK); of other functions nothing is known."""
        if self.custom_call_target != "TopK":
            raise no_bound(run)
        first, x = run.value[0], run.operands[0].value
        descending = not first.size or np.array_equal(wide(first[..., 0]), np.max(wide(x), -1))
        return errors_of_leading(run, descending=bool(descending))

    def evaluate(self, run: Run, *operands: Value) -> Value:
        """Call the registered function and check its result against the stated shape."""
        if is_identity(run.instruction):
            value = operands if run.shape.is_tuple and not _is_passed_on(run.instruction) else operands[0]
            return _result(self.custom_call_target, value, run.shape)
        if is_statement(run.instruction):
            if is_ordering(run.instruction):
                check_order(run.instruction)
            return _result(self.custom_call_target, (), run.shape)
        function = target_of(self.custom_call_target)
        if function is None:
            message = (
                f"custom call target {self.custom_call_target!r} is not registered; "
                "hloom.register_custom_call, under JAX jax.ffi.register_ffi_target, registers a function "
                f"(known: {_known_names()})"
            )
            raise EvaluationError(message, rule="custom-call.target-registered")
        return _result(self.custom_call_target, function(run.instruction, operands), run.shape)


def _known_names() -> str:
    """Return the names of the targets that are registered or that hloom provides."""
    for _, home in _HOMES:
        import_module(home)
    names = {re.sub(r"lapack_[sdcz](\w+)_ffi", r"lapack_?\1_ffi", name) for name in (*TARGETS, *KNOWN)}
    return ", ".join(sorted(names))


def _is_passed_on(identity: HloInstruction) -> bool:
    """Return whether an identity returns its operand itself, not the tuple of its operands."""
    operands = identity.operands
    return len(operands) == 1 and operands[0].shape.compatible(identity.shape)


def _result(target: str, value: object, shape: Shape) -> Value:
    """Convert a function's value to the stated shape; raises EvaluationError if it does not fit."""
    if shape.is_buffer:
        shape = shape.tuple_shapes[0]
    if shape.is_token:
        return None
    if shape.is_tuple:
        elements = elements_of(value)
        if elements is None or len(elements) != len(shape.tuple_shapes):
            description = type(value).__name__ if elements is None else f"{plural(len(elements), 'element')}"
            message = f"custom call target {target!r} gave {description}, not a tuple {shape}"
            raise EvaluationError(message, rule="custom-call.result")
        return tuple(_result(target, v, s) for v, s in zip(elements, shape.tuple_shapes, strict=True))
    try:
        typed = hasattr(value, "dtype")
        array: Array = np.asarray(value) if typed else python_array(value, shape.element_type)
    except Exception as error:  # whatever the conversion of a value of the caller's own type raises
        description = type(value).__name__
        message = f"custom call target {target!r} gave a {description}, not {shape}: {error}"
        raise EvaluationError(message, rule="custom-call.result") from error
    if not fits(array, shape):
        message = f"custom call target {target!r} gave {described(array)}, not {shape}"
        raise EvaluationError(message, rule="custom-call.result")
    return array


def _factors_of_block_scaled_dot(result: Shape, operands: Sequence[Shape]) -> list[Factor]:
    """Return the batch, the rows of each side, and the blocks of the contracting dimension.

    The operands are ``[b, m, k]`` and ``[b, n, k]``, with or without ``b``, and the scales of the blocks of
    each, ``[b, m, blocks]`` and ``[b, n, blocks]``; the result is ``[b, m, n]``.
    """
    rank = result.rank if result.is_array else 0
    arrays = all(one.is_array and one.rank == rank for one in operands)
    if rank not in (2, 3) or len(operands) != 4 or not arrays:
        return []
    rows, columns = rank - 2, rank - 1
    if any(one.dimensions[rows] != result.dimensions[d] for one, d in zip(operands, (rows, columns) * 2)):
        return []
    batch = [Factor(result.dimensions[0], dict.fromkeys(range(4), 0), 0)] if rank == 3 else []
    sides = [
        Factor(result.dimensions[d], {side: rows, side + 2: rows}, d) for side, d in ((0, rows), (1, columns))
    ]
    blocks = {one.dimensions[-1] for one in operands[2:]}
    if len(blocks) != 1 or result.element_type.bits < 32:
        return [*batch, *sides]
    return [*batch, *sides, Factor(blocks.pop(), dict.fromkeys(range(4), columns), None, Add())]
