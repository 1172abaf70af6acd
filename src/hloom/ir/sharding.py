"""The distribution of a value over devices.

A sharding is *replicated* (every device has the whole value), *maximal* (one device has it), *manual* (the
program is written for a single device), *unreduced* (devices hold summands), *unknown*, *tiled* (cut into
tiles, each on its own device), *named* (given in terms of mesh axes), or a *tuple* of shardings, one for each
array of a tuple.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, TypeAlias

from hloom.errors import ParseError, plural
from hloom.ir.cursor import Cursor
from hloom.ir.device_groups import IotaTiles
from hloom.ir.metadata import OpMetadata
from hloom.ir.named_sharding import NAMED_BEGINNINGS, NamedSharding
from hloom.ir.tile_assignment import TileAssignment
from hloom.ir.xla_version import NEWEST, V0_11, XlaVersion
from hloom.records import dataclass
from hloom.shape.shape import Shape

Message: TypeAlias = Any

_NUMBERED: Final = ("replicated", "maximal", "tuple", "tiled", "manual", "unknown", "unreduced")
"""The kinds in the order of their numbers in OpSharding.Type."""
_TYPES: Final = {kind: number for number, kind in enumerate(_NUMBERED)}
_KINDS: Final = dict(enumerate(_NUMBERED))
_WHOLE: Final = ("replicated", "maximal", "manual", "unknown", "unreduced")
_SUBGROUPS: Final = ("maximal", "replicated", "manual", "unreduced")
_REDUCTION: Final = "sdy::reduction_op"
"""The op_type of the metadata whose op_name is the reduction that an unreduced sharding needs."""


@dataclass(frozen=True, slots=True)
class ShardGroup:
    """A group of shardings that are to become equal (``as``) or similar (``like``)."""

    kind: str
    number: int


@dataclass(frozen=True, slots=True)
class Sharding:
    """One sharding; the kinds are described in the docstring of this module.

    Attributes:
        kind: replicated, maximal, manual, unreduced, unknown, tiled, named or tuple.
        device: the device of a maximal sharding.
        tiles: the tiles of a tiled sharding.
        last_tile_dims: the kinds of the last dimensions of the tiles, which do not cut the value: over them
            it is replicated, manual and so on.
        elements: the shardings of a tuple, one for each array in it.
        named: a sharding in terms of mesh axes.
        group: the group of shardings that it belongs to.
        metadata: the origin of the sharding.
    """

    kind: str
    device: int = 0
    tiles: TileAssignment | None = None
    last_tile_dims: tuple[str, ...] = ()
    elements: tuple[Sharding, ...] = ()
    named: NamedSharding | None = None
    group: ShardGroup | None = None
    metadata: tuple[OpMetadata, ...] = ()

    @staticmethod
    def replicated() -> Sharding:
        """Return the sharding in which every device has the whole value."""
        return Sharding("replicated")

    @staticmethod
    def tiled(tiles: TileAssignment, last_tile_dims: tuple[str, ...] = ()) -> Sharding:
        """Return a tiled sharding in canonical form: subgroups of one kind are merged and sorted by kind.

        If the tiles do not cut the value at all, the result is the replicated, manual or unreduced sharding.
        """
        if not last_tile_dims:
            return Sharding("tiled", tiles=tiles)
        data = len(tiles.dimensions) - len(last_tile_dims)
        uncut = all(size == 1 for size in tiles.dimensions[:data])
        first = last_tile_dims[0]
        if uncut and first != "maximal" and all(kind == first for kind in last_tile_dims):
            return Sharding(first)
        places: dict[str, list[int]] = {}
        for number, kind in enumerate(last_tile_dims, data):
            if tiles.dimensions[number] != 1:
                places.setdefault(kind, []).append(number)
        kinds = sorted(places, key=lambda kind: (kind == "replicated", _TYPES[kind]))
        trivial = [d for d in range(data, len(tiles.dimensions)) if tiles.dimensions[d] == 1]
        order = [*range(data), *(d for kind in kinds for d in places[kind]), *trivial]
        merged = list(tiles.dimensions[:data])
        for kind in kinds:
            size = 1
            for d in places[kind]:
                size *= tiles.dimensions[d]
            merged.append(size)
        tiles = tiles.transposed(tuple(order)).reshaped(tuple(merged))
        if not kinds:
            return Sharding("tiled", tiles=tiles)
        if tiles.tile_count == merged[-1] and kinds in (["replicated"], ["manual"], ["unreduced"]):
            return Sharding(kinds[0])
        if kinds[-1] == "replicated":
            tiles = tiles.sorted_along_last()
        return Sharding("tiled", tiles=tiles, last_tile_dims=tuple(kinds))

    def for_shape(self, shape: Shape) -> Sharding:
        """Return this sharding for an array, and for a tuple the sharding with this one for each array."""
        if not shape.is_tuple or self.kind == "tuple":
            return self
        leaves = max(1, sum(1 for _ in shape.leaves()))
        return Sharding("tuple", elements=(self,) * leaves)

    # -- text

    @classmethod
    def parse(cls, cursor: Cursor) -> Sharding:
        """Parse a sharding such as ``{replicated}`` or ``{devices=[2,1]<=[2]}``, or a tuple of them."""
        cursor.expect("{")
        if not cursor.peek("{") and not cursor.peek("}"):
            return cls._parse_single(cursor)
        elements: list[Sharding] = []
        for _ in cursor.items(""):
            cursor.expect("{")
            elements.append(cls._parse_single(cursor))
        return cls("tuple", elements=tuple(elements))

    @classmethod
    def _parse_single(cls, cursor: Cursor) -> Sharding:
        """Parse one sharding after its opening brace."""
        if any(map(cursor.peek, NAMED_BEGINNINGS)):
            named, metadata = NamedSharding.parse(cursor)
            return cls("named", named=named, metadata=metadata)
        cursor.skip()
        return _SingleParser(cursor).parse()

    @property
    def reduction(self) -> str:
        """Return the reduction of the parts of an unreduced value: SUM, MAX or MIN."""
        if self.named is not None:
            return self.named.reduction
        return next((m.op_name for m in self.metadata if m.op_type == _REDUCTION), "SUM")

    def text(self, *, metadata: bool = True, version: XlaVersion = NEWEST) -> str:
        """Return the text of the sharding, as a version of XLA prints it."""
        if self.kind == "tuple":
            parts = [
                (f"/*index={i}*/" if i and i % 5 == 0 else "")
                + element.text(metadata=metadata, version=version)
                for i, element in enumerate(self.elements)
            ]
            return "{" + ", ".join(parts) + "}"
        shown = self._shown_metadata(version) if metadata else ()
        if self.named is not None:
            return "{" + self.named.text(version) + _metadata_text(shown, ", ", listed=True) + "}"
        if self.tiles is not None:
            text = self.tiles.text()
            if self.last_tile_dims == ("replicated",):
                text += " last_tile_dim_replicate"
            elif self.last_tile_dims:
                text += " last_tile_dims={" + ", ".join(self.last_tile_dims) + "}"
        else:
            text = f"maximal device={self.device}" if self.kind == "maximal" else self.kind
        if self.group is not None:
            text += f" shard_{self.group.kind} {self.group.number}"
        return "{" + text + _metadata_text(shown, " ", listed=False) + "}"

    def _shown_metadata(self, version: XlaVersion) -> tuple[OpMetadata, ...]:
        """Return the metadata; since 0.11 with the reduction of an unreduced value that states none."""
        unreduced = self.kind == "unreduced" or "unreduced" in self.last_tile_dims
        if version < V0_11 or not unreduced or any(m.op_type == _REDUCTION for m in self.metadata):
            return self.metadata
        return (*self.metadata, OpMetadata(op_type=_REDUCTION, op_name=self.reduction))

    # -- proto

    def write(self, message: Message) -> None:
        """Store the sharding in an OpSharding message."""
        message.SetInParent()
        if self.named is not None:
            self.named.write(message.named_sharding, self.metadata)
            return
        message.type = _TYPES[self.kind]
        for element in self.elements:
            element.write(message.tuple_shardings.add())
        for metadata in self.metadata:
            metadata.write(message.metadata.add())
        if self.kind == "maximal":
            message.tile_assignment_devices.append(self.device)
        if self.tiles is not None:
            message.tile_assignment_dimensions.extend(self.tiles.dimensions)
            if isinstance(self.tiles.devices, IotaTiles):
                message.iota_reshape_dims.extend(self.tiles.devices.reshape)
                message.iota_transpose_perm.extend(self.tiles.devices.permutation)
            else:
                message.tile_assignment_devices.extend(self.tiles.devices)
            if self.last_tile_dims == ("replicated",):
                message.replicate_on_last_tile_dim = True
            else:
                message.last_tile_dims.extend(_TYPES[kind] for kind in self.last_tile_dims)
        if self.group is not None:
            message.is_shard_group = True
            message.shard_group_id = self.group.number
            message.shard_group_type = ("as", "like").index(self.group.kind)

    @staticmethod
    def read(message: Message) -> Sharding:
        """Return the sharding of an OpSharding message; raise ParseError for an invalid one."""
        if message.HasField("named_sharding"):
            named, metadata = NamedSharding.read(message.named_sharding)
            return Sharding("named", named=named, metadata=metadata)
        kind = _KINDS.get(int(message.type), "")
        if not kind:
            raise ParseError(f"a sharding of type {message.type}", rule="sharding.type")
        if kind == "tuple":
            return Sharding("tuple", elements=tuple(map(Sharding.read, message.tuple_shardings)))
        if kind == "tiled":
            tiled = _read_tiled(message)
        elif kind == "maximal":
            if len(message.tile_assignment_devices) != 1:
                raise ParseError("a maximal sharding has one device", rule="sharding.maximal-device")
            tiled = Sharding("maximal", device=message.tile_assignment_devices[0])
        else:
            tiled = Sharding(kind)
        group = None
        if message.is_shard_group:
            alike = int(message.shard_group_type) == 1
            group = ShardGroup("like" if alike else "as", int(message.shard_group_id))
        return replace(tiled, group=group, metadata=tuple(map(OpMetadata.read, message.metadata)))


def _metadata_text(metadata: tuple[OpMetadata, ...], before: str, *, listed: bool) -> str:
    if not metadata:
        return ""
    texts = [one.text() for one in metadata]
    alone = len(texts) == 1 and not listed
    return before + "metadata=" + (texts[0] if alone else "{" + ", ".join(texts) + "}")


def _read_tiled(message: Message) -> Sharding:
    dimensions = tuple(message.tile_assignment_dimensions)
    devices: IotaTiles | tuple[int, ...] = tuple(message.tile_assignment_devices)
    count = len(devices)
    if message.iota_reshape_dims:
        reshape, permutation = tuple(message.iota_reshape_dims), tuple(message.iota_transpose_perm)
        if sorted(permutation) != list(range(len(reshape))) or min(reshape) < 1:
            raise ParseError(f"no iota: {reshape}T{permutation}", rule="sharding.iota-permutation")
        devices = IotaTiles.canonical(reshape, permutation)
        count = 1
        for size in reshape:
            count *= size
    kinds = [_KINDS.get(number, "") for number in message.last_tile_dims]
    if message.replicate_on_last_tile_dim:
        kinds = ["replicated"]
    tiles = TileAssignment(dimensions, devices)
    if not dimensions or min(dimensions) < 0 or tiles.tile_count != count or count == 0:
        message_text = f"{list(dimensions)} tiles need as many devices, got {count}"
        raise ParseError(message_text, rule="sharding.device-count")
    if any(kind not in _SUBGROUPS for kind in kinds) or len(kinds) > len(dimensions):
        raise ParseError("last_tile_dims do not fit the tiles", rule="sharding.last-tile-dims")
    return Sharding.tiled(tiles, tuple(kinds))


class _SingleParser:
    """Parser of the words of one sharding, in any order, up to its closing brace."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.start = cursor.position
        self.whole: set[str] = set()
        self.device: int | None = None
        self.tiles: TileAssignment | None = None
        self.last_tile_dims: list[str] | None = None
        self.group: ShardGroup | None = None
        self.metadata: list[OpMetadata] = []

    def parse(self) -> Sharding:
        cursor = self.cursor
        while not cursor.accept("}"):
            self.word()
        return replace(self.sharding(), group=self.group, metadata=tuple(self.metadata))

    def word(self) -> None:
        cursor = self.cursor
        start = cursor.start()
        word = cursor.word()
        if word in _WHOLE:
            self.whole.add(word)
        elif word in ("shard_as", "shard_like"):
            kind = word.removeprefix("shard_")
            number = cursor.integer()
            if self.group is None or self.group.kind != "as" or kind == "as":
                self.group = ShardGroup(kind, number)
            else:
                self.group = ShardGroup("as", number)
        elif word == "last_tile_dim_replicate":
            self.last_tile_dims = ["replicated"]
        elif not cursor.text.startswith("=", cursor.position):
            raise cursor.error(f"unexpected {word!r} in a sharding", rule="sharding.words", position=start)
        elif word == "device":
            cursor.expect("=")
            self.device = cursor.integer()
        elif word == "devices":
            cursor.expect("=")
            self.tiles = TileAssignment.parse(cursor)
        elif word == "metadata":
            cursor.expect("=")
            self.metadata.extend(OpMetadata.parse_one_or_list(cursor))
        elif word == "last_tile_dims":
            cursor.expect("=")
            self.last_tile_dims = self.subgroups()
        else:
            raise cursor.error(f"unexpected {word!r} in a sharding", rule="sharding.words", position=start)

    def subgroups(self) -> list[str]:
        cursor = self.cursor
        kinds: list[str] = []
        for start in cursor.items():
            kinds.append(cursor.word())
            if kinds[-1] not in _SUBGROUPS:
                message = f"expected one of {', '.join(_SUBGROUPS)}, found {kinds[-1]!r}"
                raise cursor.error(message, rule="sharding.last-tile-dims", position=start)
        return kinds

    def sharding(self) -> Sharding:
        kind = next((word for word in _WHOLE if word in self.whole), "tiled")
        if kind == "maximal":
            if self.device is None or self.tiles is not None:
                raise self.refused("a maximal sharding has one device", "sharding.maximal-device")
            return Sharding("maximal", device=self.device)
        if kind != "tiled":
            if self.device is not None or self.tiles is not None:
                raise self.refused(f"a {kind} sharding has no devices", "sharding.no-devices")
            return Sharding(kind)
        if self.tiles is None or self.device is not None:
            raise self.refused("a tiled sharding needs devices=[...]", "sharding.tiles")
        kinds = tuple(self.last_tile_dims or ())
        if len(kinds) > len(self.tiles.dimensions):
            message = f"{len(kinds)} last_tile_dims in {plural(len(self.tiles.dimensions), 'tile dimension')}"
            raise self.refused(message, "sharding.last-tile-dims")
        return Sharding.tiled(self.tiles, kinds)

    def refused(self, message: str, rule: str) -> ParseError:
        return self.cursor.error(message, rule=rule, position=self.start)
