"""Groups, permutations and tiles of devices as digits of a mesh, against the lists of their members."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from hloom.ir.affine import Index, Variable
from hloom.ir.device_groups import DeviceList, IotaDeviceList, IotaTiles
from hloom.proofs.relations.indices import Quotients
from hloom.proofs.relations.mesh import (
    AxisGroup,
    DeviceAxes,
    NoRelation,
    _steps,  # pyright: ignore[reportPrivateUsage]
    groups_of,
    sources,
)
from tests.proofs.test_relation_terms import value

SIZES = (2, 3, 4)
DEVICES = np.arange(24)


def digits_of(axes: DeviceAxes, device: int) -> dict[Variable, int]:
    return {v: device // s % n for v, s, n in zip(axes.variables, axes.strides, axes.sizes, strict=True)}


def device_of(axes: DeviceAxes, digits: Mapping[Variable, int]) -> int:
    return value(axes.device, digits)


def groups_along(dimensions: Sequence[int]) -> np.ndarray:
    """Return the groups of devices that differ in some digits, in that order, major first."""
    others = [d for d in range(len(SIZES)) if d not in dimensions]
    count = math.prod(SIZES[d] for d in dimensions)
    return DEVICES.reshape(SIZES).transpose(*others, *dimensions).reshape(-1, count)


def test_device_ids_have_digits() -> None:
    axes = DeviceAxes(SIZES, 24)
    assert axes.strides == (12, 4, 1)
    for device in DEVICES:
        digits = digits_of(axes, int(device))
        assert device_of(axes, digits) == device
        assert list(digits.values()) == axes.digits[:, device].tolist()
    assert DeviceAxes((), 1).digits.tolist() == [[0]]


@pytest.mark.parametrize(
    "dimensions",
    [p for n in range(4) for c in itertools.combinations(range(3), n) for p in itertools.permutations(c)],
)
def test_groups_are_axes_of_a_mesh(dimensions: tuple[int, ...]) -> None:
    """The digits of each member follow from its number in the group, and the number from the digits."""
    axes, quotients = DeviceAxes(SIZES, 24), Quotients()
    members = groups_along(dimensions)
    group = axes.group(DeviceList(groups=tuple(map(tuple, members.tolist()))))
    assert group.size == members.shape[1]
    assert set(group.weights) == {axes.variables[d] for d in dimensions}
    place = Variable(group.size, "m")
    digits = group.at(Index.of(place), quotients)
    for row in members.tolist():
        for number, device in enumerate(row):
            own = digits_of(axes, row[0]) | {v: value(i, {place: number}) for v, i in digits.items()}
            assert device_of(axes, own) == device
            assert value(group.member, digits_of(axes, device)) == number


@pytest.mark.parametrize(
    "members",
    [
        groups_along((0, 2))[:, ::-1], groups_along((1,))[:-1], DEVICES.reshape(8, 3),
        np.roll(DEVICES.reshape(2, 12), 1, axis=1), np.array([[0, 5], [1, 4]]),
        groups_along((2,))[:, [1, 0, 2, 3]],
    ],
)  # fmt: skip
def test_groups_that_are_no_axes(members: np.ndarray) -> None:
    """In another order, of some devices only, or across digits."""
    with pytest.raises(NoRelation, match="no axes of a mesh"):
        AxisGroup(DeviceAxes(SIZES, 24), members)


def test_the_order_of_members_may_not_matter() -> None:
    axes = DeviceAxes(SIZES, 24)
    groups = DeviceList(groups=tuple(map(tuple, groups_along((0, 2))[:, ::-1].tolist())))
    with pytest.raises(NoRelation):
        axes.group(groups)
    assert axes.group(groups, ordered=False).weights == {axes.variables[0]: 4, axes.variables[2]: 1}
    assert axes.group(groups, ordered=False) is axes.group(groups, ordered=False)


PERMUTATIONS = {
    "a shift along a digit": [(d, d - 4) for d in range(24) if d // 4 % 3],
    "a shift the other way": [(d, d + 12) for d in range(12)],
    "a copy of each": [(d, d) for d in range(24)],
    "one pair": [(3, 17)],
    "reversed digits": [(d, d // 4 * 4 + 3 - d % 4) for d in range(24)],
    "two shifts at once": [(d, d + 13) for d in range(12) if d % 4 < 3],
    "in part of a box": [(d, d + 1) for d in range(12) if d % 4 in (1, 2)],
}


@pytest.mark.parametrize("pairs", PERMUTATIONS.values(), ids=PERMUTATIONS)
def test_sources_of_permutations(pairs: list[tuple[int, int]]) -> None:
    """The targets are the devices whose digits meet the conditions; each receives from its source."""
    axes = DeviceAxes(SIZES, 24)
    moved, conditions = sources(axes, pairs)
    by_target = {target: source for source, target in pairs}
    for device in range(24):
        digits = digits_of(axes, device)
        assert all(value(c, digits) >= 0 for c in conditions) == (device in by_target)
        if device in by_target:
            from_digits = {v: value(i, digits) for v, i in moved.items()}
            assert device_of(axes, from_digits) == by_target[device]


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ([(0, 1), (1, 0), (2, 7)], "no box"),
        ([(0, 0), (1, 1), (2, 3)], "no box"),
        ([(0, 0), (1, 1), (2, 3), (3, 2)], "not affine"),
        ([(d, (d + 1) % 4) for d in range(4)], "not affine"),
        ([(d // 2, d) for d in range(4)], "not affine"),
    ],
)
def test_permutations_without_a_relation(pairs: list[tuple[int, int]], reason: str) -> None:
    with pytest.raises(NoRelation, match=reason):
        sources(DeviceAxes(SIZES, 24), pairs)


@pytest.mark.parametrize(
    ("groups", "rows"),
    [
        (None, [[0, 1, 2, 3]]),
        (DeviceList(groups=()), [[0, 1, 2, 3]]),
        (DeviceList(groups=((3, 1), (0, 2))), [[3, 1], [0, 2]]),
        (IotaDeviceList(2, 2, IotaTiles((2, 2), (1, 0))), [[0, 2], [1, 3]]),
        (IotaDeviceList(1, 4, IotaTiles((4,), (0,))), [[0, 1, 2, 3]]),
    ],
)
def test_lists_of_groups(groups: object, rows: list[list[int]]) -> None:
    assert groups_of(groups, 4).tolist() == rows


def test_groups_of_different_sizes_have_no_relation() -> None:
    with pytest.raises(NoRelation, match="different sizes"):
        groups_of(DeviceList(groups=((0, 1), (2,))), 3)


@pytest.mark.parametrize(
    ("ids", "bounds"),
    [
        ([5], set[int]()), ([0, 1, 2, 3], {1, 4}), ([1, 5, 9], {4, 12}), ([0, 1, 4, 5], {1, 2, 4, 8}),
        ([0, 4, 12, 16], {4, 8, 12, 24}), ([2, 3], {1, 2}),
    ],
)  # fmt: skip
def test_runs_of_equal_steps(ids: list[int], bounds: set[int]) -> None:
    assert _steps(ids) == bounds
