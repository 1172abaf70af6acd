"""Control flow, calls, random numbers, and transfers: infeed, outfeed, send, receive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.builder.builder import Computation, XlaBuilder, XlaOp, entry_of
from hloom.builder.collectives import channel
from hloom.builder.data_movement import GetTupleElement
from hloom.builder.enumerations import Word, enumerated
from hloom.builder.operands import (
    Operand,
    Operands,
    an_op,
    as_ops,
    constant,
    op_list,
    page_function,
    shape_of,
    value_list,
)
from hloom.errors import HloError, ShapeError, plural
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.random import ALGORITHMS
from hloom.shape.element_type import PRED, S32, U32, ElementType
from hloom.shape.shape import Shape

__all__: list[str] = [
    "Call",
    "CompositeCall",
    "CustomCall",
    "CustomCallWithComputation",
    "CustomCallWithLayout",
]
__all__ += ["AddDependency", "AfterAll", "Conditional", "CreateToken"]
__all__ += ["Fusion", "OptimizationBarrier", "While"]
__all__ += ["AsyncDone", "AsyncStart", "AsyncUpdate", "CopyDone", "CopyStart"]
__all__ += ["Infeed", "InfeedWithToken", "Outfeed", "OutfeedWithToken"]
__all__ += ["Recv", "RecvDone", "RecvFromHost", "RecvWithToken"]
__all__ += ["Send", "SendDone", "SendToHost", "SendWithToken"]
__all__ += ["RngBitGenerator", "RngGetAndUpdateState", "RngNormal", "RngUniform"]

# -- calls


def _call_arguments(
    first: object, arguments: tuple[object, ...]
) -> tuple[XlaBuilder, Computation, list[XlaOp]]:
    """Return builder, computation and flattened arguments; find a missing builder in the arguments."""
    builder = first if isinstance(first, XlaBuilder) else None
    if builder is not None:
        first, *others = arguments
        arguments = tuple(others)
    flat = [v for a in arguments for v in value_list(a)]
    if not isinstance(first, HloModule | HloComputation):
        raise HloError(f"a computation is called, got {first!r}", rule="builder.computation")
    entry = entry_of(first)
    builder = builder or an_op(*flat).builder
    parameters = entry.program_shape.parameters
    if len(parameters) != len(flat):
        message = f"%{entry.name} takes {plural(len(parameters), 'argument')}, got {len(flat)}"
        raise ShapeError(message, rule="call.arguments")
    values = [
        v if isinstance(v, XlaOp) else constant(builder, v, p.element_type)
        for v, p in zip(flat, parameters, strict=True)
    ]
    return builder, first, values


@page_function(star="args", keep_builder=True)
def Call(computation: object, *args: object) -> XlaOp:
    """Call a computation with these arguments.

    `Call(computation, a, b)` or `Call(computation, [a, b])`; without arguments `Call(builder, computation)`.
    """
    builder, called, values = _call_arguments(computation, args)
    return builder.emit("call", values, computations=[called])


@page_function(star="args", keep_builder=True)
def CompositeCall(
    computation: object,
    *args: object,
    name: str,
    attributes: str | None = None,
    version: int | None = None,
    composite_attributes: str | None = None,
) -> XlaOp:
    """Call the decomposition of a named operation, which a compiler may replace."""
    builder, called, values = _call_arguments(computation, args)
    marks = {"composite.name": name}
    text = attributes if attributes is not None else composite_attributes
    marks["composite.attributes"] = text if text else "{}"
    marks["composite.version"] = str(version or 0)
    return builder.emit("call", values, computations=[called], is_composite=True, frontend_attributes=marks)


@page_function(star="args", keep_builder=True, call_target_name="target_name")
def CustomCall(
    target_name: Any,
    *args: Any,
    shape: Shape | str | None = None,
    opaque: str = "",
    has_side_effect: bool = False,
    computation: Computation | None = None,
    operand_shapes_with_layout: Sequence[Shape] | None = None,
    **attributes: Any,
) -> XlaOp:
    """Call code outside XLA, registered under `target_name`.

    `CustomCall("target", [x, y], shape)`; a leading builder, needed where there are no operands, is accepted.
    `attributes` are further fields of the custom-call operation: schedule, api_version, output aliasing ...
    """
    values = list(args)
    builder = target_name if isinstance(target_name, XlaBuilder) else None
    if builder is not None:
        target_name = values.pop(0)
    if values and isinstance(values[-1], Shape | str):
        shape = values.pop()
    if shape is None:
        raise ShapeError("a custom call needs the shape of its result", rule="custom-call.shape-stated")
    flat = [v for a in values for v in value_list(a)]
    operands = as_ops(*flat) if flat else []
    owner = builder or an_op(*operands).builder
    if operand_shapes_with_layout is not None:
        attributes["operand_layout_constraints"] = tuple(operand_shapes_with_layout)
    op = owner.emit(
        "custom-call",
        operands,
        shape=shape_of(shape),
        computations=[computation] if computation is not None else (),
        custom_call_target=target_name,
        custom_call_has_side_effect=has_side_effect or None,
        **attributes,
    )
    op.instruction.backend_config = opaque
    return op


CustomCallWithComputation = CustomCall
CustomCallWithLayout = CustomCall


@page_function(branch_index="predicate", pred="predicate")
def Conditional(predicate: Operand, *branches: Any, **named: Any) -> XlaOp:
    """Run one of several computations, chosen by a value.

    `Conditional(pred, true_operand, true_computation, false_operand, false_computation)`, or
    `Conditional(branch_index, branch_computations, branch_operands)`, where an index out of range takes the
    last branch. Keywords as in these signatures are accepted. Numbers and arrays become constants of the
    type that their computation wants.
    """
    values = [*branches, *(named[key] for key in _CONDITIONAL_KEYWORDS if key in named)]
    unknown = named.keys() - set(_CONDITIONAL_KEYWORDS)
    if unknown or len(values) not in (2, 4):
        message = (
            "Conditional takes a predicate with two operands and computations, or an index with lists of them"
        )
        raise HloError(message, rule="conditional.arguments")
    if len(values) == 4:
        operands, computations = [values[0], values[2]], [values[1], values[3]]
        element_type, role = PRED, "predicate"
    else:
        computations, operands = list(values[0]), list(values[1])
        element_type, role = S32, "branch index"
    if len(operands) != len(computations):
        message = (
            f"Conditional has {plural(len(computations), 'computation')} "
            f"and {plural(len(operands), 'operand')}"
        )
        raise HloError(message, rule="conditional.arguments")
    builder = an_op(predicate, operands).builder
    chooser = predicate if isinstance(predicate, XlaOp) else constant(builder, predicate, element_type)
    if not chooser.shape.is_scalar or chooser.shape.element_type is not element_type:
        message = f"the {role} of Conditional is {element_type}[], got {chooser.shape}"
        raise ShapeError(message, rule="conditional.branch-index")
    values = [
        o if isinstance(o, XlaOp) else constant(builder, o, _argument_type(c))
        for o, c in zip(operands, computations, strict=True)
    ]
    return builder.emit("conditional", [chooser, *values], computations=computations)


def _argument_type(computation: Computation) -> ElementType | None:
    """Return the element type of the parameter of a computation of one array."""
    program = entry_of(computation).program_shape
    parameter = program.parameters[0] if program.parameters else None
    return parameter.element_type if parameter is not None and parameter.is_array else None


_CONDITIONAL_KEYWORDS = (
    *("branch_computations", "branch_operands"),
    *("true_operand", "true_computation", "false_operand", "false_computation"),
)


@page_function()
def While(condition: Computation, body: Computation, init: XlaOp) -> XlaOp:
    """Apply `body` to the state, starting with `init`, as long as `condition` holds."""
    return init.builder.emit("while", [init], computations={"condition": condition, "body": body})


@page_function()
def OptimizationBarrier(operand: XlaOp) -> XlaOp:
    """Return the operand; no optimization moves anything across."""
    return operand.builder.emit("opt-barrier", [operand])


@page_function()
def Fusion(
    operands: Operands, fused_computation: Computation, fusion_kind: Word = "kLoop", **attributes: Any
) -> XlaOp:
    """Run a computation that is compiled as one kernel."""
    values = op_list(operands)
    builder = values[0].builder
    called = builder.embedded(fused_computation)
    return builder.emit(
        "fusion",
        values,
        shape=called.program_shape.result,
        computations=[called],
        kind=fusion_kind,
        **attributes,
    )


# -- tokens and order


@page_function(star="operands", tokens="operands")
def AfterAll(*operands: object) -> XlaOp:
    """Return a token that waits for all the tokens.

    Raises ShapeError by ``after-all.operand-tokens`` for other operands, which text may have.
    """
    flat = [v for a in operands for v in value_list(a)]
    for value in flat:
        if isinstance(value, XlaOp) and not value.shape.is_token:
            raise ShapeError(f"AfterAll takes tokens, got {value.shape}", rule="after-all.operand-tokens")
    return an_op(*flat).builder.emit("after-all", op_list(flat))


@page_function()
def CreateToken(builder: XlaBuilder) -> XlaOp:
    """Return a token that waits for nothing."""
    return builder.emit("after-all")


@page_function()
def AddDependency(operand: XlaOp, token: XlaOp) -> XlaOp:
    """Return the operand, available when the token is."""
    return operand.builder.emit("add-dependency", [operand, token])


# -- asynchronous forms


@page_function()
def AsyncStart(operands: Operands, computation: Computation, execution_thread: str = "main") -> XlaOp:
    """Start a computation; the result is a context for AsyncUpdate and AsyncDone."""
    values = op_list(operands)
    builder = values[0].builder
    called = builder.embedded(computation)
    if execution_thread != "main":
        called.execution_thread = execution_thread
    context = Shape.tuple_([Shape.tuple_([v.shape for v in values]), called.program_shape.result, Shape(U32)])
    return builder.emit(
        "async-start",
        values,
        shape=context,
        computations=[called],
        async_execution_thread=None if execution_thread == "main" else execution_thread,
    )


@page_function()
def AsyncUpdate(context: XlaOp) -> XlaOp:
    """Return the context, a step later."""
    return context.builder.emit("async-update", [context])


@page_function()
def AsyncDone(context: XlaOp) -> XlaOp:
    """Wait for an asynchronous computation and return its result."""
    return context.builder.emit("async-done", [context])


@page_function()
def CopyStart(operand: XlaOp, cross_program_prefetch_index: int | None = None) -> XlaOp:
    """Start a copy; the result is the context for CopyDone."""
    return operand.builder.emit(
        "copy-start", [operand], cross_program_prefetch_index=cross_program_prefetch_index
    )


@page_function()
def CopyDone(context: XlaOp) -> XlaOp:
    """Wait for a copy."""
    return context.builder.emit("copy-done", [context])


# -- host


@page_function()
def Infeed(builder: XlaBuilder, shape: Shape | str, config: str = "") -> XlaOp:
    """Return the next value of this shape from the host's infeed."""
    return GetTupleElement(InfeedWithToken(CreateToken(builder), shape, config), 0)


@page_function()
def InfeedWithToken(token: XlaOp, shape: Shape | str, config: str = "") -> XlaOp:
    """Return (next value of the infeed, token); the value is an array or a tuple of arrays."""
    value = shape_of(shape)
    if any(part.is_tuple for part in value.tuple_shapes):
        message = f"an infeed of nested tuples is not supported: {value}"
        raise ShapeError(message, rule="infeed.nested-tuple")
    result = Shape.tuple_([value, Shape.token()])
    return token.builder.emit("infeed", [token], shape=result, infeed_config=config or None)


@page_function()
def Outfeed(operand: XlaOp, shape_with_layout: Shape | str | None = None, outfeed_config: str = "") -> XlaOp:
    """Hand a value to the host; the result is a token."""
    return OutfeedWithToken(operand, CreateToken(operand.builder), shape_with_layout, outfeed_config)


@page_function()
def OutfeedWithToken(
    operand: XlaOp, token: XlaOp, shape_with_layout: Shape | str | None = None, outfeed_config: str = ""
) -> XlaOp:
    """Hand a value to the host after the token; the result is a token."""
    outfeed_shape = operand.shape if shape_with_layout is None else shape_of(shape_with_layout)
    if not outfeed_shape.compatible(operand.shape):
        message = f"{operand.shape} cannot be fed out as {outfeed_shape}"
        raise ShapeError(message, rule="outfeed.shape-matches")
    return operand.builder.emit(
        "outfeed",
        [operand, token],
        shape=Shape.token(),
        outfeed_shape=outfeed_shape,
        outfeed_config=outfeed_config or None,
    )


@page_function(channel_id="channel_handle", handle="channel_handle")
def Send(
    operand: XlaOp, channel_handle: object, token: XlaOp | None = None, is_host_transfer: bool = False
) -> XlaOp:
    """Start to send a value to the Recv of the same channel; the result is a context for SendDone."""
    order = token if token is not None else CreateToken(operand.builder)
    context = Shape.tuple_([operand.shape, Shape(U32), Shape.token()])
    return operand.builder.emit(
        "send",
        [operand, order],
        shape=context,
        channel_id=channel(channel_handle),
        is_host_transfer=is_host_transfer or None,
    )


@page_function()
def SendDone(context: XlaOp) -> XlaOp:
    """Wait until a Send has finished; the result is a token."""
    return context.builder.emit("send-done", [context], **_same_channel(context.instruction))


@page_function(channel_id="channel_handle", handle="channel_handle")
def SendWithToken(operand: XlaOp, token: XlaOp, channel_handle: object) -> XlaOp:
    """Send a value after the token; the result is a token."""
    return SendDone(Send(operand, channel_handle, token))


@page_function(handle="channel_handle")
def SendToHost(operand: XlaOp, token: XlaOp, shape_with_layout: Shape | str, channel_handle: object) -> XlaOp:
    """Send a value to the host after the token; the result is a token."""
    if not shape_of(shape_with_layout).compatible(operand.shape):
        message = f"{operand.shape} cannot be sent as {shape_with_layout}"
        raise ShapeError(message, rule="send.shape-matches")
    return SendDone(Send(operand, channel_handle, token, is_host_transfer=True))


@page_function(channel_id="channel_handle", handle="channel_handle")
def Recv(
    builder: XlaBuilder,
    shape: Shape | str,
    channel_handle: object,
    token: XlaOp | None = None,
    is_host_transfer: bool = False,
) -> XlaOp:
    """Get ready for the value of the Send of the same channel; the result is a context for RecvDone."""
    order = token if token is not None else CreateToken(builder)
    context = Shape.tuple_([shape_of(shape), Shape(U32), Shape.token()])
    return builder.emit(
        "recv",
        [order],
        shape=context,
        channel_id=channel(channel_handle),
        is_host_transfer=is_host_transfer or None,
    )


@page_function()
def RecvDone(context: XlaOp) -> XlaOp:
    """Wait for the value of a Recv; the result is (value, token)."""
    return context.builder.emit("recv-done", [context], **_same_channel(context.instruction))


@page_function(handle="channel_handle")
def RecvWithToken(token: XlaOp, shape: Shape | str, channel_handle: object) -> XlaOp:
    """Return (the value that the Send of the same channel sends, token)."""
    return RecvDone(Recv(token.builder, shape, channel_handle, token))


@page_function(handle="channel_handle")
def RecvFromHost(token: XlaOp, shape: Shape | str, channel_handle: object) -> XlaOp:
    """Return (a value from the host, token)."""
    return RecvDone(Recv(token.builder, shape, channel_handle, token, is_host_transfer=True))


def _same_channel(context: HloInstruction) -> dict[str, Any]:
    """Return the channel and the host flag of the operation that made a context."""
    operation: object = context.operation
    names = {attribute.field for attribute in operation.attributes}
    return {name: getattr(operation, name) for name in ("channel_id", "is_host_transfer") if name in names}


# -- random numbers


@page_function()
def RngNormal(mu: Operand, sigma: Operand, shape: Shape | str) -> XlaOp:
    """Draw from the normal distribution with mean mu and standard deviation sigma."""
    return _random(mu, sigma, shape, "rng_normal")


@page_function()
def RngUniform(a: Operand, b: Operand, shape: Shape | str) -> XlaOp:
    """Draw from the uniform distribution on [a, b)."""
    return _random(a, b, shape, "rng_uniform")


def _random(first: Operand, second: Operand, shape: Shape | str, distribution: str) -> XlaOp:
    operands = as_ops(first, second)
    return operands[0].builder.emit("rng", operands, shape=shape_of(shape), distribution=distribution)


@page_function(key="initial_state")
def RngBitGenerator(algorithm: Word, initial_state: XlaOp, shape: Shape | str) -> XlaOp:
    """Return (new state, random bits); `algorithm` is rng_default, rng_three_fry or rng_philox."""
    word = enumerated(algorithm, ALGORITHMS, "algorithm", prefix="rng")
    result = Shape.tuple_([initial_state.shape, shape_of(shape)])
    return initial_state.builder.emit("rng-bit-generator", [initial_state], shape=result, algorithm=word)


@page_function()
def RngGetAndUpdateState(builder: XlaBuilder, delta: int, shape: Shape | str) -> XlaOp:
    """Return the device's random state and advance it by `delta`."""
    return builder.emit("rng-get-and-update-state", shape=shape_of(shape), delta=delta)
