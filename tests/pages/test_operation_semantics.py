"""XLA's page "Operation semantics", example by example in the page's order, with its names and numbers."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hloom
from builder.building import ADD, GE, LT, MAX, MIN, built, scalar, value
from hloom import DeadlockError, HloError, Shape, XlaOp, ops
from hloom.shape.element_type import BF16, F16, F32, S8

F = np.float32
I = np.int32  # noqa: E741
V = F([[[10, 11, 12], [15, 16, 17]], [[20, 21, 22], [25, 26, 27]],
       [[30, 31, 32], [35, 36, 37]], [[40, 41, 42], [45, 46, 47]]])  # fmt: skip
A = F([0, 1, 2, 3, 4])
B = F([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]])


def on_replicas(function: Callable[..., XlaOp], *inputs: Any) -> list[Any]:
    """What each replica gets from a program of one parameter."""
    module = built(function, str(Shape.of(inputs[0])))
    return hloom.compile(module, num_replicas=len(inputs)).run([[each] for each in inputs])


def rule_of(function: Callable[..., XlaOp], *shapes: str) -> str:
    with pytest.raises(HloError) as caught:
        built(function, *shapes)
    return caught.value.rule


# -- collectives, whose examples have two replicas with [1.0, 2.5] and [3.0, 5.25]


def test_all_gather() -> None:
    results = on_replicas(lambda x: ops.AllGather(x, 0, 2), F([1, 2.5]), F([3, 5.25]))
    assert [r.tolist() for r in results] == [[1.0, 2.5, 3.0, 5.25]] * 2


def test_all_gather_in_groups_keeps_their_order() -> None:
    inputs = [F([10 * replica]) for replica in range(4)]
    results = on_replicas(lambda x: ops.AllGather(x, 0, 2, [[0, 2], [3, 1]]), *inputs)
    assert [r.tolist() for r in results] == [[0, 20], [30, 10], [0, 20], [30, 10]]


def test_all_reduce() -> None:
    for function in (lambda x: ops.AllReduce(x, ADD), ops.CrossReplicaSum):
        results = on_replicas(function, F([1, 2.5]), F([3, 5.25]))
        assert [r.tolist() for r in results] == [[4.0, 7.75]] * 2


def test_all_reduce_of_a_tuple() -> None:
    results = on_replicas(lambda x: ops.AllReduce(ops.Tuple([x, x * 2]), ADD), F([1, 2.5]), F([3, 5.25]))
    assert [[e.tolist() for e in r] for r in results] == [[[4, 7.75], [8, 15.5]]] * 2


def test_a_replica_that_reduces_more_often_than_another_waits_for_ever() -> None:
    def reduce_so_often(times: XlaOp) -> XlaOp:
        more = built(lambda state: state[0] > 0, "(s32[], f32[])")
        body = built(lambda state: ops.Tuple([state[0] - 1, ops.AllReduce(state[1], ADD)]), "(s32[], f32[])")
        return ops.While(more, body, ops.Tuple([times, ops.Constant(times.builder, F(1))]))

    with pytest.raises(DeadlockError) as caught:
        on_replicas(reduce_so_often, I(2), I(3))
    assert "(replica 1, partition 0) waits in all-reduce %all-reduce for device (replica 0" in str(
        caught.value
    )


def test_all_to_all() -> None:
    inputs = [np.arange(64, dtype=F).reshape(4, 16) + 100 * core for core in range(4)]
    results = on_replicas(
        lambda x: ops.AllToAll(x, split_dimension=1, concat_dimension=0, split_count=4), *inputs
    )
    for core, result in enumerate(results):
        assert result.shape == (16, 4)
        assert (result == np.concatenate([np.split(x, 4, 1)[core] for x in inputs], 0)).all()


def test_collective_permute_leaves_zeros_where_nothing_arrives() -> None:
    results = on_replicas(lambda x: ops.CollectivePermute(x, [(0, 1), (1, 2)]), F([5]), F([6]), F([7]))
    assert [r.tolist() for r in results] == [[0], [5], [6]]
    twice = "collective-permute"
    assert rule_of(lambda x: ops.CollectivePermute(x, [(0, 1), (2, 1)]), "f32[]").startswith(twice)
    assert rule_of(lambda x: ops.CollectivePermute(x, [(0, 1), (0, 2)]), "f32[]").startswith(twice)


def test_reduce_scatter() -> None:
    results = on_replicas(lambda x: ops.ReduceScatter(x, ADD, 0, 2), F([1, 2.25]), F([3, 5.25]))
    assert [r.tolist() for r in results] == [[4.0], [7.5]]


def test_replica_id() -> None:
    results = on_replicas(lambda x: ops.ReplicaId(x.builder), *([F(0)] * 3))
    assert [(r.tolist(), r.dtype) for r in results] == [(0, np.uint32), (1, np.uint32), (2, np.uint32)]


# -- batch normalization, in the page's formulas


def test_batch_norm_training_and_inference() -> None:
    x = np.random.default_rng(0).normal(size=(3, 2, 2, 5)).astype(F)
    gamma, beta, epsilon = F(np.arange(1, 6)), F(np.arange(5)), 0.001
    mu, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    y = gamma * (x - mu) / np.sqrt(variance + epsilon) + beta
    output, batch_mean, batch_var = value(
        lambda x, g, b: ops.BatchNormTraining(x, g, b, epsilon, 3), x, gamma, beta
    )
    for found, wanted in ((output, y), (batch_mean, mu), (batch_var, variance)):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    same = value(
        lambda *a: ops.BatchNormInference(*a, epsilon=epsilon, feature_index=3), x, gamma, beta, mu, variance
    )
    np.testing.assert_allclose(same, y, rtol=1e-4, atol=1e-5)


def test_batch_norm_grad() -> None:
    rng = np.random.default_rng(1)
    x, grad_y = rng.normal(size=(2, 3, 2, 4)), rng.normal(size=(2, 3, 2, 4))
    gamma, epsilon, axes = np.arange(1.0, 5), 0.01, (0, 1, 2)
    mu, variance = x.mean(axes), x.var(axes)
    c = (grad_y * (x - mu) / (variance + epsilon)).mean(axes)
    d = grad_y.mean(axes)
    wanted = (
        gamma / np.sqrt(variance + epsilon) * (grad_y - d - c * (x - mu)),
        (grad_y * (x - mu) / np.sqrt(variance + epsilon)).sum(axes),
        grad_y.sum(axes),
    )
    found = value(
        lambda *a: ops.BatchNormGrad(*a, epsilon=epsilon, feature_index=3), x, gamma, mu, variance, grad_y
    )
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)


# -- conversions


def test_bitcast_convert_to_other_widths() -> None:
    def shape(function: Callable[[XlaOp], XlaOp], operand: str) -> str:
        return built(function, operand).entry.root.shape.to_string(layout=False)

    assert shape(lambda x: ops.BitcastConvertType(x, F16), "f32[10]") == "f16[10,2]"
    assert shape(lambda x: ops.BitcastConvertType(x, F16), "f32[]") == "f16[2]"
    assert shape(lambda x: ops.BitcastConvertType(x, F32), "f16[10,2]") == "f32[10]"
    assert rule_of(lambda x: ops.BitcastConvertType(x, F32), "f16[10,3]").startswith("bitcast-convert.")
    assert value(lambda x: ops.BitcastConvertType(x, S8), I(0x04030201)).tolist() == [1, 2, 3, 4]
    there_and_back = value(
        lambda x: ops.BitcastConvertType(ops.BitcastConvertType(x, BF16), F32), F([1.5, -np.inf])
    )
    assert there_and_back.tolist() == [1.5, -np.inf]


def test_convert_element_type() -> None:
    b = value(lambda a: ops.ConvertElementType(a, F32), I([0, 1, 2]))
    assert (b.dtype, b.tolist()) == (F, [0.0, 1.0, 2.0])


# -- shapes


def test_broadcast() -> None:
    result = value(lambda x: ops.Broadcast(x, [2, 3]), F(2))
    assert (result.shape, set(result.ravel().tolist())) == ((2, 3), {2.0})
    x = np.arange(6, dtype=F).reshape(2, 3)
    output = value(lambda x: ops.Broadcast(x, [4, 5]), x)
    for i0, i1, j0, j1 in np.ndindex(4, 5, 2, 3):
        assert output[i0, i1, j0, j1] == x[j0, j1]


def test_broadcast_in_dim() -> None:
    assert value(lambda x: ops.BroadcastInDim(x, [2, 3, 2], [0, 2]), F([[1, 2], [3, 4]])).tolist() == [
        [[1, 2]] * 3, [[3, 4]] * 3
    ]  # fmt: skip
    assert value(lambda x: ops.BroadcastInDim(x, [2, 2], [0, 1]), F([[1], [2]])).tolist() == [[1, 1], [2, 2]]


def test_clamp() -> None:
    assert value(lambda o: ops.Clamp(0, o, 6), I([-1, 5, 9])).tolist() == [0, 5, 6]


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
    parts = [F([2, 3]), F([4, 5]), F([6, 7])]
    assert value(lambda *p: ops.ConcatInDim(p, 0), *parts).tolist() == [2, 3, 4, 5, 6, 7]
    a, b = F([[1, 2], [3, 4], [5, 6]]), F([[7, 8]])
    assert value(lambda a, b: ops.Concatenate([a, b], 0), a, b).tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert rule_of(lambda a: ops.ConcatInDim([a, a], 0), "f32[]").startswith("concatenate.")


def test_iota() -> None:
    assert value(lambda b: ops.Iota(b, "s32[4,8]", 0)).tolist() == [[i] * 8 for i in range(4)]
    assert value(lambda b: ops.Iota(b, "s32[4,8]", 1)).tolist() == [list(range(8))] * 4


def test_pad() -> None:
    x = F([[1, 2, 3], [4, 5, 6]])
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
    assert value(lambda v: ops.Reshape(v, [0, 1], []), F([[5]])).tolist() == 5
    assert value(lambda v: ops.Reshape(v, [], [1, 1]), F(5)).tolist() == [[5]]


def test_rev() -> None:
    x = np.arange(24, dtype=F).reshape(2, 3, 4)
    output = value(lambda x: ops.Rev(x, [0, 2]), x)
    for i, j, k in np.ndindex(2, 3, 4):
        assert output[2 - 1 - i, j, 4 - 1 - k] == x[i, j, k]


def test_slice() -> None:
    assert value(lambda a: ops.Slice(a, [2], [4]), A).tolist() == [2, 3]
    assert value(lambda b: ops.Slice(b, [2, 1], [4, 3]), B).tolist() == [[7, 8], [10, 11]]


def test_transpose() -> None:
    x = np.arange(24, dtype=F).reshape(2, 3, 4)
    permutation = [2, 0, 1]
    output = value(lambda x: ops.Transpose(x, permutation), x)
    assert all(x.shape[permutation[i]] == output.shape[i] for i in range(3))
    assert (output == value(lambda x: ops.Reshape(x, permutation, [4, 2, 3]), x)).all()


# -- dynamic positions


def test_dynamic_slice() -> None:
    assert value(lambda a, s: ops.DynamicSlice(a, [s], [2]), A, I(2)).tolist() == [2, 3]
    b = value(lambda b, y, x: ops.DynamicSlice(b, [y, x], [2, 2]), B, I(2), I(1))
    assert b.tolist() == [[7, 8], [10, 11]]


def test_dynamic_update_slice() -> None:
    updated = value(lambda a, u, s: ops.DynamicUpdateSlice(a, u, [s]), A, F([5, 6]), I(2))
    assert updated.tolist() == [0, 1, 5, 6, 4]
    u = F([[12, 13], [14, 15], [16, 17]])
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
    operand = np.arange(16 * 11, dtype=F).reshape(16, 11)
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
    operand = np.zeros((16, 11), F)
    indices = np.int64([[0, 0], [8, 5], [4, 3]])
    updates = np.arange(3 * 8 * 6, dtype=F).reshape(3, 8, 6) + 1
    wanted = operand.copy()
    for g, o0, o1 in np.ndindex(3, 8, 6):  # update_scatter_dims {0}, update_window_dims {1, 2}
        x, y = indices[g]
        wanted[x + o0, y + o1] += updates[g, o0, o1]
    found = value(lambda o, i, u: ops.Scatter(o, i, u, ADD, 1, [1, 2], [], [0, 1]), operand, indices, updates)
    assert (found == wanted).all()


def test_scatter_passes_the_current_value_first() -> None:
    subtract = scalar(lambda current, update: current - update, "f32", "f32")
    found = value(
        lambda o, i, u: ops.Scatter(o, i, u, subtract, 1, [], [0], [0]), F([10, 20]), I([1, 1]), F([3, 4])
    )
    assert found.tolist() == [10, 13]


def test_dimension_sizes() -> None:
    v = F(np.arange(1, 11))
    product = scalar(lambda x, y: x * y, "f32", "f32")
    for size, total, times in ((5, 15, 120), (6, 21, 720)):
        padded = built(lambda v, n: ops.SetDimensionSize(v, n, 0), "f32[10]", "s32[]")
        assert padded.entry.root.shape.dimensions == (10,)
        assert value(lambda v, n: ops.Reduce(ops.SetDimensionSize(v, n, 0), 0, ADD, [0]), v, I(size)) == total
        assert value(lambda v, n: ops.Reduce(ops.SetDimensionSize(v, n, 0), 1, product, [0]), v, I(size)) == (
            times
        )
        sized = value(lambda v, n: ops.GetDimensionSize(ops.SetDimensionSize(v, n, 0), 0), v, I(size))
        assert sized == size


# -- calls, branches, loops, tuples


def test_conditional_in_both_forms() -> None:
    double, negate = scalar(lambda x: x * 2, "f32"), scalar(lambda x: -x, "f32")
    for pred, wanted in ((True, 6), (False, -4)):
        found = value(lambda p: ops.Conditional(p, F(3), double, F(4), negate), np.bool_(pred))
        assert found == wanted
    for branch, wanted in ((0, 2), (1, -10), (2, 200), (3, 200), (-1, 200)):
        found = value(
            lambda i: ops.Conditional(i, [double, negate, double], [F(1), F(10), F(100)]), I(branch)
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
    x, y = F([1, 2]), F([[10, 20, 30], [40, 50, 60]])
    found = value(lambda x, y: ops.CustomCall("pages.myfunc", [x, y], "f32[3,3]"), x, y)
    assert seen == [1, 2, 10, 20, 30, 40, 50, 60]
    assert found.tolist() == [[42, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_tuples() -> None:
    v, s = F(np.arange(10)), I(5)
    assert value(lambda v, s: ops.GetTupleElement(ops.Tuple([v, s]), 1), v, s) == 5
    element = built(lambda v, s: ops.GetTupleElement(ops.Tuple([v, s]), 1), "f32[10]", "s32[]")
    assert str(element.entry.root.shape) == "s32[]"


def test_while_adds_a_vector_a_thousand_times() -> None:
    state = "(s32[], f32[10])"
    condition = built(lambda result: result[0] < 1000, state)
    body = built(lambda result: ops.Tuple([result[0] + 1, result[1] + F([0.5] * 10)]), state)
    count, vector = value(
        lambda v: ops.While(condition, body, ops.Tuple([ops.Constant(v.builder, I(0)), v])), F([0] * 10)
    )
    assert (count.tolist(), vector.tolist()) == (1000, [500.0] * 10)


def test_map() -> None:
    computation = scalar(lambda x, y, z, par1: (x + y) * z - par1, "f32", "f32", "f32", "f32")
    par1 = F(0.5)
    op1, op2, op3 = (np.random.default_rng(seed).random((2, 3), F) for seed in range(3))
    found = value(
        lambda a, b, c: ops.Map([a, b, c, np.full((2, 3), par1)], computation, [0, 1]), op1, op2, op3
    )
    assert (found == (op1 + op2) * op3 - par1).all()


# -- products


def test_convolution_is_the_pages_loop_nest() -> None:
    rng = np.random.default_rng(0)
    input_, kernel = rng.integers(-3, 4, (2, 3, 5, 6)), rng.integers(-3, 4, (4, 3, 2, 3))
    (stride_y, stride_x), (low_y, high_y), (low_x, high_x) = (2, 1), (1, 2), (2, -1)
    ny, nx = (5 + low_y + high_y - 2) // stride_y + 1, (6 + low_x + high_x - 3) // stride_x + 1
    output = np.zeros((2, 4, ny, nx), I)
    for b, oz, oy, ox in np.ndindex(*output.shape):
        for iz, ky, kx in np.ndindex(3, 2, 3):
            iy, ix = oy * stride_y + ky - low_y, ox * stride_x + kx - low_x
            if 0 <= iy < 5 and 0 <= ix < 6:
                output[b, oz, oy, ox] += input_[b, iz, iy, ix] * kernel[oz, iz, ky, kx]
    # The base area ends where the padding says, so columns that a negative padding cuts off are not read.
    cut = output.copy()
    for b, oz, oy, ox in np.ndindex(*output.shape):
        cut[b, oz, oy, ox] = sum(
            input_[b, iz, oy * 2 + ky - 1, ox + kx - 2] * kernel[oz, iz, ky, kx]
            for iz, ky, kx in np.ndindex(3, 2, 3)
            if 0 <= oy * 2 + ky - 1 < 5 and 0 <= ox + kx - 2 < 5
        )
    found = value(
        lambda x, k: ops.ConvWithGeneralPadding(x, k, [2, 1], [(low_y, high_y), (low_x, high_x)]),
        F(input_),
        F(kernel),
    )
    assert (found == cut).all()


def test_dot() -> None:
    v, m, n = F([1, 2, 3]), F([[1, 2, 3], [4, 5, 6]]), F([[1, 0], [0, 1], [2, 2]])
    assert value(ops.Dot, v, v) == 14
    assert value(ops.Dot, m, v).tolist() == [14, 32]
    assert (value(ops.Dot, m, n) == m @ n).all()


def test_dot_general_with_contracting_dimensions() -> None:
    lhs, rhs = F([[1, 2, 3], [4, 5, 6]]), F([[1, 1, 1], [2, 2, 2]])
    numbers = {"lhs_contracting_dimensions": [1], "rhs_contracting_dimensions": [1]}
    assert value(lambda x, y: ops.DotGeneral(x, y, numbers), lhs, rhs).tolist() == [[6, 12], [15, 30]]


def test_dot_general_with_batch_dimensions() -> None:
    lhs, rhs = F([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]), F([[[1, 0], [0, 1]]] * 2)
    numbers = {
        "lhs_contracting_dimensions": [2], "rhs_contracting_dimensions": [1],
        "lhs_batch_dimensions": [0], "rhs_batch_dimensions": [0],
    }  # fmt: skip
    assert value(lambda x, y: ops.DotGeneral(x, y, numbers), lhs, rhs).tolist() == lhs.tolist()


@pytest.mark.parametrize("left_side", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit_diagonal", [True, False])
@pytest.mark.parametrize("transpose_a", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
def test_triangular_solve(left_side: bool, lower: bool, unit_diagonal: bool, transpose_a: str) -> None:
    rng = np.random.default_rng(0)
    a = (rng.normal(size=(2, 3, 3)) + 1j * rng.normal(size=(2, 3, 3))).astype(np.complex128)
    b = rng.normal(size=(2, 3, 4) if left_side else (2, 4, 3)).astype(np.complex128)
    triangle = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        triangle = triangle - triangle * np.eye(3) + np.eye(3)
    op = {"NO_TRANSPOSE": triangle, "TRANSPOSE": triangle.swapaxes(1, 2)}
    op_a = op.get(transpose_a, triangle.swapaxes(1, 2).conj())
    x = value(lambda a, b: ops.TriangularSolve(a, b, left_side, lower, unit_diagonal, transpose_a), a, b)
    np.testing.assert_allclose(op_a @ x if left_side else x @ op_a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(lower: bool) -> None:
    rng = np.random.default_rng(0)
    m = rng.normal(size=(2, 3, 3)) + 1j * rng.normal(size=(2, 3, 3))
    a = m @ m.swapaxes(1, 2).conj() + np.eye(3)
    poisoned = np.where(np.tri(3, dtype=bool) == lower, a, np.nan) if lower else np.where(
        np.tri(3, k=-1, dtype=bool), np.nan, a
    )  # fmt: skip
    factor = value(lambda a: ops.Cholesky(a, lower), poisoned)
    factor = np.tril(factor) if lower else np.triu(factor)
    product = factor @ factor.swapaxes(1, 2).conj() if lower else factor.swapaxes(1, 2).conj() @ factor
    np.testing.assert_allclose(product, a, rtol=1e-9)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_fft(axes: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 4, 6))
    where, lengths = tuple(range(4 - axes, 4)), list(x.shape[4 - axes :])
    z = x + 1j * rng.normal(size=x.shape)
    for kind, operand, wanted in (
        ("FFT", z, np.fft.fftn(z, axes=where)),
        ("IFFT", z, np.fft.ifftn(z, axes=where)),
        ("RFFT", x, np.fft.rfftn(x, axes=where)),
        ("IRFFT", np.fft.rfftn(x, axes=where), x),
    ):
        found = value(lambda o, kind=kind: ops.Fft(o, kind, lengths), operand)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    assert (
        built(lambda x: ops.Fft(x, "RFFT", [16]), "f32[16]").entry.root.shape.dimensions
        == built(lambda x: ops.Fft(x, "RFFT", [17]), "f32[17]").entry.root.shape.dimensions
        == (9,)
    )


# -- reductions and windows

MATRIX_3D = F(np.tile([[1, 2, 3], [4, 5, 6]], (4, 1, 1)))


def test_reduce_one_dimension_of_a_vector() -> None:
    assert value(lambda x: ops.Reduce(x, 0, ADD, [0]), F([10, 11, 12, 13])) == 46


def test_reduce_a_matrix() -> None:
    matrix = F([[1, 2, 3], [4, 5, 6]])
    assert value(lambda x: ops.Reduce(x, 0, ADD, [0]), matrix).tolist() == [5, 7, 9]
    assert value(lambda x: ops.Reduce(x, 0, ADD, [1]), matrix).tolist() == [6, 15]


@pytest.mark.parametrize(
    ("dimensions", "wanted"),
    [
        ([0], [[4, 8, 12], [16, 20, 24]]),
        ([2], [[6, 15]] * 4),
        ([0, 1], [20, 28, 36]),
        ([1, 0], [20, 28, 36]),
        ([0, 1, 2], 84),
    ],
)
def test_reduce_a_cuboid(dimensions: list[int], wanted: Any) -> None:
    assert value(lambda x: ops.Reduce(x, 0, ADD, dimensions), MATRIX_3D).tolist() == wanted


def test_reduce_to_the_maximum_and_its_place() -> None:
    def f(max_: XlaOp, argmax: XlaOp, value: XlaOp, index: XlaOp) -> XlaOp:
        larger = value >= max_
        return ops.Tuple([ops.Select(larger, value, max_), ops.Select(larger, index, argmax)])

    computation = scalar(f, "f32", "s32", "f32", "s32")
    values, index = F([3, 9, 2, 9, 1]), I(range(5))
    first, second = F(-np.inf), I(-1)  # I_V, I_K
    for v, k in zip(values, index, strict=True):  # f_0 to f_(N-1)
        first, second = (v, k) if v >= first else (first, second)
    found = value(lambda v, k: ops.Reduce([v, k], [F(-np.inf), I(-1)], computation, [0]), values, index)
    assert [e.tolist() for e in found] == [first, second] == [9, 3]


def test_reduce_precision() -> None:
    x = F([1.0, 1.0009765625 + 2.0**-24, 70000, 1e-8, -0.0, np.nan])
    found = value(lambda x: ops.ReducePrecision(x, exponent_bits=5, mantissa_bits=10), x)
    assert str(found.tolist()) == str([1.0, 1.0009765625, np.inf, 0.0, -0.0, np.nan])
    assert rule_of(lambda x: ops.ReducePrecision(x, exponent_bits=0, mantissa_bits=1), "f32[]").startswith(
        "reduce-precision."
    )


def test_reduce_window_2x3() -> None:
    x = np.arange(24, dtype=F).reshape(4, 6)
    lowest = np.finfo(F).min
    found = value(lambda x: ops.ReduceWindow(x, lowest, MAX, [2, 3], [2, 3], "VALID"), x)
    assert found.tolist() == [[8, 11], [20, 23]]
    strided = value(lambda x: ops.ReduceWindow(x, lowest, MAX, [2, 3], [1, 3], "kValid"), x)
    assert strided.tolist() == [[8, 11], [14, 17], [20, 23]]


@pytest.mark.parametrize(("padding", "wanted"), [("VALID", [100, 1]), ("SAME", [1000, 10, 1])])
def test_reduce_window_minima(padding: str, wanted: list[int]) -> None:
    x = F([10000, 1000, 100, 10, 1])
    most = np.finfo(F).max
    assert value(lambda x: ops.ReduceWindow(x, most, MIN, [3], [2], padding), x).tolist() == wanted


def test_select_and_scatter_where_windows_overlap() -> None:
    # The page's figure: the 9 is the largest of both upper windows, and gets 2 + 6.
    operand = F([[7, 2, 5, 3, 8], [3, 8, 9, 3, 4], [1, 5, 7, 5, 6], [0, 6, 2, 10, 2]])
    source = F([[2, 6], [3, 1]])
    found = value(
        lambda o, s: ops.SelectAndScatter(o, GE, [2, 3], [2, 2], "VALID", s, 0, ADD), operand, source
    )
    assert found.tolist() == [[0, 0, 0, 0, 0], [0, 0, 8, 0, 0], [0, 0, 3, 0, 0], [0, 0, 0, 1, 0]]


# -- choices and order


def test_select() -> None:
    v1, v2 = I([1, 2, 3, 4]), I([100, 200, 300, 400])
    pred = np.array([True, False, False, True])
    assert value(ops.Select, pred, v1, v2).tolist() == [1, 200, 300, 4]
    assert value(ops.Select, np.bool_(True), v1, v2).tolist() == [1, 2, 3, 4]
    chosen = value(lambda p, x, y: ops.Select(p, ops.Tuple([x, y]), ops.Tuple([y, x])), np.bool_(0), v1, v2)
    assert [e.tolist() for e in chosen] == [v2.tolist(), v1.tolist()]
    assert (
        rule_of(lambda p, x: ops.Select(p, ops.Tuple([x]), ops.Tuple([x])), "pred[4]", "f32[4]")
        == "select.tuple-predicate"
    )


def test_sort_of_three_operands() -> None:
    by_first = scalar(lambda a, b, *others: a < b, "s32", "s32", "s32", "s32", "f32", "f32")
    operands = (I([3, 1]), I([42, 50]), F([-3.0, 1.1]))
    found = value(lambda *o: ops.Sort(o, by_first), *operands)
    assert [e.tolist() for e in found] == [[1, 3], [50, 42], F([1.1, -3.0]).tolist()]


def test_sort_of_a_matrix() -> None:
    x = F([[3, 1, 2], [0, 9, 1]])
    assert value(lambda x: ops.Sort([x], LT, 0), x).tolist() == [[0, 1, 1], [3, 9, 2]]
    assert value(lambda x: ops.Sort([x], LT, 1), x).tolist() == [[1, 2, 3], [0, 1, 9]]
    assert (value(lambda x: ops.Sort([x], LT), x) == np.sort(x, -1)).all()


def test_a_stable_sort_keeps_the_order_of_equals() -> None:
    by_first = scalar(lambda a, b, c, d: a < b, "f32", "f32", "s32", "s32")
    keys = F(np.tile([2, 1, 0], 20))
    _, order = value(lambda k, i: ops.Sort([k, i], by_first, 0, is_stable=True), keys, I(range(60)))
    assert order.tolist() == sorted(range(60), key=lambda i: keys[i])


def test_top_k() -> None:
    x = F([[1, 5, 3, 5], [2, 2, 0, 2]])
    values, indices = value(lambda x: ops.TopK(x, 2, True), x)
    assert (values.tolist(), indices.tolist()) == ([[5, 5], [2, 2]], [[1, 3], [0, 1]])
    values, indices = value(lambda x: ops.TopK(x, 2, False), x)
    assert (values.tolist(), indices.tolist()) == ([[1, 3], [0, 2]], [[0, 2], [2, 0]])


# -- elementwise


def test_remainders_have_the_sign_of_the_dividend() -> None:
    for lhs, rhs in itertools.product((-7, 7), (-3, 3)):
        assert value(ops.Rem, I(lhs), I(rhs)) == value(ops.Rem, F(lhs), F(rhs)) == np.sign(lhs)


def test_total_order() -> None:
    nan = np.uint32(0x7FC00000).view(F)
    ascending = F([-nan, -np.inf, -1, -0.0, 0.0, 1, np.inf, nan])
    less = value(
        lambda x, y: ops.LtTotalOrder(x, y), np.tile(ascending[:, None], 8), np.tile(ascending, (8, 1))
    )
    assert (less == np.triu(np.ones((8, 8), bool), 1)).all()


def test_signs() -> None:
    found = value(ops.Sign, F([-3, -0.0, np.nan, 0.0, 2, -np.inf]))
    assert str(found.tolist()) == "[-1.0, -0.0, nan, 0.0, 1.0, -1.0]"


def test_real_and_imaginary_part_of_real_numbers() -> None:
    assert value(ops.Real, F([2, -1])).tolist() == [2, -1]
    assert value(ops.Imag, F([2, -1])).tolist() == [0, 0]


# -- host exchange


def test_infeeds_of_two_loops_have_an_order() -> None:
    state = "(s32[], f32[])"
    condition = built(lambda s: s[0] < 2, state)
    body = built(lambda s: ops.Tuple([s[0] + 1, s[1] * 10 + ops.Infeed(s.builder, "f32[]")]), state)
    again = built(lambda s: s[0] < 4, state)

    def program(b: Any) -> XlaOp:
        start = ops.Tuple([ops.Constant(b, I(0)), ops.Constant(b, F(0))])
        return ops.While(again, body, ops.While(condition, body, start))

    executable = hloom.compile(built(program))
    for number in (1, 2, 3, 4):
        executable.devices[0].transfer_to_infeed(hloom.Literal(F(number)))
    assert [e.tolist() for e in executable()] == [4, 1234]


def test_send_and_receive_between_programs() -> None:
    sender = built(lambda x: ops.SendDone(ops.Send(x, 7)), "f32[2]")
    receiver = built(lambda b: ops.GetTupleElement(ops.RecvDone(ops.Recv(b, "f32[2]", 7)), 0))
    _, received = hloom.compile([sender, receiver], num_replicas=2).run([[F([1, 2])], []])
    assert received.tolist() == [1, 2]
