"""Transfers to and from other programs and the host: send, recv, infeed, outfeed.

The pages "Send", "Recv", "Infeed" and "Outfeed". Tokens order them: a token operand comes from the
operation that must run before.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from hloom.errors import EvaluationError, ShapeError
from hloom.ir.calling import optional_shape
from hloom.ir.codec import Message, ScalarCodec, attribute, flag
from hloom.ir.cursor import Cursor, escape
from hloom.ir.device import Pending, arrived
from hloom.ir.device_groups import channel_id, device_of, group_mode
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation, ProgramShape, Run, Value, operation
from hloom.ir.traits import ElementCost, Family, Roundoff
from hloom.operations.collectives import waiting
from hloom.operations.values import context, described, fits, zeros
from hloom.records import dataclass
from hloom.regex import regex
from hloom.shape.element_type import U32
from hloom.shape.shape import Shape

PAIRS: Final = "_xla_send_recv_source_target_pairs"
"""The frontend attribute with the (source, target) pairs of a program that all devices run."""
_PAIR: Final = regex(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")


def pairs_of(instruction: HloInstruction) -> list[tuple[int, int]] | None:
    """Return the source and target numbers that an instruction's frontend attributes give, or None."""
    text = (instruction.frontend_attributes or {}).get(PAIRS)
    return None if text is None else [(int(a), int(b)) for a, b in _PAIR.findall(text)]


def _require_token(opcode: str, shape: Shape) -> None:
    if not shape.is_token:
        raise ShapeError(f"the token operand is a token, got {shape}", rule=f"{opcode}.token")


class _Transfer(Operation):
    """Common to all transfers."""

    __slots__ = ()
    family: ClassVar[Family] = Family.TRANSFER
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.UNKNOWN
    communicates: ClassVar[bool] = True
    side_effect: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Channel(_Transfer):
    """Common to send, recv and their done operations."""

    configured: ClassVar[bool] = True
    channel_id: int | None = channel_id()
    is_host_transfer: bool = flag()

    def matches(self, instruction: HloInstruction, start: str) -> None:
        """Check that a done operation has the channel of its start operation, if that is its operand."""
        operand = instruction.operands[0]
        if operand.opcode != start:
            return
        theirs: Any = operand.operation
        if (theirs.channel_id, theirs.is_host_transfer) != (self.channel_id, self.is_host_transfer):
            message = f"{self.opcode} and its {start} have different channels"
            raise ShapeError(message, rule=f"{self.opcode}.channel", instruction=instruction.name)


@operation("send", "operand token")
class Send(_Channel):
    """Sends ``operand`` to the recv of the same channel, in another program or on another device.

    The frontend attribute ``_xla_send_recv_source_target_pairs={{0,1},{1,2}}`` lists the (source,
    target) pairs of a program that several devices run: replicas or, with a channel, partitions. Without it a
    channel has one sender and one receiver. ``send-done`` ends the transfer.

    Arguments:
        operand: the value to send.
        token: from the operation that must run before.
        channel_id: names the channel.
        is_host_transfer: the receiver is the host.
    """

    reads_layout: ClassVar[bool] = True
    ended_by: ClassVar[str] = "send-done"

    def infer(self, operand: Shape, token: Shape) -> Shape:
        """Return (operand, u32[], token[])."""
        _require_token(self.opcode, token)
        return Shape.tuple_([operand, Shape(U32), Shape.token()])

    def evaluate(self, run: Run, operand: Value, token: Value) -> Value:
        """Put the value into the channel, which never blocks."""
        device, what = run.device, waiting(run)
        sent = (operand, context(), None)
        if self.is_host_transfer:
            device.send_to_host(self.channel_id or 0, operand, what)
            return sent
        pairs = pairs_of(run.instruction)
        if pairs is None:
            device.send(("send", self.channel_id), operand, what)
            return sent
        mode = group_mode(self.channel_id, None)
        for source, target in pairs:
            ends = [device_of(n, mode, device.id, device.num_partitions) for n in (source, target)]
            if ends[0] == device.id:
                device.send(("send", self.channel_id, *ends), operand, what)
        return sent


@operation("send-done", "send")
class SendDone(_Channel):
    """Ends the transfer that ``send`` began; returns a token.

    Arguments:
        send: the send.
        channel_id, is_host_transfer: those of the send.
    """

    def infer(self, send: Shape) -> Shape:
        """Return a token."""
        if not send.is_tuple or len(send.tuple_shapes) != 3 or not send.tuple_shapes[2].is_token:
            raise ShapeError(f"the operand is the result of send, got {send}", rule="send-done.operand-form")
        return Shape.token()

    def verify(self, instruction: HloInstruction) -> None:
        self.matches(instruction, "send")

    def evaluate(self, run: Run, send: Value) -> Value:
        """Return a token: the channel has taken the value over."""
        return None


@operation("recv", "token")
class Recv(_Channel):
    """Begins to receive from the send of the same channel; ``recv-done`` gives the value.

    Arguments:
        token: from the operation that must run before.
        channel_id, is_host_transfer: as in send; the sender is the host.
    """

    reads_layout: ClassVar[bool] = True
    pending_index: ClassVar[tuple[int, ...] | None] = (0,)
    infers: ClassVar[bool] = False
    ended_by: ClassVar[str] = "recv-done"

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check for (value, u32[], token[])."""
        _require_token(self.opcode, operands[0])
        if not shape.is_tuple or not shape.compatible(
            Shape.tuple_([*shape.tuple_shapes[:1], Shape(U32), Shape.token()])
        ):
            raise ShapeError(f"the shape is (value, u32[], token[]), not {shape}", rule="recv.shape-form")

    def evaluate(self, run: Run, token: Value) -> Value:
        """Reserve the next value of the channel; a device that is no pair's target gets zeros."""
        device, what = run.device, waiting(run)
        coming: Any = None
        pairs = pairs_of(run.instruction)
        if self.is_host_transfer:
            coming = device.receive_from_host(self.channel_id or 0, what)
        elif pairs is None:
            coming = device.receive(("send", self.channel_id), what)
        else:
            mode = group_mode(self.channel_id, None)
            for source, target in pairs:
                ends = [device_of(n, mode, device.id, device.num_partitions) for n in (source, target)]
                if ends[1] == device.id:
                    coming = device.receive(("send", self.channel_id, *ends), what)
        shape = run.shape.tuple_shapes[0]
        if coming is None:
            return zeros(shape), context(), None
        checked: Any = Pending(lambda: _as_wanted(run, coming.wait(), shape))
        return checked, context(), None


@operation("recv-done", "recv")
class RecvDone(_Channel):
    """The value that ``recv`` began to receive, with a token.

    Arguments:
        recv: the recv.
        channel_id, is_host_transfer: those of the recv.
    """

    pending_index: ClassVar[tuple[int, ...] | None] = (0,)

    def infer(self, recv: Shape) -> Shape:
        """Return (value, token[])."""
        if not recv.is_tuple or len(recv.tuple_shapes) != 3 or not recv.tuple_shapes[2].is_token:
            raise ShapeError(f"the operand is the result of recv, got {recv}", rule="recv-done.operand-form")
        return Shape.tuple_([recv.tuple_shapes[0], Shape.token()])

    def verify(self, instruction: HloInstruction) -> None:
        self.matches(instruction, "recv")

    def evaluate(self, run: Run, recv: tuple[Any, ...]) -> Value:
        return arrived(recv[0]), None


def _as_wanted(run: Run, value: Any, shape: Shape) -> Value:
    if not fits(value, shape):
        message = f"{run.instruction.opcode} wants {shape}, what came is {described(value)}"
        raise EvaluationError(
            message, rule=f"{run.instruction.opcode}.value", instruction=run.instruction.name
        )
    return value


# -- infeed and outfeed


class _BytesCodec(ScalarCodec):
    """A quoted string, held as bytes in a proto."""

    def __init__(self) -> None:
        super().__init__(Cursor.string, lambda value: f'"{escape(value)}"')

    def write(self, message: Message, field: str, value: str) -> None:
        setattr(message, field, value.encode("utf-8", "surrogateescape"))

    def read(self, message: Message, field: str) -> str:
        return getattr(message, field).decode("utf-8", "surrogateescape")


@operation("infeed", "token")
class Infeed(_Transfer):
    """The next value that the host transferred to this device, with a token.

    Arguments:
        token: from the operation that must run before.
        infeed_config: a note for the backend.
    """

    reads_layout: ClassVar[bool] = True
    infers: ClassVar[bool] = False
    infeed_config: str = attribute(_BytesCodec(), default="")

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check for (value, token[])."""
        _require_token(self.opcode, operands[0])
        if not shape.is_tuple or len(shape.tuple_shapes) != 2 or not shape.tuple_shapes[1].is_token:
            raise ShapeError(f"the shape is (value, token[]), not {shape}", rule="infeed.shape-form")

    def evaluate(self, run: Run, token: Value) -> Value:
        """Wait for the host; accept a bare element for a tuple of one; an empty tuple reads nothing."""
        shape = run.shape.tuple_shapes[0]
        if shape.is_tuple and not shape.tuple_shapes:
            return (), None
        value = run.device.infeed(waiting(run))
        if shape.is_tuple and len(shape.tuple_shapes) == 1 and not isinstance(value, tuple):
            value = (value,)
        return _as_wanted(run, value, shape), None


@operation("outfeed", "operand token")
class Outfeed(_Transfer):
    """Makes ``operand`` available to the host from this device; returns a token.

    Arguments:
        operand: the value.
        token: from the operation that must run before.
        outfeed_shape: the shape that the host sees, with its layout; by default the operand's.
        outfeed_config: a note for the backend.
    """

    reads_layout: ClassVar[bool] = True
    outfeed_shape: Shape | None = optional_shape("outfeed_shape")
    outfeed_config: str = attribute(_BytesCodec(), default="")

    def canonical(self, *operands: Shape) -> Outfeed:
        """Drop an outfeed_shape that is the operand's."""
        return self.replace(outfeed_shape=None) if operands[:1] == (self.outfeed_shape,) else self

    def spelled_out(self, instruction: HloInstruction) -> Outfeed:
        """Add the outfeed_shape."""
        if self.outfeed_shape is not None or not instruction.operands:
            return self
        return self.replace(outfeed_shape=instruction.operands[0].shape)

    def infer(self, operand: Shape, token: Shape) -> Shape:
        """Return a token."""
        _require_token(self.opcode, token)
        if self.outfeed_shape is not None and not self.outfeed_shape.compatible(operand):
            message = f"outfeed_shape is {self.outfeed_shape}, the operand is {operand}"
            raise ShapeError(message, rule="outfeed.shape")
        return Shape.token()

    def evaluate(self, run: Run, operand: Value, token: Value) -> Value:
        """Put the value into the outfeed queue."""
        run.device.outfeed(operand)
        return None
