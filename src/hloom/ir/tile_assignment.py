"""Assignment of tiles to devices: ``devices=[2,2]3,1,2,0`` or ``devices=[4,2]<=[2,4]T(1,0)``."""

from __future__ import annotations

import math
from itertools import pairwise

from hloom.errors import plural
from hloom.ir.cursor import Cursor
from hloom.ir.device_groups import IotaTiles
from hloom.records import dataclass


@dataclass(frozen=True, slots=True)
class TileAssignment:
    """An array of devices, one for each tile.

    Attributes:
        dimensions: the number of tiles along each dimension.
        devices: the devices in row-major order, as an arranged iota or a list of numbers.
    """

    dimensions: tuple[int, ...]
    devices: IotaTiles | tuple[int, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the devices in row-major order as a list."""
        return self.devices.numbers if isinstance(self.devices, IotaTiles) else self.devices

    @property
    def tile_count(self) -> int:
        """Return the number of tiles."""
        return math.prod(self.dimensions)

    @staticmethod
    def parse(cursor: Cursor) -> TileAssignment:
        """Parse ``[2,2]3,1,2,0`` or ``[4,2]<=[2,4]T(1,0)``; every tile has one device."""
        start = cursor.start()
        dimensions = cursor.integers("[", "]")
        if not dimensions or min(dimensions) < 0:
            raise cursor.error(
                f"{list(dimensions)} are not numbers of tiles",
                rule="sharding.tile-dimensions",
                position=start,
            )
        if cursor.accept("<="):
            devices: IotaTiles | tuple[int, ...] = _parse_iota(cursor)
            count = math.prod(devices.reshape)
        else:
            listed = [cursor.integer()]
            while cursor.accept(","):
                listed.append(cursor.integer())
            devices, count = tuple(listed), len(listed)
            if count < 2:
                message = "a tiled sharding lists two or more devices"
                raise cursor.error(message, rule="sharding.tiled-devices", position=start)
        if count != math.prod(dimensions):
            message = (
                f"there are {plural(math.prod(dimensions), 'tile')}; as many devices are wanted, got {count}"
            )
            raise cursor.error(message, rule="sharding.device-count", position=start)
        return TileAssignment(dimensions, devices)

    def text(self) -> str:
        """Return the text ``devices=[2,2]3,1,2,0``."""
        dimensions = ",".join(map(str, self.dimensions))
        if isinstance(self.devices, IotaTiles):
            return f"devices=[{dimensions}]<={self.devices.text()}"
        return f"devices=[{dimensions}]{','.join(map(str, self.devices))}"

    def factors(self) -> tuple[tuple[int, ...], list[tuple[int, ...]]] | None:
        """Split the devices' numbers so that each dimension is a product of parts; None if impossible.

        Return the sizes of the parts, major first, and for each dimension the numbers of its parts.
        """
        return _factors(self.devices, self.dimensions) if isinstance(self.devices, IotaTiles) else None

    def reshaped(self, dimensions: tuple[int, ...]) -> TileAssignment:
        """Return the same devices in the same row-major order with other dimensions."""
        return TileAssignment(dimensions, self.devices)

    def transposed(self, permutation: tuple[int, ...]) -> TileAssignment:
        """Return the transpose, whose dimension ``i`` is ``permutation[i]``; keep an iota if possible."""
        dimensions = tuple(self.dimensions[d] for d in permutation)
        if isinstance(self.devices, IotaTiles):
            factors = _factors(self.devices, self.dimensions)
            if factors is not None:
                reshape, groups = factors
                order = tuple(factor for d in permutation for factor in groups[d])
                return TileAssignment(dimensions, IotaTiles.canonical(reshape, order))
        import numpy as np

        array = np.array(self.numbers).reshape(self.dimensions).transpose(permutation)
        return TileAssignment(dimensions, tuple(array.ravel().tolist()))

    def sorted_along_last(self) -> TileAssignment:
        """Return the assignment with each row of the last dimension sorted in ascending order."""
        if isinstance(self.devices, IotaTiles):
            factors = _factors(self.devices, self.dimensions)
            if factors is not None:
                reshape, groups = factors
                order = [factor for group in groups[:-1] for factor in group] + sorted(groups[-1])
                return TileAssignment(self.dimensions, IotaTiles.canonical(reshape, tuple(order)))
        import numpy as np

        array = np.sort(np.array(self.numbers).reshape(self.dimensions), axis=-1)
        return TileAssignment(self.dimensions, tuple(array.ravel().tolist()))


def _parse_iota(cursor: Cursor) -> IotaTiles:
    """Parse ``[8]`` or ``[2,4]T(1,0)``; only one dimension may omit the transposition."""
    start = cursor.start()
    reshape = cursor.integers("[", "]")
    if len(reshape) == 1:
        permutation: tuple[int, ...] = (0,)
    else:
        cursor.expect("T")
        permutation = cursor.integers("(", ")")
    if sorted(permutation) != list(range(len(reshape))) or min(reshape, default=0) < 1:
        message = f"{list(permutation)} does not permute the dimensions of {list(reshape)}"
        raise cursor.error(message, rule="sharding.iota-permutation", position=start)
    return IotaTiles.canonical(reshape, permutation)


def _factors(
    iota: IotaTiles, dimensions: tuple[int, ...]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]] | None:
    """Split the iota's dimensions so that each of ``dimensions`` is a product of parts; None if impossible.

    Return the split reshape dimensions, and for each of ``dimensions`` the numbers of its parts.
    """
    arranged = [iota.reshape[d] for d in iota.permutation]
    cuts = sorted({*_strides(arranged), *_strides(dimensions), math.prod(arranged)})
    if any(larger % smaller for smaller, larger in pairwise(cuts)):
        return None
    pieces = {stride: larger // stride for stride, larger in pairwise(cuts)}
    # The parts of each reshape dimension, major to minor, identified by their strides in the arrangement.
    of_source: dict[int, list[int]] = {}
    for source, stride, size in zip(iota.permutation, _strides(arranged), arranged):
        of_source[source] = [s for s in reversed(cuts) if stride <= s < stride * size]
    in_order = [stride for source in sorted(of_source) for stride in of_source[source]]
    number = {stride: i for i, stride in enumerate(in_order)}
    groups = [
        tuple(number[s] for s in reversed(cuts) if stride <= s < stride * size)
        for stride, size in zip(_strides(dimensions), dimensions)
    ]
    return tuple(pieces[stride] for stride in in_order) or (1,), groups


def _strides(sizes: tuple[int, ...] | list[int]) -> list[int]:
    """Return the row-major strides of an array of these sizes."""
    strides = [1] * len(sizes)
    for i in range(len(sizes) - 2, -1, -1):
        strides[i] = strides[i + 1] * sizes[i + 1]
    return strides
