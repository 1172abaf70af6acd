"""Arrays on the device: donation, deletion, transfers, DLPack, memories, threads."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from tests.jax_platform.programs.program import integers, message_of, program

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@program
def donated_arguments() -> Any:
    f = jax.jit(lambda x, y: (x + y, y * 2), donate_argnums=0)
    x, y = jnp.asarray(X) + 0, jnp.asarray(X)
    result = f(x, y)
    return (
        x.is_deleted(),
        y.is_deleted(),
        result,
        "deleted" in message_of(lambda: np.asarray(x), RuntimeError),
    )


@program
def donation_of_large_arrays() -> Any:
    f = jax.jit(lambda x: x * 2 + 1, donate_argnums=0)
    x = jnp.zeros((1000, 100), jnp.int32)
    for _ in range(5):
        x = f(x)
    return x[::400, 50]


@program
def donation_in_a_loop() -> Any:
    step = jax.jit(lambda s: {"n": s["n"] + 1, "x": s["x"] * 2 % 7}, donate_argnums=0)
    state = {"n": jnp.int32(0), "x": jnp.arange(50)}
    for _ in range(20):
        state = step(state)
    return state


@program
def numpy_arrays_are_not_donated() -> Any:
    x = X.copy()
    result = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    return result, x


@program
def deleted_arrays() -> Any:
    x = jnp.arange(5) + 1
    x.delete()
    calls = (lambda: np.asarray(x), lambda: x + 1, lambda: jax.jit(jnp.sin)(x), lambda: x.block_until_ready())
    return x.is_deleted(), ["deleted" in message_of(call, (RuntimeError, ValueError)) for call in calls]


@program
def live_arrays() -> Any:
    gc.collect()
    before = len(jax.live_arrays())
    kept = [jnp.arange(7) + n for n in range(3)]
    with_kept = len(jax.live_arrays()) - before
    del kept
    gc.collect()
    return with_kept, len(jax.live_arrays()) - before


@program
def views_of_results() -> Any:
    y = jax.jit(lambda x: x * 2)(X)
    first, second = np.asarray(y), np.asarray(y)
    return first is second, first.flags.writeable, first.flags.c_contiguous, first


@program
def views_outlive_arrays() -> Any:
    y = jax.jit(lambda x: x * 2)(np.arange(100000, dtype=np.int32))
    view = np.asarray(y)
    del y
    gc.collect()
    others = [jnp.ones(100000, jnp.int32) * n for n in range(4)]
    return view.sum(dtype=np.int64), len(others)


@program
def arguments_may_be_changed_after_the_call() -> Any:
    x = np.arange(1000, dtype=np.int32)
    moved = jnp.array(x)
    result = jax.jit(lambda x: x + 1)(x)
    result.block_until_ready()
    x[:] = -1
    return moved, result


@program
def arrays_of_any_strides() -> Any:
    x = integers(6, 8)
    views = [
        x.T,
        x[::2],
        x[:, ::-1],
        x[1:, 3],
        np.broadcast_to(x[0], (3, 8)),
        np.asfortranarray(x),
        x[::-2, ::3],
    ]
    return [jax.device_put(v) for v in views], jax.jit(lambda *v: [a * 2 for a in v])(*views)


@program
def dlpack_to_numpy() -> Any:
    kinds = ("bool", "int8", "int32", "uint16", "float16", "float32", "complex64")
    arrays = [jnp.arange(6).reshape(2, 3).astype(kind) for kind in kinds]
    found = [np.from_dlpack(cast("Any", a)) for a in arrays]
    shared = found[5].ctypes.data == arrays[5].unsafe_buffer_pointer()
    return found, shared


@program
def dlpack_from_numpy() -> Any:
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    moved = jnp.from_dlpack(x)
    again = jnp.from_dlpack(jnp.arange(5))
    return moved, jax.jit(lambda x: x * 2)(moved), again, cast("Any", moved).__dlpack_device__()[1]


@program
def dlpack_of_columns() -> Any:
    columns = jnp.from_dlpack(np.arange(12, dtype=np.int32).reshape(3, 4).T)
    cube = jnp.from_dlpack(np.arange(24, dtype=np.int32).reshape(2, 3, 4).transpose(1, 2, 0))
    return columns, columns[1:] + 1, jax.jit(lambda a: a @ a.T)(columns), cube.sum(axis=2)


@program
def memory_kinds() -> Any:
    device = jax.devices()[0]
    kinds = sorted(m.kind for m in device.addressable_memories())
    found = []
    for kind in kinds:
        sharding = jax.sharding.SingleDeviceSharding(device, memory_kind=kind)
        x = jax.device_put(X, sharding)
        found.append((x, x.sharding.memory_kind))
    return device.default_memory().kind, kinds, found


@program
def computation_between_memories() -> Any:
    device = jax.devices()[0]
    host = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    back = jax.sharding.SingleDeviceSharding(device, memory_kind="device")
    x = jax.device_put(X, host)
    y = jax.device_put(x, back)
    return (
        x.sharding.memory_kind,
        jax.jit(lambda y: y * 2)(y),
        jax.jit(lambda y: y + 1, out_shardings=back)(y),
    )


@program
def transfers() -> Any:
    x = jax.device_put({"a": X, "b": [1, 2.5]})
    y = jax.device_put(x["a"], jax.devices()[0], may_alias=False)
    x["a"].copy_to_host_async()
    got = jax.device_get(x)
    return got["a"], float(got["b"][1]), y, y is x["a"], x["a"].devices() == {jax.devices()[0]}, jnp.copy(y)


@program
def transfers_that_are_forbidden() -> Any:
    with jax.transfer_guard("disallow"):
        moved = jax.device_put(X)
        refused = message_of(lambda: jnp.sin(X))
        result = jax.jit(lambda x: x + 1)(moved)
    return "Disallowed" in refused, result


@program
def arrays_as_python_sees_them() -> Any:
    x = jnp.arange(6, dtype=jnp.int32).reshape(2, 3)
    pickled = pickle.loads(pickle.dumps(x))
    one = jnp.float32(2.5)
    return (
        x.tolist(),
        [int(v) for row in x for v in row],
        len(x),
        x.nbytes,
        x.itemsize,
        str(x.dtype),
        repr(x),
        pickled,
        copy.deepcopy(x),
        float(one),
        int(x[1, 1]),
        bool(x[0, 1]),
        f"{one:.1f}",
        x.__index__() if x.ndim == 0 else "",
        [*range(10)][x[0, 2]],
    )


@program
def arrays_are_freed() -> Any:
    x = jnp.ones((1000, 1000))
    gone = weakref.ref(x)
    del x
    gc.collect()
    return gone() is None


@program
def readiness() -> Any:
    x = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, x: x @ x / 64 + 1, x))(
        np.ones((64, 64), np.float32)
    )
    jax.block_until_ready({"x": x, "n": 3})
    return x.is_ready(), list(x.shape), np.isfinite(np.asarray(x)).all()


@program
def results_in_the_order_of_calls() -> Any:
    f = jax.jit(lambda x: (x * 3 + 1) % 1000003)
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 20000, lambda _, x: (x * 3 + 1) % 1000003, x))
    x = jnp.arange(64, dtype=jnp.int32)
    for _ in range(3):
        x = f(slow(f(x)))
    return x


@program
def threads() -> Any:
    f = jax.jit(lambda x, n: (x * n).sum())
    results: dict[int, list[int]] = {}

    def work(n: int) -> None:
        own = jax.jit(lambda x: x * n + 1)
        results[n] = [int(f(np.arange(100, dtype=np.int32), k)) + int(own(k)) for k in range(20)]

    workers = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [results[n] for n in range(8)]


@program
def devices_and_their_names() -> Any:
    device = jax.devices()[0]
    return (
        jax.device_count(), jax.local_device_count(), jax.process_index(), jax.default_backend(), device.id,
        device.process_index, device.platform, device.device_kind, len(jax.devices("cpu")),
    )  # fmt: skip


@program
def arrays_on_the_default_device() -> Any:
    with jax.default_device(jax.devices()[0]):
        x = jnp.arange(3)
    return x, x.committed, jax.device_put(x, jax.devices()[0]).committed


@program
def many_arguments_and_results() -> Any:
    xs = [np.int32(n) for n in range(300)]
    found = jax.jit(lambda *xs: [x * 2 for x in xs])(*xs)
    return np.array([int(x) for x in found]), jax.jit(lambda xs: jax.tree.map(lambda x: x + 1, xs))(
        {"a": xs[:30]}
    )


@program
def refs() -> Any:
    def f(x: Any) -> Any:
        ref = jax.new_ref(x)
        ref[1] = 50
        ref[...] += 1
        return ref[...], ref[2:]

    return jax.jit(f)(np.arange(5, dtype=np.int32))
