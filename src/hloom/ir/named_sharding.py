"""Shardings in terms of mesh axes: ``mesh['a'=2,'b'=4], [{'a'}, {?}], replicated={'b'}``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, TypeAlias

from hloom.errors import ParseError
from hloom.ir.cursor import Cursor
from hloom.ir.device_groups import AxisRef, Mesh, read_axis, read_mesh, write_axis, write_mesh
from hloom.ir.metadata import OpMetadata
from hloom.ir.xla_version import V0_12, XlaVersion
from hloom.records import dataclass

Message: TypeAlias = Any
Axes: TypeAlias = tuple[AxisRef, ...]

_ONE_DEVICE: Final = ("single_device[", "maximal_mesh[")
"""The mesh of one device, since 0.12 and before."""
NAMED_BEGINNINGS: Final = ("mesh[", *_ONE_DEVICE)
_REDUCTIONS: Final = {"sum": "SUM", "max": "MAX", "min": "MIN"}
_STORED_REDUCTIONS: Final = ("SUM", "MAX", "MIN")


@dataclass(frozen=True, slots=True)
class DimensionSharding:
    """The axes that shard one dimension; an open dimension (``?``) may be sharded further."""

    axes: Axes = ()
    is_closed: bool = True


@dataclass(frozen=True, slots=True)
class NamedSharding:
    """A sharding over a mesh.

    Attributes:
        mesh: the devices with named axes; without axes, its one device id is that of a maximal sharding.
        dimensions: the sharding of each dimension; empty if none is sharded.
        replicated_axes, unreduced_axes, manual_axes: axes that shard no dimension.
        reduction: how the parts along the unreduced axes are combined: SUM, MAX or MIN.
    """

    mesh: Mesh
    dimensions: tuple[DimensionSharding, ...] = ()
    replicated_axes: Axes = ()
    unreduced_axes: Axes = ()
    manual_axes: Axes = ()
    reduction: str = "SUM"

    @staticmethod
    def parse(cursor: Cursor) -> tuple[NamedSharding, tuple[OpMetadata, ...]]:
        """Parse a named sharding and its metadata, from after the opening brace through the closing one."""
        start = cursor.start()
        if any(map(cursor.accept, _ONE_DEVICE)):
            cursor.expect("device_id=")
            mesh = Mesh((), (cursor.integer(),))
            cursor.expect("]")
            return NamedSharding(mesh), _parse_end(cursor)
        mesh = Mesh.parse(cursor)
        names = [name for name, _ in mesh.axes]
        if len(set(names)) != len(names):
            raise cursor.error(
                "the axes of a mesh must have different names", rule="mesh.axis-names", position=start
            )
        cursor.accept(",")
        every = tuple(AxisRef(i) for i in range(len(names)))
        for word, uniform in (
            ("replicated", NamedSharding(mesh)),
            ("unreduced", NamedSharding(mesh, unreduced_axes=every)),
            ("manual", NamedSharding(mesh, manual_axes=every)),
        ):
            if cursor.accept(word):
                if word == "unreduced" and cursor.accept("="):
                    uniform = replace(uniform, reduction=_parse_reduction(cursor))
                    if cursor.accept("{"):
                        uniform = replace(uniform, unreduced_axes=_parse_axes(cursor, mesh).axes)
                return uniform, _parse_end(cursor)
        dimensions = _parse_dimensions(cursor, mesh)
        axes: dict[str, Axes] = {}
        reduction = "SUM"
        metadata: tuple[OpMetadata, ...] = ()
        while not cursor.accept("}"):
            cursor.expect(",")
            at = cursor.start()
            key = cursor.key()
            if key == "metadata":
                metadata += OpMetadata.parse_one_or_list(cursor)
            elif key in ("replicated", "unreduced", "manual"):
                if key == "unreduced" and not cursor.peek("{"):
                    reduction = _parse_reduction(cursor)
                cursor.expect("{")
                parsed = _parse_axes(cursor, mesh)
                axes[f"{key}_axes"] = axes.get(f"{key}_axes", ()) + parsed.axes
                if not parsed.is_closed:
                    raise cursor.error(
                        "'?' is allowed only in a dimension", rule="sharding.open-axes", position=at
                    )
            else:
                raise cursor.error(f"unexpected {key!r} in a sharding", rule="sharding.words", position=at)
        sharding = NamedSharding(mesh, dimensions, **axes, reduction=reduction)
        problem = sharding.problem()
        if problem:
            raise cursor.error(problem, rule="sharding.axes", position=start)
        return sharding, metadata

    def problem(self) -> str:
        """Return the error in the axes (used twice, out of order, mergeable), or an empty text."""
        axis_lists = (self.replicated_axes, self.unreduced_axes, self.manual_axes)
        used: list[AxisRef] = []
        for axes in (*(d.axes for d in self.dimensions), *axis_lists):
            for previous, axis in zip((None, *axes), axes):
                if any(not _disjoint(axis, other) for other in used):
                    return f"axis {self.mesh.axis_text(axis)} is used twice"
                if previous is not None and _mergeable(previous, axis):
                    return f"axis {self.mesh.axis_text(axis)} must be merged with the one before it"
                used.append(axis)
        for axes in axis_lists:
            if list(axes) != sorted(axes, key=lambda axis: (axis.axis, axis.sub_axis or (1, 0))):
                return "replicated, unreduced and manual axes must be in the order of the mesh"
        return ""

    def text(self, version: XlaVersion) -> str:
        """Return the text of the sharding without braces and metadata, as a version of XLA prints it."""
        mesh = self.mesh
        if not mesh.axes and mesh.device_ids:
            return f"{_ONE_DEVICE[version < V0_12]}device_id={mesh.numbers[0]}]"
        reduction = "" if self.reduction == "SUM" else self.reduction.lower()
        every = tuple(AxisRef(i) for i in range(len(mesh.axes)))
        if not self.dimensions:
            axis_lists = (self.replicated_axes, self.unreduced_axes, self.manual_axes)
            for word, lists in (
                ("replicated", ((), (), ())),
                ("unreduced", ((), every, ())),
                ("manual", ((), (), every)),
            ):
                if axis_lists == lists:
                    ending = f"={reduction}" if word == "unreduced" and reduction else ""
                    return f"{mesh.text()}, {word}{ending}"
        text = f"{mesh.text()}, [{', '.join(map(self._dimension_text, self.dimensions))}]"
        for word, axes in (
            ("replicated", self.replicated_axes),
            ("unreduced", self.unreduced_axes),
            ("manual", self.manual_axes),
        ):
            if axes:
                combined = reduction if word == "unreduced" else ""
                text += f", {word}={combined}{{{', '.join(map(mesh.axis_text, axes))}}}"
        return text

    def _dimension_text(self, dimension: DimensionSharding) -> str:
        parts = [self.mesh.axis_text(axis) for axis in dimension.axes]
        return "{" + ", ".join(parts if dimension.is_closed else [*parts, "?"]) + "}"

    def write(self, message: Message, metadata: tuple[OpMetadata, ...]) -> None:
        """Store the sharding in a NamedShardingProto."""
        message.SetInParent()
        write_mesh(message.mesh, self.mesh)
        for dimension in self.dimensions:
            stored = message.dim_shardings.add(is_closed=dimension.is_closed)
            for axis in dimension.axes:
                write_axis(stored.axes.add(), axis)
        for field in ("replicated_axes", "unreduced_axes", "manual_axes"):
            for axis in getattr(self, field):
                write_axis(getattr(message, field).add(), axis)
        message.reduction_op = _STORED_REDUCTIONS.index(self.reduction)
        for one in metadata:
            one.write(message.metadata.add())

    @staticmethod
    def read(message: Message) -> tuple[NamedSharding, tuple[OpMetadata, ...]]:
        """Return sharding and metadata of a NamedShardingProto; raise ParseError for unknown axes."""
        sharding = NamedSharding(
            read_mesh(message.mesh),
            tuple(
                DimensionSharding(tuple(map(read_axis, d.axes)), d.is_closed) for d in message.dim_shardings
            ),
            tuple(map(read_axis, message.replicated_axes)),
            tuple(map(read_axis, message.unreduced_axes)),
            tuple(map(read_axis, message.manual_axes)),
            _read_reduction(message.reduction_op),
        )
        lists = [*(d.axes for d in sharding.dimensions), sharding.replicated_axes, sharding.unreduced_axes]
        for axis in (axis for axes in (*lists, sharding.manual_axes) for axis in axes):
            if not 0 <= axis.axis < len(sharding.mesh.axes):
                raise ParseError(f"the mesh has no axis number {axis.axis}", rule="mesh.axis")
        problem = sharding.problem()
        if problem:
            raise ParseError(problem, rule="sharding.axes")
        return sharding, tuple(map(OpMetadata.read, message.metadata))


def _parse_end(cursor: Cursor) -> tuple[OpMetadata, ...]:
    metadata: tuple[OpMetadata, ...] = ()
    if cursor.accept(","):
        cursor.expect("metadata=")
        metadata = OpMetadata.parse_one_or_list(cursor)
    cursor.expect("}")
    return metadata


def _parse_reduction(cursor: Cursor) -> str:
    start = cursor.start()
    word = cursor.word()
    if word not in _REDUCTIONS:
        message = f"expected {', '.join(_REDUCTIONS)} or axes in braces, found {word!r}"
        raise cursor.error(message, rule="sharding.reduction", position=start)
    return _REDUCTIONS[word]


def _read_reduction(number: int) -> str:
    if not 0 <= number < len(_STORED_REDUCTIONS):
        raise ParseError(f"reduction number {number} of an unreduced sharding", rule="sharding.reduction")
    return _STORED_REDUCTIONS[number]


def _parse_dimensions(cursor: Cursor, mesh: Mesh) -> tuple[DimensionSharding, ...]:
    dimensions: list[DimensionSharding] = []
    for _ in cursor.items("[", "]"):
        cursor.expect("{")
        dimensions.append(_parse_axes(cursor, mesh))
    return tuple(dimensions)


def _parse_axes(cursor: Cursor, mesh: Mesh) -> DimensionSharding:
    """Parse axes up to the closing brace; a final ``?`` leaves the dimension open."""
    axes: list[AxisRef] = []
    for _ in cursor.items(""):
        if cursor.accept("?"):
            cursor.expect("}")
            return DimensionSharding(tuple(axes), is_closed=False)
        axes.append(mesh.parse_axis(cursor))
    return DimensionSharding(tuple(axes))


def _disjoint(a: AxisRef, b: AxisRef) -> bool:
    """Return whether two axes, or factors of axes, can shard one value independently."""
    if a.axis != b.axis:
        return True
    if a.sub_axis is None or b.sub_axis is None:
        return False
    first, second = sorted((a.sub_axis, b.sub_axis))
    end = first[0] * first[1]
    return end <= second[0] and second[0] % end == 0


def _mergeable(a: AxisRef, b: AxisRef) -> bool:
    """Return whether ``b`` is the factor that follows ``a`` in the same axis."""
    same = a.axis == b.axis and a.sub_axis is not None and b.sub_axis is not None
    return bool(same and a.sub_axis and b.sub_axis and a.sub_axis[0] * a.sub_axis[1] == b.sub_axis[0])
