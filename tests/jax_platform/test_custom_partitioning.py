"""Custom calls of programs of several devices: what JAX's partitioners, inspectors and prints get."""

from __future__ import annotations

from tests.jax_platform.process import run_program

FOUR = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
HEAD = """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
put = lambda x, *spec: jax.device_put(x, NamedSharding(mesh, P(*spec)))
"""
PARTITIONED = """
def product(x, y):
    return x @ y, (x @ y).sum()
def partition(mesh, arguments, results):
    cuts, (matrix, total) = [a.sharding for a in arguments], [r.sharding for r in results]
    print([c.spec for c in cuts], matrix.spec, total.spec)
    def local(x, y):
        found = jax.lax.psum(x @ y, "b")
        step = lambda n, v: (n + 1, v + jax.lax.psum(found.sum(), "a"))
        return found, jax.lax.while_loop(lambda s: s[0] < 1, lambda s: step(*s), (0, 0.0))[1]
    return mesh, local, (matrix, total), tuple(cuts)
f = custom_partitioning(product)
f.def_partition(partition, sharding_rule="i j, j k -> i k, ", reduction_factors=("j",))
x, y = put(jnp.arange(32.0).reshape(4, 8), "a", "b"), put(jnp.arange(16.0).reshape(8, 2), "b")
run = jax.jit(lambda x, y: f(x * 2, y))
matrix, total = run(x, y)
print(matrix.sharding.spec, matrix.tolist(), float(total))
again = jax.jit(lambda x, y: f(x * 2, y)[0].sum())
print(float(again(x, y)), float(again(x, y)))

g = custom_partitioning(lambda v: v * 3)
def wants_other_cuts(mesh, arguments, result):
    wanted = NamedSharding(mesh, P(None, "a"))
    return mesh, lambda v: v * 3, wanted, (wanted,)
g.def_partition(wants_other_cuts, sharding_rule="i j -> i j")
print(jax.jit(g, out_shardings=NamedSharding(mesh, P("b")))(x).tolist())

h = custom_partitioning(lambda v: v)
h.def_partition(lambda *_: 1 / 0, sharding_rule="i j -> i j")
try:
    jax.jit(h)(x)
except Exception as error:
    print("ZeroDivisionError" in str(error))
"""
INSPECTED = """
x = put(jnp.arange(8.0).reshape(4, 2), "a", "b")
def f(v):
    jax.debug.inspect_array_sharding(v * 2, callback=lambda s: print(s.spec))
    return v
print(jax.jit(f)(x).tolist(), jax.jit(f)(x).tolist())
def refuse(sharding):
    raise ValueError("not this one")
def g(v):
    jax.debug.inspect_array_sharding(v, callback=refuse)
    return v
try:
    jax.jit(g)(x)
except Exception as error:
    print("not this one" in str(error))
"""
PRINTED = """
x = put(jnp.arange(8.0).reshape(4, 2), "a", "b")
jax.jit(lambda v: jax.debug.print("{}", v, partitioned=True))(x)
jax.effects_barrier()
"""
BATCHED = """
from jax._src.lib import lapack
lapack._lapack.initialize()
jax.ffi.register_ffi_target_as_batch_partitionable("lapack_sgeqrf_ffi")
from jax.interpreters import mlir
from jax.extend import core
qr = core.Primitive("qr")
qr.multiple_results = True
qr.def_abstract_eval(lambda x: (x, jax.core.ShapedArray(x.shape[:-1], x.dtype)))
def lowering(context, x):
    attributes = mlir.ir_attribute({"num_batch_dims": "1"})
    extra = {"mhlo.frontend_attributes": attributes}
    return jax.ffi.ffi_lowering("lapack_sgeqrf_ffi", extra_attributes=extra)(context, x)
mlir.register_lowering(qr, lowering, platform="cpu")
x = np.random.default_rng(0).standard_normal((8, 3, 3)).astype(np.float32)
cut = NamedSharding(mesh, P("a"))
run = jax.jit(lambda x: qr.bind(x), out_shardings=[cut, cut])
text = run.lower(put(x, "a")).compile().as_text()
found, wanted = run(put(x, "a")), jax.jit(lambda x: qr.bind(x))(x)
print("all-gather" in text, found[0].sharding.spec, found[1].sharding.spec)
print([bool(np.allclose(f, w, atol=1e-5)) for f, w in zip(found, wanted)])
"""


def agrees(program: str) -> str:
    """Return what a program of four devices prints on JAX's own client and on hloom, which is the same."""
    stock = run_program(HEAD + program, "stock", **FOUR)
    assert stock and run_program(HEAD + program, "cpu", **FOUR) == stock
    return stock


def test_partitioners_of_custom_calls_decide_what_devices_compute() -> None:
    assert agrees(PARTITIONED).endswith("True\n")


def test_shardings_are_inspected_when_a_program_is_compiled() -> None:
    assert agrees(INSPECTED).startswith("P('a', 'b')\n[[")


def test_partitioned_prints_get_the_tile_of_each_device() -> None:
    printed = run_program(HEAD + PRINTED, "cpu", **FOUR).split("[[")
    assert sorted(printed) == ["", "0.]\n [2.]]\n", "1.]\n [3.]]\n", "4.]\n [6.]]\n", "5.]\n [7.]]\n"]


def test_calls_that_are_batch_partitionable_are_cut_along_the_batch() -> None:
    assert agrees(BATCHED).startswith("False")
