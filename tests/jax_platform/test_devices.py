"""Programs of several devices: shardings, shard_map, pmap."""

from __future__ import annotations

from tests.jax_platform.process import run_program

FOUR = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
HEAD = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
x = jnp.arange(16.0).reshape(4, 4)
spec = dict(mesh=mesh, in_specs=P("a", "b"), out_specs=P("a", "b"))
cut = lambda *spec: NamedSharding(mesh, P(*spec))
"""
PROGRAMS = """
put = jax.device_put(x, cut("a", "b"))
double = jax.jit(lambda v: v * 2)(put)
print(double.sharding.spec, double.tolist())
turned = jax.jit(lambda v: v.T @ v, out_shardings=cut("b"))(put)
print(turned.sharding.spec, turned.tolist())
print(float(jax.jit(jnp.sum)(put)))
total = jax.shard_map(lambda v: jax.lax.psum(v, "a"), mesh=mesh, in_specs=P("a", "b"), out_specs=P(None, "b"))
print(jax.jit(total)(put).tolist())
manual = dict(in_specs=P("a"), out_specs=P(), axis_names={"a"})
part = jax.shard_map(lambda v: jax.lax.psum(v, "a"), mesh=mesh, **manual)
print(jax.jit(part)(put).tolist())
turn = lambda v: jax.lax.ppermute(v, "a", [(0, 1), (1, 0)])
print(jax.jit(jax.shard_map(turn, mesh=mesh, in_specs=P("a"), out_specs=P("a")))(x).tolist())
print(jax.pmap(lambda v: v + jax.lax.axis_index("i") + jax.lax.pmean(v, "i"), axis_name="i")(x).tolist())
print(jax.grad(lambda v: jax.jit(total)(v).sum())(put).tolist())
loss = lambda w, v: jnp.mean((jnp.tanh(v @ w)) ** 2)
step = jax.jit(jax.grad(loss), out_shardings=cut())
print(np.asarray(step(jnp.eye(4), jax.device_put(x / 16, cut("a"))), np.float64).round(3).tolist())
print(jax.jit(lambda v: None)(put))
def shown(v):
    jax.debug.print("sum {}", v.sum())
    return v + jax.pure_callback(lambda a: np.asarray(a) * 2, v, v)
print(jax.jit(shown)(put).tolist())
each = jax.shard_map(lambda v: jax.pure_callback(lambda a: np.asarray(a).T, v, v), **spec)
print(jax.jit(each)(put).tolist())
print([s.data.shape for s in put.addressable_shards], put.sharding.is_fully_replicated)
from jax.experimental.shard_alike import shard_alike
alike = jax.jit(lambda v: shard_alike(v, jnp.arange(16.0).reshape(4, 4))[1])(put)
print(alike.sharding.spec, alike.tolist())
_, free = jax.jit(lambda v, w: shard_alike(v, w))(put, np.asarray(x))
print(free.sharding.spec)
from jax.experimental.control_deps import control_dep
def ordered(v):
    sine, cosine = jnp.sin(v), v - 1
    control_dep(sine, cosine)
    return cosine
print(jax.jit(ordered)(x).tolist(), jax.jit(jax.shard_map(ordered, **spec))(put).tolist())
"""


def test_programs_of_several_devices_give_what_jax_gives() -> None:
    stock = run_program(HEAD + PROGRAMS, "stock", **FOUR)
    assert len(stock.splitlines()) == 17
    assert run_program(HEAD + PROGRAMS, "cpu", **FOUR) == stock


def test_the_number_of_devices_may_be_configured() -> None:
    program = "import jax; print(jax.device_count())"
    assert run_program(program, "hloom", JAX_NUM_CPU_DEVICES="3") == "3\n"
