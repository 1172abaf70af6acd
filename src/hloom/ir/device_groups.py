"""Groups of devices in collectives: replica groups in their three notations, and source-target pairs.

A device is identified by replica and partition. The meaning of the numbers in a replica group depends on the
group mode of the collective, which follows from ``channel_id`` and ``use_global_device_ids``; see
`group_mode`.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Final, TypeAlias

from hloom.errors import EvaluationError, ParseError, plural
from hloom.ir.codec import REQUIRED, Message, attribute
from hloom.ir.cursor import Cursor
from hloom.ir.device import DeviceContext, DeviceId
from hloom.records import dataclass
from hloom.regex import regex

Groups: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class DeviceList:
    """Groups listed explicitly, ``{{0,1},{2,3}}``; an empty list means one group of all devices."""

    groups: Groups = ()

    def text(self) -> str:
        """Return the text ``{{0,1},{2,3}}``."""
        return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in self.groups) + "}"


@dataclass(frozen=True, slots=True)
class IotaTiles:
    """The numbers 0, 1, 2 ... as an array of ``reshape``, transposed by ``permutation``: ``[2,4]T(1,0)``.

    The canonical form drops dimensions of size 1 and merges dimensions that stay adjacent when transposed.
    """

    reshape: tuple[int, ...]
    permutation: tuple[int, ...]

    @classmethod
    def canonical(cls, reshape: tuple[int, ...], permutation: tuple[int, ...]) -> IotaTiles:
        """Return the canonical form of an arrangement."""
        nontrivial = [d for d in permutation if reshape[d] != 1]
        runs: list[list[int]] = []
        wide = [d for d in range(len(reshape)) if reshape[d] != 1]
        follower = dict(pairwise(wide))
        for dimension in nontrivial:
            if runs and follower.get(runs[-1][-1]) == dimension:
                runs[-1].append(dimension)
            else:
                runs.append([dimension])
        if not runs:
            return cls((1,), (0,))
        by_place = sorted(runs)
        sizes = tuple(math.prod(reshape[d] for d in run) for run in by_place)
        return cls(sizes, tuple(by_place.index(run) for run in runs))

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the arranged numbers in row-major order."""
        import numpy as np

        array = np.arange(math.prod(self.reshape)).reshape(self.reshape).transpose(self.permutation)
        return tuple(array.ravel().tolist())

    def text(self) -> str:
        """Return the text ``[8]`` or ``[2,4]T(1,0)``."""
        shape = "[" + ",".join(map(str, self.reshape)) + "]"
        return shape if len(self.reshape) == 1 else f"{shape}T({','.join(map(str, self.permutation))})"

    @staticmethod
    def parse(cursor: Cursor) -> IotaTiles:
        """Parse ``[2,4]T(1,0)``; without a transposition, the permutation is the identity."""
        start = cursor.start()
        reshape = cursor.integers("[", "]")
        permutation = cursor.integers("(", ")") if cursor.accept("T") else tuple(range(len(reshape)))
        try:
            return checked_tiles(reshape, permutation)
        except ParseError as error:
            raise cursor.locate(error, start) from error.__cause__


@dataclass(frozen=True, slots=True)
class IotaDeviceList:
    """Groups that are the rows of an arranged iota: ``[2,4]<=[8]`` or ``[4,2]<=[2,4]T(1,0)``."""

    group_count: int
    group_size: int
    tiles: IotaTiles

    @property
    def groups(self) -> Groups:
        """Return the groups as lists of numbers."""
        return _rows(self.tiles.numbers, self.group_size)

    @property
    def first(self) -> tuple[int, ...]:
        """Return the first group."""
        return self.tiles.numbers[: self.group_size]

    def text(self) -> str:
        """Return the text ``[2,4]<=[8]``."""
        return f"[{self.group_count},{self.group_size}]<={self.tiles.text()}"


@dataclass(frozen=True, slots=True)
class AxisRef:
    """An axis of a mesh by number, or the factor ``size`` of it that follows the factor ``pre_size``."""

    axis: int
    sub_axis: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Mesh:
    """An array of devices with named axes: ``mesh['a'=2,'b'=4]``, in the order of ``device_ids``.

    ``device_ids`` is None for 0, 1, 2 ...; otherwise it is an arranged iota or a list of ids.
    """

    axes: tuple[tuple[str, int], ...]
    device_ids: IotaTiles | tuple[int, ...] | None = None

    @classmethod
    def checked(
        cls, axes: tuple[tuple[str, int], ...], device_ids: IotaTiles | tuple[int, ...] | None = None
    ) -> Mesh:
        """Return a mesh that holds every device once or, without axes, a single device of any id.

        Raise ParseError for axes that are unnamed, share a name or have no devices, and for other ids.
        """
        names = [name for name, _ in axes]
        if len(set(names)) != len(names):
            raise ParseError(f"the mesh has two axes of the same name: {names}", rule="mesh.axis-names")
        count = 1
        for name, size in axes:
            count *= size
            if size < 1 or count > _MOST_DEVICES:
                message = f"axis {name!r} of size {size}: a mesh has 1 to {_MOST_DEVICES} devices"
                raise ParseError(message, rule="mesh.axis-size")
        mesh = cls(axes, device_ids)
        if device_ids is None or (not axes and len(mesh.numbers) == 1 and mesh.numbers[0] >= 0):
            return mesh
        if sorted(mesh.numbers) != list(range(count)):
            message = f"device_ids must hold each of the {plural(count, 'device')} of the mesh once"
            raise ParseError(message, rule="mesh.device-ids")
        return cls(axes) if mesh.numbers == tuple(range(count)) else mesh

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the sizes of the axes."""
        return tuple(size for _, size in self.axes)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the device ids in row-major order."""
        if isinstance(self.device_ids, IotaTiles):
            return self.device_ids.numbers
        return tuple(range(math.prod(self.sizes))) if self.device_ids is None else self.device_ids

    def text(self) -> str:
        """Return the text ``mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0))``."""
        axes = ",".join(f"'{name}'={size}" for name, size in self.axes)
        ids = self.device_ids
        if ids is None:
            return f"mesh[{axes}]"
        listed = ids.text() if isinstance(ids, IotaTiles) else ",".join(map(str, ids))
        return f"mesh[{axes}], device_ids=({listed})"

    def axis_text(self, reference: AxisRef) -> str:
        """Return the text ``'a'`` or ``'a':(1)2``."""
        name = f"'{self.axes[reference.axis][0]}'"
        return (
            name if reference.sub_axis is None else f"{name}:({reference.sub_axis[0]}){reference.sub_axis[1]}"
        )

    @staticmethod
    def parse(cursor: Cursor) -> Mesh:
        """Parse the form that `text` returns; names may also be in double quotes."""
        start = cursor.start()
        cursor.expect("mesh")
        axes: list[tuple[str, int]] = []
        for _ in cursor.items("[", "]"):
            name = cursor.string()
            cursor.expect("=")
            axes.append((name, cursor.integer()))
        ids: IotaTiles | tuple[int, ...] | None = None
        if cursor.match(_DEVICE_IDS):
            if cursor.match(_TILES_AHEAD):
                ids = IotaTiles.parse(cursor)
                cursor.expect(")")
            else:
                ids = cursor.integers("(", ")")
        try:
            return Mesh.checked(tuple(axes), ids)
        except ParseError as error:
            raise cursor.locate(error, start) from error.__cause__

    def parse_axis(self, cursor: Cursor) -> AxisRef:
        """Parse ``'a'`` or ``'a':(1)2``."""
        start = cursor.start()
        name = cursor.string()
        names = [axis for axis, _ in self.axes]
        if name not in names:
            raise cursor.error(f"the mesh has no axis {name!r}", rule="mesh.axis", position=start)
        reference = AxisRef(names.index(name))
        if cursor.accept(":"):
            cursor.expect("(")
            before = cursor.integer()
            cursor.expect(")")
            reference = AxisRef(reference.axis, (before, cursor.integer()))
        try:
            check_axes(self, (reference,))
        except ParseError as error:
            raise cursor.locate(error, start) from error.__cause__
        return reference


@dataclass(frozen=True, slots=True)
class MeshDeviceList:
    """Groups along axes of a mesh, ``mesh['a'=2,'b'=4] {'a'}``: devices that differ only in these axes."""

    mesh: Mesh
    axes: tuple[AxisRef, ...]

    @property
    def groups(self) -> Groups:
        """Return the groups as lists: the rows of the mesh with the named axes transposed to the end."""
        import numpy as np

        sizes: list[int] = []
        places: dict[AxisRef, int] = {}
        for number, (_, size) in enumerate(self.mesh.axes):
            sizes.extend(self._factors(number, size, len(sizes), places))
        selected = [places[reference] for reference in self.axes]
        others = [d for d in range(len(sizes)) if d not in selected]
        array = np.array(self.mesh.numbers).reshape(sizes).transpose([*others, *selected])
        return _rows(tuple(array.ravel().tolist()), math.prod(sizes[d] for d in selected))

    def _factors(self, number: int, size: int, offset: int, places: dict[AxisRef, int]) -> list[int]:
        """Return the sizes that one axis is split into; record in ``places`` where its named factors are."""
        parts = sorted((r for r in self.axes if r.axis == number), key=lambda r: r.sub_axis or (1, size))
        sizes: list[int] = []
        for reference in parts:
            before, length = reference.sub_axis or (1, size)
            done = math.prod(sizes)
            if before != done:
                sizes.append(before // done)
            places[reference] = offset + len(sizes)
            sizes.append(length)
        if math.prod(sizes) != size:
            sizes.append(size // math.prod(sizes))
        return sizes

    def text(self) -> str:
        """Return the text ``mesh['a'=2,'b'=4] {'a'}``."""
        return f"{self.mesh.text()} {{{','.join(map(self.mesh.axis_text, self.axes))}}}"


def check_axes(mesh: Mesh, axes: tuple[AxisRef, ...]) -> None:
    """Refuse axes that the mesh does not have, invalid factors, and axes that overlap.

    Raise ParseError.
    """
    spans: dict[int, list[tuple[int, int]]] = {}
    for reference in axes:
        if not 0 <= reference.axis < len(mesh.axes):
            raise ParseError(f"the mesh has no axis number {reference.axis}", rule="mesh.axis")
        name, full = mesh.axes[reference.axis]
        before, size = reference.sub_axis or (1, full)
        proper = reference.sub_axis is None or (before >= 1 and 1 < size < full)
        if not proper or full % (before * size):
            message = f"{size} after {before} is not a proper factor of axis {name!r} of size {full}"
            raise ParseError(message, rule="mesh.sub-axis")
        spans.setdefault(reference.axis, []).append((before, size))
    for number, parts in spans.items():
        parts.sort()
        if any(after % (before * size) for (before, size), (after, _) in pairwise(parts)):
            message = f"parts of axis {mesh.axes[number][0]!r} overlap"
            raise ParseError(message, rule="mesh.axes-disjoint")


ReplicaGroups: TypeAlias = DeviceList | IotaDeviceList | MeshDeviceList


def _rows(numbers: tuple[int, ...], size: int) -> Groups:
    return tuple(numbers[i : i + size] for i in range(0, len(numbers), size))


_MOST_DEVICES: Final = 1 << 20
_DEVICE_IDS: Final = regex(r",\s*device_ids\s*=\s*(?=\()")
_TILES_AHEAD: Final = regex(r"\(\s*(?=\[)")
_PAIR_OF_SIZES: Final = regex(r"\[\s*(\d+)\s*,\s*(\d+)\s*\]\s*<=")


class ReplicaGroupsCodec:
    """Codec of ``{{0,1},{2,3}}``, ``[2,4]<=[8]`` and ``mesh['a'=2,'b'=4] {'a'}``."""

    def parse(self, cursor: Cursor) -> ReplicaGroups:
        """Parse any of the three notations."""
        start = cursor.start()
        if cursor.peek("mesh"):
            return self._mesh(cursor)
        if not cursor.peek("["):
            return DeviceList(integer_lists(cursor))
        match = cursor.take(_PAIR_OF_SIZES, "a number of groups and their size, as in [2,4]<=")
        tiles = IotaTiles.parse(cursor)
        try:
            return _groups_of(int(match[1]), int(match[2]), tiles)
        except ParseError as error:
            raise cursor.locate(error, start) from error.__cause__

    @staticmethod
    def _mesh(cursor: Cursor) -> MeshDeviceList:
        start = cursor.position
        mesh = Mesh.parse(cursor)
        axes = [mesh.parse_axis(cursor) for _ in cursor.items()]
        try:
            return _along(mesh, tuple(axes))
        except ParseError as error:
            raise cursor.locate(error, start) from error.__cause__

    def text(self, value: ReplicaGroups) -> str:
        """Return the text in the notation of the value."""
        return value.text()

    def write(self, message: Message, field: str, value: ReplicaGroups) -> None:
        """Fill the one of the three proto messages that corresponds to the notation of the value."""
        if isinstance(value, DeviceList):
            stored = message.collective_device_list
            stored.SetInParent()
            for group in value.groups:
                stored.replica_groups.add(replica_ids=group)
        elif isinstance(value, IotaDeviceList):
            stored = message.iota_collective_device_list
            stored.num_replica_groups = value.group_count
            stored.num_devices_per_group = value.group_size
            stored.iota_reshape_dims.extend(value.tiles.reshape)
            stored.iota_transpose_perm.extend(value.tiles.permutation)
        else:
            write_mesh(message.mesh_axes_replica_group_list.mesh, value.mesh)
            for reference in value.axes:
                write_axis(message.mesh_axes_replica_group_list.axes.add(), reference)

    def read(self, message: Message, field: str) -> ReplicaGroups:
        """Return the groups from the current or the former field that holds them."""
        kind = message.WhichOneof("replica_group_list")
        if kind == "iota_collective_device_list":
            return _read_iota(message.iota_collective_device_list)
        if kind == "mesh_axes_replica_group_list":
            stored = message.mesh_axes_replica_group_list
            return _along(read_mesh(stored.mesh), tuple(map(read_axis, stored.axes)))
        if kind == "collective_device_list":
            stored = message.collective_device_list
            if stored.HasField("iota_replica_group_list"):
                return _read_iota(stored.iota_replica_group_list)
            return DeviceList(tuple(tuple(g.replica_ids) for g in stored.replica_groups))
        return DeviceList(tuple(tuple(g.replica_ids) for g in message.replica_groups))


def _along(mesh: Mesh, axes: tuple[AxisRef, ...]) -> MeshDeviceList:
    """Return groups along axes of a mesh; raise ParseError for axes that the mesh lacks."""
    check_axes(mesh, axes)
    return MeshDeviceList(mesh, axes)


def _read_iota(stored: Message) -> IotaDeviceList:
    tiles = checked_tiles(tuple(stored.iota_reshape_dims), tuple(stored.iota_transpose_perm))
    return _groups_of(stored.num_replica_groups, stored.num_devices_per_group, tiles)


def checked_tiles(reshape: tuple[int, ...], permutation: tuple[int, ...]) -> IotaTiles:
    """Return an arranged iota in canonical form; raise ParseError for an invalid one."""
    if not reshape or min(reshape) < 1 or sorted(permutation) != list(range(len(reshape))):
        message = f"{list(permutation)} does not permute the dimensions of {list(reshape)}"
        raise ParseError(message, rule="replica-groups.permutation")
    if math.prod(reshape) > _MOST_DEVICES:
        message = f"{list(reshape)} has more than {_MOST_DEVICES} devices"
        raise ParseError(message, rule="replica-groups.device-count")
    return IotaTiles.canonical(reshape, permutation)


def _groups_of(count: int, size: int, tiles: IotaTiles) -> IotaDeviceList:
    value = IotaDeviceList(count, size, tiles)
    if count < 1 or count * size != math.prod(tiles.reshape):
        message = f"{value.text()} does not use every device once"
        raise ParseError(message, rule="replica-groups.iota-size")
    return value


def write_mesh(stored: Message, mesh: Mesh) -> None:
    """Store a mesh in a MeshProto."""
    stored.SetInParent()
    for name, size in mesh.axes:
        stored.axes.add(name=name, size=size)
    if isinstance(mesh.device_ids, IotaTiles):
        stored.iota_transform.reshape_dims.extend(mesh.device_ids.reshape)
        stored.iota_transform.transpose_perm.extend(mesh.device_ids.permutation)
    elif mesh.device_ids is not None:
        stored.device_ids.extend(mesh.device_ids)


def read_mesh(stored: Message) -> Mesh:
    """Return the mesh of a MeshProto; raise ParseError for an invalid one."""
    axes = tuple((axis.name, axis.size) for axis in stored.axes)
    if not stored.HasField("iota_transform"):
        return Mesh.checked(axes, tuple(stored.device_ids) or None)
    transform = stored.iota_transform
    return Mesh.checked(axes, checked_tiles(tuple(transform.reshape_dims), tuple(transform.transpose_perm)))


def write_axis(stored: Message, reference: AxisRef) -> None:
    """Store an axis in an AxisRefProto."""
    stored.mesh_axis_index = reference.axis
    if reference.sub_axis is not None:
        stored.sub_axis_info.pre_size, stored.sub_axis_info.size = reference.sub_axis


def read_axis(stored: Message) -> AxisRef:
    """Return the axis of an AxisRefProto."""
    part = stored.sub_axis_info if stored.HasField("sub_axis_info") else None
    return AxisRef(stored.mesh_axis_index, None if part is None else (part.pre_size, part.size))


def integer_lists(cursor: Cursor) -> Groups:
    """Parse ``{{0,1},{2,3}}``."""
    return tuple([cursor.integers() for _ in cursor.items()])


class SourceTargetPairsCodec:
    """Codec of ``{{0,1},{1,0}}``; the value of the first device of a pair is sent to the second."""

    def parse(self, cursor: Cursor) -> tuple[tuple[int, int], ...]:
        """Parse a list of pairs in braces."""
        start = cursor.start()
        lists = integer_lists(cursor)
        for pair in lists:
            if len(pair) != 2:
                message = f"a pair has a source and a target, got {list(pair)}"
                raise cursor.error(message, rule="source-target-pairs.pair", position=start)
        return tuple((pair[0], pair[1]) for pair in lists)

    def text(self, value: tuple[tuple[int, int], ...]) -> str:
        """Return the text of the pairs."""
        return DeviceList(value).text()

    def write(self, message: Message, field: str, value: tuple[tuple[int, int], ...]) -> None:
        """Store SourceTarget messages."""
        for source, target in value:
            getattr(message, field).add(source=source, target=target)

    def read(self, message: Message, field: str) -> tuple[tuple[int, int], ...]:
        """Return the stored pairs."""
        return tuple((pair.source, pair.target) for pair in getattr(message, field))


class ChannelIdCodec:
    """Codec of a channel number; None if there is no channel, which a proto stores as 0."""

    def parse(self, cursor: Cursor) -> int:
        """Parse the number."""
        return cursor.integer()

    def text(self, value: int) -> str:
        """Return the text of the number."""
        return str(value)

    def write(self, message: Message, field: str, value: int | None) -> None:
        """Set the field if there is a channel."""
        if value is not None and value > 0:
            setattr(message, field, value)

    def read(self, message: Message, field: str) -> int | None:
        """Return the number if it is positive, else None."""
        value = getattr(message, field)
        return value if value > 0 else None


def replica_groups() -> ReplicaGroups:
    """Declare ``replica_groups=...``, which is always printed."""
    return attribute(ReplicaGroupsCodec(), default=DeviceList(), always=True, proto="collective_device_list")


def source_target_pairs() -> Any:
    """Declare a ``source_target_pairs={{0,1},{1,0}}``."""
    return attribute(SourceTargetPairsCodec(), default=REQUIRED)


def channel_id() -> int | None:
    """Declare a ``channel_id=3``; None if there is none."""
    return attribute(ChannelIdCodec(), default=None)


# -- group modes


def group_mode(channel: int | None, use_global_device_ids: bool | None) -> str:
    """Return the group mode of a collective, which gives the numbers in its replica groups their meaning.

    - ``cross_replica`` (no channel): replicas; the devices of a group have the same partition.
    - ``cross_partition`` (a channel, and an operation without ``use_global_device_ids``): partitions; the
      devices of a group have the same replica.
    - ``cross_replica_and_partition`` (a channel, ``use_global_device_ids=false``): replicas, with all their
      partitions.
    - ``flattened_id`` (a channel, ``use_global_device_ids=true``): replica * num_partitions + partition.

    Args:
        channel: the operation's channel, if it has one; channel 0 counts as none.
        use_global_device_ids: None for an operation that does not have this attribute.
    """
    if use_global_device_ids:
        return "flattened_id"
    if channel is None or channel <= 0:
        return "cross_replica"
    return "cross_partition" if use_global_device_ids is None else "cross_replica_and_partition"


def device_of(number: int, mode: str, seen_from: DeviceId, num_partitions: int) -> DeviceId:
    """Return the device of a number in a group of ``seen_from`` (not ``cross_replica_and_partition``)."""
    replica, partition = seen_from
    if mode == "cross_replica":
        return number, partition
    if mode == "cross_partition":
        return replica, number
    return divmod(number, num_partitions)


def members_of(groups: Groups, mode: str, device: DeviceContext) -> tuple[DeviceId, ...] | None:
    """Return the devices of the group that contains this one, in group order; None if no group does.

    In mode ``cross_replica_and_partition`` the order is that of StableHLO: all replicas of the group for the
    first partition, then all for the second, and so on. Raise EvaluationError for a number out of range.
    """
    by_partition = mode == "cross_partition"
    both = mode == "cross_replica_and_partition"
    count = device.num_partitions if by_partition else device.num_replicas
    if mode == "flattened_id":
        count = device.num_replicas * device.num_partitions
    for number in (n for group in groups for n in group):
        if not 0 <= number < count:
            message = f"replica group number {number} is out of range: {count} in mode {mode}"
            raise EvaluationError(message, rule="collective.device-range")
    for group in groups or (tuple(range(count)),):
        if both:
            members = tuple((r, p) for p in range(device.num_partitions) for r in group)
        else:
            members = tuple(device_of(n, mode, device.id, device.num_partitions) for n in group)
        if device.id in members:
            return members
    return None
