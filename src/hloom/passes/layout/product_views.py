"""product-views: fuse strided views into the matrix products that read or produce them.

A kernel that only copies a slice of an array, or permutes the dimensions of a product, is unnecessary if the
product's kernel can load or store its elements there directly. A factor of a narrower type, such as weights
of 4 or 8 bits, is converted in registers if the wide type holds all its values. Numbers of 8 bits with scales
and zero points for groups of them, ``(convert(q) - zero) * scale``, are computed in registers too.
"""

from __future__ import annotations

from collections.abc import Callable

from hloom.analysis.values import holds
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.arithmetic import Add, Multiply, Subtract
from hloom.operations.contraction import Dot
from hloom.operations.control_flow import Fusion
from hloom.operations.conversion import BitcastConvert, Convert
from hloom.operations.movement import Broadcast, Slice, Transpose
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant, Parameter
from hloom.passes.fuel import consume
from hloom.passes.fusion.fused_body import FusedBody
from hloom.passes.fusion.fusion import control_computations
from hloom.passes.pipeline import Pass


def is_view(i: HloInstruction) -> bool:
    """Return whether an instruction only maps indices of its operand, by strides."""
    return isinstance(i.operation, Slice | Reshape | Transpose)


def is_factor_view(i: HloInstruction) -> bool:
    """Return whether a product may read the operand of an instruction: a view, or a lossless convert.

    Bytes that are converted to two integers of 4 bits are one too.
    """
    if isinstance(i.operation, BitcastConvert):
        whole, part = i.operands[0].shape.element_type, i.shape.element_type
        return whole.is_integer and part.is_integer and (whole.bits, part.bits) == (8, 4)
    if not isinstance(i.operation, Convert):
        return is_view(i)
    wide, narrow = i.shape.element_type, i.operands[0].shape.element_type
    real = not (wide.is_complex or narrow.is_predicate)
    return real and holds(wide, narrow)


def factor_operand(i: HloInstruction) -> HloInstruction | None:
    """Return the operand that an instruction in front of a product views, converts, or scales by groups."""
    if is_factor_view(i) or (
        isinstance(i.operation, Convert) and not i.operands[0].shape.element_type.is_complex
    ):
        return i.operands[0]
    if not isinstance(i.operation, Multiply | Add | Subtract):
        return None
    single = [o for o in i.operands if not _is_repeated(o)]
    return single[0] if len(single) == 1 else None


def _is_repeated(i: HloInstruction) -> bool:
    """Return whether the elements of an instruction are those of a broadcast array."""
    while isinstance(i.operation, Reshape | Convert):
        (i,) = i.operands
    if not isinstance(i.operation, Broadcast):
        return False
    (source,) = i.operands
    while isinstance(source.operation, Reshape | Convert):
        (source,) = source.operands
    return isinstance(source.operation, Parameter | Constant)


def is_scaled_factor(i: HloInstruction) -> bool:
    """Return whether an instruction computes scaled numbers of fewer bits: a fusion of nothing else."""
    if not isinstance(i.operation, Fusion):
        return False
    source: HloInstruction | None = i.called_computations[0].root
    while source is not None and not isinstance(source.operation, Parameter):
        source = factor_operand(source)
    return source is not None and source.shape.element_type.bits < i.shape.element_type.bits


class ProductViews(Pass, name="product-views", of=Dot):
    """Copies before and after dots → parts of the dots' fusions.

    Attributes:
        takes: returns whether the target has a kernel for a fusion of a dot with such views.
    """

    takes: Callable[[HloInstruction], bool]

    def run(self, module: HloModule) -> bool:
        """Fuse the copies of every computation into dots."""
        changed = False
        for computation in control_computations(module):
            waiting = computation.post_order()[::-1]
            while waiting:
                i = waiting.pop()
                if i.parent is not computation or not (is_copy(i, is_factor_view) or is_scaled_factor(i)):
                    continue
                if not consume(f"%{i.name}"):
                    continue
                operands = [o for o in i.operands if is_copy(o, is_factor_view)]
                if self.join_readers(i):
                    _remove(i)
                    waiting += operands
                    changed = True
                elif is_copy(i, is_view):
                    changed |= self.join_writer(i)
        return changed

    def join_readers(self, view: HloInstruction) -> bool:
        """Fuse a copy into all its users if all are dots that can read the view."""
        users = list(view.users)
        if (
            view.is_root
            or not users
            or view.has_control_dependencies
            or not all(_reads(user, view) for user in users)
        ):
            return False
        joined = [_joined(user, view) for user in users]
        return _replaced(users, joined, all(map(self.takes, joined)))

    def join_writer(self, view: HloInstruction) -> bool:
        """Fuse a copy into the dot that is its operand, if the dot has no other user."""
        (source,) = view.operands
        if (
            len(source.users) != 1
            or view.has_control_dependencies
            or source.has_control_dependencies
            or not _ends(source)
        ):
            return False
        joined = _joined(view, source)
        return _replaced([view], [joined], self.takes(joined))


def is_copy(i: HloInstruction, is_member: Callable[[HloInstruction], bool]) -> bool:
    """Return whether an instruction copies elements of one array, by operations that satisfy a predicate."""
    if not isinstance(i.operation, Fusion):
        return is_member(i) and not isinstance(i.operation, Reshape)
    body = i.called_computations[0]
    return len(i.operands) == 1 and all(is_member(m) or isinstance(m.operation, Parameter) for m in body)


def dot_of(i: HloInstruction) -> HloInstruction | None:
    """Return the dot that an instruction is or contains; None if there is none."""
    if not isinstance(i.operation, Fusion):
        return i if isinstance(i.operation, Dot) else None
    return next((m for m in i.called_computations[0] if isinstance(m.operation, Dot)), None)


def _reads(user: HloInstruction, view: HloInstruction) -> bool:
    """Return whether an instruction is a dot, or a fusion of one, that reads a view only as a factor."""
    dot = dot_of(user)
    if dot is None or user.has_control_dependencies:
        return False
    if user is dot:
        return True
    body = user.called_computations[0]
    parameters = [p for p, o in zip(body.parameters, user.operands, strict=True) if o is view]
    return all(_is_factor(p, dot) for p in parameters)


def _is_factor(i: HloInstruction, dot: HloInstruction) -> bool:
    """Return whether an array is read only as a factor of a dot, through views."""
    while len(i.users) == 1 and factor_operand(user := next(iter(i.users))) is i:
        i = user
    return list(i.users) == [dot]


def _ends(i: HloInstruction) -> bool:
    """Return whether an instruction is a dot, or a fusion whose root is one."""
    dot = dot_of(i)
    return dot is not None and (i is dot or i.called_computations[0].root is dot)


def _joined(user: HloInstruction, source: HloInstruction) -> HloInstruction:
    """Add a fusion of a user and one of its operands, without uses."""
    assert user.parent is not None and user.parent.module is not None
    body = FusedBody(user.parent.module)
    first = body.inlined(source, [body.input(o) for o in source.operands])
    operands = [first if o is source else body.input(o) for o in user.operands]
    body.computation.root = body.inlined(user, operands)
    return body.fusion(user, user.name if isinstance(user.operation, Fusion) else f"{user.name}_fusion")


def _replaced(users: list[HloInstruction], fusions: list[HloInstruction], right: bool) -> bool:
    """Replace instructions by fusions if ``right``, else remove the fusions; return ``right``."""
    for user, new in zip(users, fusions, strict=True):
        if right:
            user.replace_all_uses_with(new)
        _remove(user if right else new)
    return right


def _remove(i: HloInstruction) -> None:
    """Remove an instruction without uses, and the computation of a fusion."""
    computation = i.parent
    assert computation is not None
    computation.remove(i)
    if isinstance(i.operation, Fusion) and computation.module is not None:
        computation.module.remove(i.called_computations[0])
