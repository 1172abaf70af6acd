"""Programs of several devices: shardings, shard_map, pmap."""

from __future__ import annotations

import jax
import pytest
from jax._src.lax import parallel

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
"""


REMOVED = {
    "shard_alike": """
from jax.experimental.shard_alike import shard_alike
alike = jax.jit(lambda v: shard_alike(v, jnp.arange(16.0).reshape(4, 4))[1])(put)
print(alike.sharding.spec, alike.tolist())
_, free = jax.jit(lambda v, w: shard_alike(v, w))(put, np.asarray(x))
print(free.sharding.spec)
""",
    "control_deps": """
from jax.experimental.control_deps import control_dep
def ordered(v):
    sine, cosine = jnp.sin(v), v - 1
    control_dep(sine, cosine)
    return cosine
print(jax.jit(ordered)(x).tolist(), jax.jit(jax.shard_map(ordered, **spec))(put).tolist())
""",
}
"""Programs of modules of `jax.experimental` that JAX 0.12 does not have."""


def test_programs_of_several_devices_give_what_jax_gives() -> None:
    assert len(given_by_both(PROGRAMS).splitlines()) == 14


@pytest.mark.parametrize("module", REMOVED)
def test_functions_of_older_versions_on_several_devices(module: str) -> None:
    pytest.importorskip(f"jax.experimental.{module}")
    assert given_by_both('put = jax.device_put(x, cut("a", "b"))' + REMOVED[module])


def given_by_both(program: str) -> str:
    """Return what a program prints, which is the same on hloom and on JAX's own client."""
    stock = run_program(HEAD + program, "stock", **FOUR)
    assert run_program(HEAD + program, "cpu", **FOUR) == stock
    return stock


def test_the_number_of_devices_may_be_configured() -> None:
    program = "import jax; print(jax.device_count())"
    assert run_program(program, "hloom", JAX_NUM_CPU_DEVICES="3") == "3\n"


TURNS = """
import resource
row = NamedSharding(jax.make_mesh((4,), ("d",)), P("d"))
line = dict(mesh=row.mesh, in_specs=P("d"), out_specs=P("d"))
steps = lambda v: jax.lax.fori_loop(0, 10, lambda i, s: jax.lax.psum(s, "d") / 4, v)
total, double = jax.jit(jax.shard_map(steps, **line, check_vma=False)), jax.jit(lambda v: v * 2 + 1)
put = jax.device_put(jnp.arange(4096.0), row)
for call in total, double:
    jax.block_until_ready(call(put))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    for _ in range(50):
        jax.block_until_ready(call(put))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before < 50)
"""
ERRORS = """
import functools
row = NamedSharding(jax.make_mesh((4,), ("d",)), P("d"))
line = dict(mesh=row.mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
put = jax.device_put(jnp.arange(8.0), row)
@jax.jit
@functools.partial(jax.shard_map, **line)
def some(v):
    return jax.lax.cond(jax.lax.axis_index("d") < 2, lambda: jax.lax.psum(v, "d"), lambda: v)
for _ in range(2):
    try:
        print(some(put).tolist())
    except jax.errors.JaxRuntimeError as error:
        print("would wait for ever" in str(error), "partition 2) has finished" in str(error))
give = jax.jit(lambda v: v + 1, donate_argnums=0)
given = jax.device_put(jnp.arange(8.0), row)
result = give(given)
print(given.is_deleted(), result.is_deleted())
print(result.tolist(), [s.device.id for s in result.addressable_shards])
long = jax.jit(jax.shard_map(lambda v: jax.lax.fori_loop(0, 500000, lambda i, s: jnp.sin(s), v), **line))
print(np.array_equal(give(long(put)), np.asarray(long(put)) + 1), long(put).is_ready())
"""


def test_short_programs_of_several_devices_wake_no_thread() -> None:
    assert run_program(HEAD + TURNS, "cpu", **FOUR).split() == ["True", "True"]


def test_devices_of_a_gang_report_deadlocks_and_take_donations() -> None:
    lines = run_program(HEAD + ERRORS, "cpu", **FOUR).splitlines()
    assert lines[:3] == ["True True", "True True", "True False"]
    assert lines[3] == f"{[x + 1.0 for x in range(8)]} [0, 1, 2, 3]"
    assert lines[4] == "True False"


ASYNCHRONOUS = pytest.mark.skipif(not hasattr(parallel, "psum_start"), reason="JAX 0.11 has them first")


@ASYNCHRONOUS
def test_collectives_are_shown_as_they_run() -> None:
    program = (
        HEAD
        + """
from jax._src.lax.parallel import psum_start
run = lambda v: psum_start(v, "a").done()
run = jax.jit(jax.shard_map(run, mesh=mesh, in_specs=P("a"), out_specs=P()))
text = run.lower(x).compile().as_text()
print("all-reduce(" in text, "all-reduce-start(" in text, run(x).sum())
"""
    )
    assert run_program(program, "cpu", **FOUR) == run_program(program, "stock", **FOUR)
    assert run_program(program, "cpu", **FOUR) == "True False 120.0\n"


@pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="XLA's verifier refuses them before jaxlib 0.12")
def test_collectives_in_two_steps() -> None:
    program = (
        HEAD
        + """
from jax._src.lax import parallel
def show(start, *arguments, **options):
    run = lambda v: getattr(parallel, start)(v, "a", *arguments, **options).done() + 0 * v.sum()
    run = jax.shard_map(run, mesh=mesh, in_specs=P("a", "b"), out_specs=P("a", "b"))
    print(start, jax.jit(run)(x).tolist())
show("psum_start")
show("all_gather_start", axis=1, tiled=True)
show("psum_scatter_start", scatter_dimension=1, tiled=True)
for split in (0, 1):
    for concatenated in (0, 1):
        show("all_to_all_start", split, concatenated, tiled=True)
show("ppermute_start", [(0, 1), (1, 0)])
"""
    )
    assert run_program(program, "cpu", **FOUR) == run_program(program, "stock", **FOUR)


ONE_DEVICE_AXES = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()).reshape(4, 1), ("a", "b"))
x = jax.device_put(jnp.arange(16.0).reshape(8, 2), NamedSharding(mesh, P("a", "b")))
def mapped(f, spec):
    f = jax.shard_map(f, mesh=mesh, in_specs=P("a", "b"), out_specs=spec, check_vma=False)
    return jax.jit(f)(x).tolist()
print(mapped(lambda v: jax.lax.psum(v, "b") * 2, P("a")))
print(mapped(lambda v: jax.lax.all_gather(v, "b", axis=1, tiled=True), P("a")))
print(mapped(lambda v: jax.lax.all_to_all(v, "b", 0, 1, tiled=True), P("a", "b")))
print(mapped(lambda v: jax.lax.psum_scatter(v, "b", tiled=True), P("a", "b")))
print(mapped(lambda v: jax.lax.ppermute(v, "b", [(0, 0)]), P("a", "b")))
"""


def test_collectives_along_an_axis_of_one_device() -> None:
    printed = run_program(ONE_DEVICE_AXES, "cpu", **FOUR)
    assert printed == run_program(ONE_DEVICE_AXES, "stock", **FOUR)
    assert len(printed.splitlines()) == 5
