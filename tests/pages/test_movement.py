"""XLA's page "Operation semantics", example by example, with its names and numbers.

Conversions, shapes, positions, calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hloom
from hloom import XlaOp, ops
from hloom.shape.element_type import BF16, F16, F32, S8
from tests.arrays import f32, s32, s64
from tests.builder.building import ADD, built, scalar
from tests.pages.both import rule_of, value

V = f32([[[10, 11, 12], [15, 16, 17]], [[20, 21, 22], [25, 26, 27]],
       [[30, 31, 32], [35, 36, 37]], [[40, 41, 42], [45, 46, 47]]])  # fmt: skip
A = f32([0, 1, 2, 3, 4])
B = f32([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]])


# -- conversions


def test_bitcast_convert_to_other_widths() -> None:
    def shape(function: Callable[[XlaOp], XlaOp], operand: str) -> str:
        return built(function, operand).entry.root.shape.to_string(layout=False)

    assert shape(lambda x: ops.BitcastConvertType(x, F16), "f32[10]") == "f16[10,2]"
    assert shape(lambda x: ops.BitcastConvertType(x, F16), "f32[]") == "f16[2]"
    assert shape(lambda x: ops.BitcastConvertType(x, F32), "f16[10,2]") == "f32[10]"
    assert rule_of(lambda x: ops.BitcastConvertType(x, F32), "f16[10,3]").startswith("bitcast-convert.")
    assert value(lambda x: ops.BitcastConvertType(x, S8), s32(0x04030201)).tolist() == [1, 2, 3, 4]
    there_and_back = value(
        lambda x: ops.BitcastConvertType(ops.BitcastConvertType(x, BF16), F32), f32([1.5, -np.inf])
    )
    assert there_and_back.tolist() == [1.5, -np.inf]


def test_convert_element_type() -> None:
    b = value(lambda a: ops.ConvertElementType(a, F32), s32([0, 1, 2]))
    assert (b.dtype, b.tolist()) == (f32, [0.0, 1.0, 2.0])


# -- shapes


def test_broadcast() -> None:
    result = value(lambda x: ops.Broadcast(x, [2, 3]), f32(2))
    assert (result.shape, set(result.ravel().tolist())) == ((2, 3), {2.0})
    x = np.arange(6, dtype=f32).reshape(2, 3)
    output = value(lambda x: ops.Broadcast(x, [4, 5]), x)
    for i0, i1, j0, j1 in np.ndindex(4, 5, 2, 3):
        assert output[i0, i1, j0, j1] == x[j0, j1]


def test_broadcast_in_dim() -> None:
    assert value(lambda x: ops.BroadcastInDim(x, [2, 3, 2], [0, 2]), f32([[1, 2], [3, 4]])).tolist() == [
        [[1, 2]] * 3, [[3, 4]] * 3
    ]  # fmt: skip
    assert value(lambda x: ops.BroadcastInDim(x, [2, 2], [0, 1]), f32([[1], [2]])).tolist() == [
        [1, 1],
        [2, 2],
    ]


def test_clamp() -> None:
    assert value(lambda o: ops.Clamp(0, o, 6), s32([-1, 5, 9])).tolist() == [0, 5, 6]


def test_collapse() -> None:
    # The page's second and third results stand with each other's dimensions.
    assert value(lambda v: ops.Collapse(v, [0, 1, 2]), V).tolist() == [
        10, 11, 12, 15, 16, 17, 20, 21, 22, 25, 26, 27, 30, 31, 32, 35, 36, 37, 40, 41, 42, 45, 46, 47
    ]  # fmt: skip
    assert value(lambda v: ops.Collapse(v, [1, 2]), V).tolist() == [
        [10, 11, 12, 15, 16, 17], [20, 21, 22, 25, 26, 27], [30, 31, 32, 35, 36, 37], [40, 41, 42, 45, 46, 47]
    ]  # fmt: skip
    assert value(lambda v: ops.Collapse(v, [0, 1]), V).tolist() == [
        [10, 11, 12], [15, 16, 17], [20, 21, 22], [25, 26, 27], [30, 31, 32], [35, 36, 37], [40, 41, 42],
        [45, 46, 47]
    ]  # fmt: skip
    assert rule_of(lambda v: ops.Collapse(v, [1, 0]), "f32[4,2,3]") == "collapse.consecutive"
    assert rule_of(lambda v: ops.Collapse(v, [0, 2]), "f32[4,2,3]") == "collapse.consecutive"


def test_concatenate() -> None:
    parts = [f32([2, 3]), f32([4, 5]), f32([6, 7])]
    assert value(lambda *p: ops.ConcatInDim(p, 0), *parts).tolist() == [2, 3, 4, 5, 6, 7]
    a, b = f32([[1, 2], [3, 4], [5, 6]]), f32([[7, 8]])
    assert value(lambda a, b: ops.Concatenate([a, b], 0), a, b).tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert rule_of(lambda a: ops.ConcatInDim([a, a], 0), "f32[]").startswith("concatenate.")


def test_iota() -> None:
    assert value(lambda b: ops.Iota(b, "s32[4,8]", 0)).tolist() == [[i] * 8 for i in range(4)]
    assert value(lambda b: ops.Iota(b, "s32[4,8]", 1)).tolist() == [list(range(8))] * 4


def test_pad() -> None:
    x = f32([[1, 2, 3], [4, 5, 6]])
    config = [(1, 0, 0), (0, 1, 1)]  # edge_padding_low, edge_padding_high, interior_padding
    assert value(lambda x: ops.Pad(x, 9, config), x).tolist() == [
        [9, 9, 9, 9, 9, 9], [1, 9, 2, 9, 3, 9], [4, 9, 5, 9, 6, 9]
    ]  # fmt: skip
    assert value(lambda x: ops.Pad(x, 9, [(0, 0, 0)] * 2), x).tolist() == x.tolist()
    # Negative edges remove elements of the operand that the interior padding has spread already.
    assert value(lambda x: ops.Pad(x, 9, [(-1, 0, 1), (-1, -2, 1)]), x).tolist() == [[9, 9], [9, 5]]


def test_reshape() -> None:
    def reshaped(*arguments: Any) -> Any:
        return value(lambda v: ops.Reshape(v, *arguments), V).tolist()

    in_order, out_of_order = [0, 1, 2], [1, 2, 0]
    assert reshaped(in_order, [24]) == reshaped([24]) == V.reshape(24).tolist()
    assert reshaped(in_order, [8, 3]) == [
        [10, 11, 12], [15, 16, 17], [20, 21, 22], [25, 26, 27], [30, 31, 32], [35, 36, 37], [40, 41, 42],
        [45, 46, 47]
    ]  # fmt: skip
    assert reshaped(out_of_order, [24]) == [
        10, 20, 30, 40, 11, 21, 31, 41, 12, 22, 32, 42, 15, 25, 35, 45, 16, 26, 36, 46, 17, 27, 37, 47
    ]  # fmt: skip
    assert reshaped(out_of_order, [8, 3]) == [
        [10, 20, 30], [40, 11, 21], [31, 41, 12], [22, 32, 42], [15, 25, 35], [45, 16, 26], [36, 46, 17],
        [27, 37, 47]
    ]  # fmt: skip
    assert reshaped(out_of_order, [2, 6, 2]) == [
        [[10, 20], [30, 40], [11, 21], [31, 41], [12, 22], [32, 42]],
        [[15, 25], [35, 45], [16, 26], [36, 46], [17, 27], [37, 47]],
    ]
    assert value(lambda v: ops.Reshape(v, [0, 1], []), f32([[5]])).tolist() == 5
    assert value(lambda v: ops.Reshape(v, [], [1, 1]), f32(5)).tolist() == [[5]]


def test_rev() -> None:
    x = np.arange(24, dtype=f32).reshape(2, 3, 4)
    output = value(lambda x: ops.Rev(x, [0, 2]), x)
    for i, j, k in np.ndindex(2, 3, 4):
        assert output[2 - 1 - i, j, 4 - 1 - k] == x[i, j, k]


def test_slice() -> None:
    assert value(lambda a: ops.Slice(a, [2], [4]), A).tolist() == [2, 3]
    assert value(lambda b: ops.Slice(b, [2, 1], [4, 3]), B).tolist() == [[7, 8], [10, 11]]


def test_transpose() -> None:
    x = np.arange(24, dtype=f32).reshape(2, 3, 4)
    permutation = [2, 0, 1]
    output = value(lambda x: ops.Transpose(x, permutation), x)
    assert all(x.shape[permutation[i]] == output.shape[i] for i in range(3))
    assert (output == value(lambda x: ops.Reshape(x, permutation, [4, 2, 3]), x)).all()


# -- dynamic positions


def test_dynamic_slice() -> None:
    assert value(lambda a, s: ops.DynamicSlice(a, [s], [2]), A, s32(2)).tolist() == [2, 3]
    b = value(lambda b, y, x: ops.DynamicSlice(b, [y, x], [2, 2]), B, s32(2), s32(1))
    assert b.tolist() == [[7, 8], [10, 11]]


def test_dynamic_update_slice() -> None:
    updated = value(lambda a, u, s: ops.DynamicUpdateSlice(a, u, [s]), A, f32([5, 6]), s32(2))
    assert updated.tolist() == [0, 1, 5, 6, 4]
    u = f32([[12, 13], [14, 15], [16, 17]])
    assert value(lambda b, u: ops.DynamicUpdateSlice(b, u, [1, 1]), B, u).tolist() == [
        [0, 1, 2], [3, 12, 13], [6, 14, 15], [9, 16, 17]
    ]  # fmt: skip


def gathered(
    operand: Any, start_indices: Any, offset_dims: Any, collapsed: Any, sizes: Any, start_index_map: Any
) -> Any:
    """The page's formal definition, index by index; index_vector_dim is the last."""
    index_vector_dim = start_indices.ndim - 1
    batch_bounds = start_indices.shape[:index_vector_dim]
    adjusted = [size for i, size in enumerate(sizes) if i not in collapsed]
    rank = len(batch_bounds) + len(offset_dims)
    batch_dims = [i for i in range(rank) if i not in offset_dims]
    bounds = [0] * rank
    for k, i in enumerate(batch_dims):
        bounds[i] = batch_bounds[k]
    for k, i in enumerate(offset_dims):
        bounds[i] = adjusted[k]
    remapped = [i for i in range(operand.ndim) if i not in collapsed]
    output = np.empty(bounds, operand.dtype)
    for out in np.ndindex(*bounds):
        s = start_indices[tuple(out[k] for k in batch_dims)]
        index = [0] * operand.ndim
        for k, dim in enumerate(start_index_map):
            index[dim] += s[k]
        for k, dim in enumerate(offset_dims):
            index[remapped[k]] += out[dim]
        output[out] = operand[tuple(index)]
    return output


@pytest.mark.parametrize(
    ("bounds", "offset_dims", "collapsed", "sizes", "start_index_map"),
    [
        ((5, 2), [1, 2], [], [8, 6], [0, 1]),
        ((4, 5, 2), [2, 3], [], [8, 6], [0, 1]),
        ((4, 5, 2), [0, 2], [], [8, 6], [1, 0]),
        ((4, 5, 1), [2], [0], [1, 11], [0]),  # tf.gather_nd
    ],
)
def test_gather(bounds: Any, offset_dims: Any, collapsed: Any, sizes: Any, start_index_map: Any) -> None:
    operand = np.arange(16 * 11, dtype=f32).reshape(16, 11)
    most = [16 - sizes[0], 11 - sizes[1]]
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, most[dim] + 1, bounds[:-1]) for dim in start_index_map]
    indices = np.stack(columns, -1).astype(np.int64)
    found = value(
        lambda o, i: ops.Gather(o, i, offset_dims, collapsed, sizes, start_index_map), operand, indices
    )
    wanted = gathered(operand, indices, offset_dims, collapsed, sizes, start_index_map)
    assert found.shape == wanted.shape
    assert (found == wanted).all()


def test_scatter_is_the_inverse_of_gather() -> None:
    operand = np.zeros((16, 11), f32)
    indices = s64([[0, 0], [8, 5], [4, 3]])
    updates = np.arange(3 * 8 * 6, dtype=f32).reshape(3, 8, 6) + 1
    wanted = operand.copy()
    for g, o0, o1 in np.ndindex(3, 8, 6):  # update_scatter_dims {0}, update_window_dims {1, 2}
        x, y = indices[g]
        wanted[x + o0, y + o1] += updates[g, o0, o1]
    found = value(lambda o, i, u: ops.Scatter(o, i, u, ADD, 1, [1, 2], [], [0, 1]), operand, indices, updates)
    assert (found == wanted).all()


def test_scatter_passes_the_current_value_first() -> None:
    subtract = scalar(lambda current, update: current - update, "f32", "f32")
    found = value(
        lambda o, i, u: ops.Scatter(o, i, u, subtract, 1, [], [0], [0]),
        f32([10, 20]),
        s32([1, 1]),
        f32([3, 4]),
    )
    assert found.tolist() == [10, 13]


def test_dimension_sizes() -> None:
    v = f32(np.arange(1, 11))
    product = scalar(lambda x, y: x * y, "f32", "f32")
    for size, total, times in ((5, 15, 120), (6, 21, 720)):
        padded = built(lambda v, n: ops.SetDimensionSize(v, n, 0), "f32[10]", "s32[]")
        assert padded.entry.root.shape.dimensions == (10,)
        assert (
            value(lambda v, n: ops.Reduce(ops.SetDimensionSize(v, n, 0), 0, ADD, [0]), v, s32(size)) == total
        )
        assert value(
            lambda v, n: ops.Reduce(ops.SetDimensionSize(v, n, 0), 1, product, [0]), v, s32(size)
        ) == (times)
        sized = value(lambda v, n: ops.GetDimensionSize(ops.SetDimensionSize(v, n, 0), 0), v, s32(size))
        assert sized == size


# -- calls, branches, loops, tuples


def test_conditional_in_both_forms() -> None:
    double, negate = scalar(lambda x: x * 2, "f32"), scalar(lambda x: -x, "f32")
    for pred, wanted in ((True, 6), (False, -4)):
        found = value(lambda p: ops.Conditional(p, f32(3), double, f32(4), negate), np.bool_(pred))
        assert found == wanted
    for branch, wanted in ((0, 2), (1, -10), (2, 200), (3, 200), (-1, 200)):
        found = value(
            lambda i: ops.Conditional(i, [double, negate, double], [f32(1), f32(10), f32(100)]), s32(branch)
        )
        assert found == wanted


def test_custom_call_of_a_c_function() -> None:
    seen: list[float] = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
    def myfunc(out: Any, inputs: Any) -> None:
        x = ctypes.cast(inputs[0], ctypes.POINTER(ctypes.c_float))
        y = ctypes.cast(inputs[1], ctypes.POINTER(ctypes.c_float))
        z = ctypes.cast(out, ctypes.POINTER(ctypes.c_float))
        seen.extend([x[0], x[1], *y[:6]])
        for i in range(9):
            z[i] = 0
        z[0] = x[1] + y[3]

    hloom.register_custom_call("pages.myfunc", myfunc)
    x, y = f32([1, 2]), f32([[10, 20, 30], [40, 50, 60]])
    found = value(lambda x, y: ops.CustomCall("pages.myfunc", [x, y], "f32[3,3]"), x, y)
    assert seen == [1, 2, 10, 20, 30, 40, 50, 60] * 2  # once on each backend
    assert found.tolist() == [[42, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_tuples() -> None:
    v, s = f32(np.arange(10)), s32(5)
    assert value(lambda v, s: ops.GetTupleElement(ops.Tuple([v, s]), 1), v, s) == 5
    element = built(lambda v, s: ops.GetTupleElement(ops.Tuple([v, s]), 1), "f32[10]", "s32[]")
    assert str(element.entry.root.shape) == "s32[]"


def test_while_adds_a_vector_a_thousand_times() -> None:
    state = "(s32[], f32[10])"
    condition = built(lambda result: result[0] < 1000, state)
    body = built(lambda result: ops.Tuple([result[0] + 1, result[1] + f32([0.5] * 10)]), state)
    count, vector = value(
        lambda v: ops.While(condition, body, ops.Tuple([ops.Constant(v.builder, s32(0)), v])), f32([0] * 10)
    )
    assert (count.tolist(), vector.tolist()) == (1000, [500.0] * 10)


def test_map() -> None:
    computation = scalar(lambda x, y, z, par1: (x + y) * z - par1, "f32", "f32", "f32", "f32")
    par1 = f32(0.5)
    op1, op2, op3 = (np.random.default_rng(seed).random((2, 3), f32) for seed in range(3))
    found = value(
        lambda a, b, c: ops.Map([a, b, c, np.full((2, 3), par1)], computation, [0, 1]), op1, op2, op3
    )
    assert (found == (op1 + op2) * op3 - par1).all()
