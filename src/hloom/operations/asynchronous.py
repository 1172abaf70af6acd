"""Operations in two steps: async-start, async-update and async-done; copy-start and copy-done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from hloom.error_bounds.bounded import Bounded, Tree, parts_of
from hloom.errors import ShapeError
from hloom.ir.calling import OutputAlias, output_to_operand_aliasing
from hloom.ir.codec import Message, ScalarCodec, attribute
from hloom.ir.cursor import Cursor, escape
from hloom.ir.device import arrived
from hloom.ir.operation import ErrorRun, Operation, ProgramShape, Run, Value, operation
from hloom.ir.traits import ElementCost, Family, Roundoff
from hloom.operations.control_flow import Control, check_aliasing, check_arguments
from hloom.operations.values import context, zeros
from hloom.shape.element_type import U32
from hloom.shape.shape import Shape


class _ThreadCodec(ScalarCodec):
    """The quoted name of a thread; a proto leaves ``main`` out."""

    def __init__(self) -> None:
        super().__init__(Cursor.string, lambda value: f'"{escape(value)}"')

    def write(self, message: Message, field: str, value: str) -> None:
        """Set the field, unless it is the main thread."""
        setattr(message, field, "" if value == "main" else value)

    def read(self, message: Message, field: str) -> str:
        """Return the field, or ``main``."""
        return getattr(message, field) or "main"


@operation("async-start", "*operands", computations=["calls"])
class AsyncStart(Control):
    """Begins to run a computation; ``async-done`` returns its result.

    Where the computation is one operation, text shows that operation with ``-start``, ``-update`` and
    ``-done`` appended to its opcode. The shape is a tuple of a tuple of the operands, the result, and any
    number of contexts.

    Arguments:
        operands: the arguments of the computation.
        calls: the computation.
        async_execution_thread: the thread that runs it.
        output_to_operand_aliasing: parts of the shape that alias the buffer of an operand.
    """

    calls_program: ClassVar[bool] = True
    communicates: ClassVar[bool] = True
    reads_layout: ClassVar[bool] = True
    pending_index: ClassVar[tuple[int, ...] | None] = (1,)
    infers: ClassVar[bool] = False
    async_execution_thread: str = attribute(_ThreadCodec(), default="main")
    output_to_operand_aliasing: tuple[OutputAlias, ...] = output_to_operand_aliasing()

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check the form ((operands), result, contexts ...)."""
        (calls,) = computations
        check_arguments(self.opcode, "the computation", calls, operands)
        check_form(self.opcode, shape)
        if not shape.tuple_shapes[0].compatible(Shape.tuple_(operands)):
            message = (
                f"the shape starts with {shape.tuple_shapes[0]}, the operands are {Shape.tuple_(operands)}"
            )
            raise ShapeError(message, rule="async-start.operands")
        if not shape.tuple_shapes[1].compatible(calls.result):
            message = f"the shape says {shape.tuple_shapes[1]}, the computation gives {calls.result}"
            raise ShapeError(message, rule="async-start.result")
        check_aliasing(self.opcode, self.output_to_operand_aliasing, shape, operands)

    def evaluate_bounded(self, run: ErrorRun, *operands: Tree) -> Tree:
        """Run the computation at once; contexts hold no value."""
        contexts = [Bounded(None) for _ in run.instruction.shape.tuple_shapes[2:]]
        return operands, run.call(0, *operands), *contexts

    def evaluate(self, run: Run, *operands: Value) -> Value:
        """Run the computation up to the point where it waits for other devices."""
        contexts = [zeros(s) for s in run.shape.tuple_shapes[2:]]
        return (tuple(operands), run.begin(0, *operands), *contexts)


def check_form(opcode: str, shape: Shape) -> None:
    """Refuse a shape that is not ((operands), result, contexts ...), by the rule ``OPCODE.shape-form``."""
    if not shape.is_tuple or len(shape.tuple_shapes) < 2 or not shape.tuple_shapes[0].is_tuple:
        message = f"an asynchronous operation is of shape ((operands), result, ...), not {shape}"
        raise ShapeError(message, rule=f"{opcode}.shape-form")


@operation("async-update", "start")
class AsyncUpdate(Control):
    """A point between async-start and async-done, during which the computation continues."""

    communicates: ClassVar[bool] = True
    aliases_operand: ClassVar[bool] = True
    begun_by: ClassVar[tuple[str, ...]] = ("async-start", "async-update")

    def infer(self, start: Shape) -> Shape:
        """Return the operand's shape."""
        check_form(self.opcode, start)
        return start

    def evaluate_bounded(self, run: ErrorRun, *operands: Tree) -> Tree:
        return operands[0]

    def evaluate(self, run: Run, start: Value) -> Value:
        return start


@operation("async-done", "start")
class AsyncDone(Control):
    """The result of the computation that async-start began."""

    communicates: ClassVar[bool] = True
    begun_by: ClassVar[tuple[str, ...]] = ("async-start", "async-update")
    pending_index: ClassVar[tuple[int, ...] | None] = (1,)

    def infer(self, start: Shape) -> Shape:
        """Return the second element of async-start."""
        check_form(self.opcode, start)
        return start.tuple_shapes[1]

    def evaluate_bounded(self, run: ErrorRun, *operands: Tree) -> Tree:
        return parts_of(operands[0])[1]

    def evaluate(self, run: Run, start: tuple[Any, ...]) -> Value:
        return arrived(start[1])


class _PrefetchIndexCodec(ScalarCodec):
    """The number of a cross-program prefetch, or None; a former proto field holds only a flag."""

    def __init__(self) -> None:
        super().__init__(Cursor.integer, str)

    def write(self, message: Message, field: str, value: int | None) -> None:
        """Set the field if there is a number."""
        if value is not None:
            setattr(message, field, value)

    def read(self, message: Message, field: str) -> int | None:
        """Return the number."""
        if message.HasField(field):
            return getattr(message, field)
        return 0 if message.is_cross_program_prefetch else None


@operation("copy-start", "operand")
class CopyStart(Operation):
    """Begins to copy an array, usually to another memory space; ``copy-done`` returns the copy.

    The shape is (copy, operand, u32[]).

    Arguments:
        operand: the array.
        cross_program_prefetch_index: the program before this one may already make this copy.
    """

    family: ClassVar[Family] = Family.MOVEMENT
    element_cost: ClassVar[ElementCost] = ElementCost.FREE
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    reads_layout: ClassVar[bool] = True
    cross_program_prefetch_index: int | None = attribute(_PrefetchIndexCodec(), default=None)

    def infer(self, operand: Shape) -> Shape:
        return Shape.tuple_([operand, operand, Shape(U32)])

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check the form; the context may be of another type."""
        form: Sequence[Shape] = shape.tuple_shapes if shape.is_tuple else ()
        if len(form) not in (2, 3) or not all(s.compatible(operands[0]) for s in form[:2]):
            message = f"the shape is (copy, operand, context), not {shape}"
            raise ShapeError(message, rule="copy-start.shape-form")

    def evaluate(self, run: Run, operand: Value) -> Value:
        """Return the operand itself: values are immutable, so no copy is needed."""
        return (operand, operand, context())[: len(run.shape.tuple_shapes)]


@operation("copy-done", "start")
class CopyDone(Operation):
    """The copy that ``start`` began."""

    family: ClassVar[Family] = Family.MOVEMENT
    element_cost: ClassVar[ElementCost] = ElementCost.FREE
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    begun_by: ClassVar[tuple[str, ...]] = ("copy-start",)

    def infer(self, start: Shape) -> Shape:
        """Return the first element of copy-start."""
        if not start.is_tuple or not start.tuple_shapes:
            raise ShapeError(
                f"the operand is the result of copy-start, got {start}", rule="copy-done.operand-form"
            )
        return start.tuple_shapes[0]

    def evaluate(self, run: Run, start: tuple[Value, ...]) -> Value:
        return start[0]
