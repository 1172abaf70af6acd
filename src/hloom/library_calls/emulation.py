"""Registry of emulated custom calls, and the program that emulates a call.

::

    @emulates("__vendor$scale")
    def scale(call: LibraryCall) -> Results:
        (x,) = call.operands
        return [x * call.settings("scale_config").number("factor", 1)]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Final, TypeAlias, cast

import hloom.ops as ops
from hloom.builder.builder import XlaBuilder, XlaComputation, XlaOp
from hloom.builder.embedding import embed
from hloom.errors import HloError, plural
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.custom_call import CustomCall
from hloom.records import dataclass
from hloom.settings import Settings
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape

Results: TypeAlias = Sequence[XlaOp]
"""The leading results of a call; the remaining ones are workspaces of unspecified content."""
Emulation: TypeAlias = Callable[["LibraryCall"], Results]

_EMULATIONS: Final[dict[str, tuple[Emulation, int, int]]] = {}
"""The emulation of each call target, and the minimum numbers of its operands and results."""
_RULE: Final = "custom-call.emulation"
_CUDNN: Final = ("cudnn_attention", "cudnn_convolutions", "cudnn_normalization")
_FAMILIES: Final = ("cub", "cublas", *_CUDNN, "linear_algebra", "onednn", "threefry")
"""The modules that register emulations."""


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A call to be emulated.

    Attributes:
        instruction: the custom call in its module, with layouts, window and labels.
        operands: the parameters of the program that emulates the call.
    """

    instruction: HloInstruction
    operands: tuple[XlaOp, ...]

    @property
    def operation(self) -> CustomCall:
        return cast("CustomCall", self.instruction.operation)

    @property
    def builder(self) -> XlaBuilder:
        return self.operands[0].builder

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the results, with layouts."""
        shape = self.instruction.shape
        return shape.tuple_shapes if shape.is_tuple else (shape,)

    def settings(self, section: str) -> Settings:
        """Return a section of the backend config; older XLA wrote the fields without the section."""
        settings = Settings.parse(self.instruction.backend_config or "{}", self._malformed)
        return settings.message(section) if section in settings.fields else settings

    def require(self, holds: bool, what: str) -> None:
        """Raise HloError by the rule ``custom-call.emulation``, with ``what`` is wrong, unless ``holds``."""
        if not holds:
            raise self.refusal(what)

    def _malformed(self, what: str) -> HloError:
        return self.refusal(f"its backend_config is malformed: {what}")

    def refusal(self, what: str) -> HloError:
        """Return the error for a call that is not emulated; ``what`` states why."""
        message = f"custom call target {self.operation.custom_call_target!r} is not emulated: {what}"
        return HloError(message, rule=_RULE, instruction=self.instruction.name)


def emulates(*targets: str, operands: int = 1, results: int = 1) -> Callable[[Emulation], Emulation]:
    """Register an emulation of call targets; ``operands`` and ``results`` are minimum numbers."""

    def register(emulation: Emulation) -> Emulation:
        for target in targets:
            _EMULATIONS[target] = emulation, operands, results
        return emulation

    return register


def emulations() -> Mapping[str, tuple[Emulation, int, int]]:
    """Return the emulation of each call target, with the minimum numbers of operands and results."""
    for family in _FAMILIES:
        import_module(f"hloom.library_calls.{family}")
    return _EMULATIONS


def program_of(instruction: HloInstruction) -> XlaComputation:
    """Return the program that emulates a custom call, of ordinary operations.

    Raises HloError by the rule ``custom-call.emulation`` for an unsupported or malformed configuration.
    """
    builder = XlaBuilder("library_call")
    operands = tuple(
        ops.Parameter(builder, number, operand.shape.without_layout())
        for number, operand in enumerate(instruction.operands)
    )
    call = LibraryCall(instruction, operands)
    shapes = call.shapes
    emulation, least_operands, least_results = emulations()[call.operation.custom_call_target]
    call.require(
        len(operands) >= least_operands, f"{plural(len(operands), 'operand')} of at least {least_operands}"
    )
    call.require(len(shapes) >= least_results, f"{plural(len(shapes), 'result')} of at least {least_results}")
    try:
        results = list(emulation(call))
    except HloError as error:
        if error.rule == _RULE:
            raise
        raise call.refusal(f"its configuration is malformed: {error.message}") from error
    for number, (result, shape) in enumerate(zip(results, shapes)):
        same = result.shape.dimensions == shape.dimensions
        call.require(
            same, f"result {number} is stated as {shape}, but has dimensions {result.shape.dimensions}"
        )
        results[number] = ops.ConvertElementType(result, shape.element_type)
    results += [full(builder, 0, s.element_type, s.dimensions) for s in shapes[len(results) :]]
    return builder.build(ops.Tuple(results) if instruction.shape.is_tuple else results[0])


def embedded_program(instruction: HloInstruction, module: HloModule) -> HloComputation:
    """Add the program that emulates a call to a module; return its entry. Raises as `program_of` does."""
    return embed(program_of(instruction).entry, module, {})


def full(builder: XlaBuilder, value: float, element_type: ElementType, sizes: Sequence[int]) -> XlaOp:
    """Return an array of a constant."""
    return ops.Broadcast(ops.ConstantR0(builder, value, element_type), sizes)
