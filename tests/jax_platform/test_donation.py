"""Donated arguments: what a call may not be given, and what it leaves."""

from __future__ import annotations

from tests.jax_platform.process import run_program

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def call(function, *arguments):
    try:
        print([a.tolist() for a in jax.tree.leaves(function(*arguments))])
    except (RuntimeError, ValueError) as error:
        print(str(error).split("Toy")[0])
    print([a.is_deleted() for a in arguments])

pair = lambda a, b: (a + 1, b * 2)
shown = lambda a, b: (jax.pure_callback(np.negative, a, a), b * 2)
cut = NamedSharding(Mesh(np.array(jax.devices()), ("a",)), P("a"))
functions = (pair, shown) if len(jax.devices()) == 1 else (pair,)
for function in functions:
    make = lambda: jax.device_put(jnp.arange(4.0), cut)
    for donated in ((0,), (1,), (0, 1)):
        jitted, x = jax.jit(function, donate_argnums=donated), make()
        call(jitted, x, x)
        call(jitted, x, make())
        call(jitted.lower(x, x).compile(), *([make()] * 2))
"""


def test_a_donated_argument_is_no_other_argument() -> None:
    stock = run_program(PROGRAM, "stock")
    assert stock.count("Attempt to") == 12
    assert run_program(PROGRAM, "cpu") == stock


def test_nor_is_it_in_programs_of_several_devices() -> None:
    found = run_program(PROGRAM, "cpu", XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert found == "".join(run_program(PROGRAM, "cpu").splitlines(keepends=True)[:18])


SIZES = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
cut = NamedSharding(Mesh(np.array(jax.devices()), ("a",)), P("a"))
make = lambda: jax.device_put(np.arange(16).reshape(8, 2), cut)
for function in (lambda x, y: x @ x.T, lambda x, y: y + 1, lambda x, y: (x * 2, y * 3)):
    x, y = make(), make()
    jax.jit(function, donate_argnums=(0, 1))(x, y)
    print(x.is_deleted(), y.is_deleted())
"""


def test_donors_that_no_result_can_take_are_kept() -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    assert run_program(SIZES, "cpu", **flags) == run_program(SIZES, "stock", **flags)


REUSE = """
import jax, jax.numpy as jnp, numpy as np
step = jax.jit(lambda a, b: (jnp.sin(a) + b, b * 2), donate_argnums=(0, 1))
keep = jax.jit(lambda a, b: (jnp.sin(a) + b, b * 2))
for shape in ((), (3,), (200, 300)):
    a, b = (jnp.full(shape, v) * 1 for v in (0.5, 2.0))
    wanted = [np.array(r) for r in keep(a, b)]
    places = [x.unsafe_buffer_pointer() for x in (a, b)]
    found = step(a, b)
    print([x.unsafe_buffer_pointer() in places for x in found])
    print([bool(np.array_equal(f, w)) for f, w in zip(found, wanted)], a.is_deleted(), b.is_deleted())
double = jax.jit(lambda v: v * 2, donate_argnums=0)
x = jnp.ones(1000) * 1
view, place = np.asarray(x), x.unsafe_buffer_pointer()
y = double(x)
print(view.sum(), float(y.sum()), y.unsafe_buffer_pointer() == place)
host = np.ones(1000, np.float32)
print(float(double(jnp.asarray(host)).sum()), host.sum())
x = jnp.ones((600, 600))
z = double(x @ x)
print(float(z[3, 4]), float(double(z)[0, 0]), float(x.sum()))
shared = jax.device_put(y, y.sharding, may_alias=True)
print(float(double(shared).sum()), y.is_deleted() or float(y.sum()))
"""


def test_results_take_the_memory_of_donated_arguments_that_nobody_else_reads() -> None:
    lines = run_program(REUSE, "cpu").splitlines()
    assert lines[1::2][:3] == ["[True, True] True True"] * 3
    assert all(line.count("True") >= 1 for line in lines[:6:2])
    assert lines[6:9] == ["1000.0 2000.0 False", "2000.0 1000.0", "1200.0 2400.0 360000.0"]
    assert lines[9] in ("4000.0 True", "4000.0 2000.0")


CACHES = """
import jax, jax.numpy as jnp, numpy as np

def step(weights, keys, values, at):
    def layer(x, layer):
        w, k, v = layer
        k = jax.lax.dynamic_update_slice(k, x[None], (at, 0))
        v = jax.lax.dynamic_update_slice(v, (x @ w)[None], (at, 0))
        return jax.nn.softmax(k @ x) @ v, (k, v)
    x, (keys, values) = jax.lax.scan(layer, weights[0, 0], (weights, keys, values))
    return x, keys, values

weights = jax.random.normal(jax.random.key(0), (3, 8, 8))
make = lambda: [jnp.full((3, 500, 8), v) * 1 for v in (0.5, 2.0)]
results = []
for donated in ((), (1, 2)):
    compiled = jax.jit(step, donate_argnums=donated).lower(weights, *make(), np.int32(0)).compile()
    caches, places = make(), []
    for at in range(3):
        x, *caches = compiled(weights, *caches, np.int32(at))
        places.append([c.unsafe_buffer_pointer() for c in caches])
    results.append([np.asarray(r) for r in (x, *caches)])
    print(places[0] == places[1] == places[2], "f32[500,8]{1,0} dynamic-update-slice" in compiled.as_text())
print(all(np.array_equal(a, b) for a, b in zip(*results)))
"""


def test_a_scan_over_layers_updates_donated_caches_where_they_are() -> None:
    assert run_program(CACHES, "cpu").splitlines() == ["False True", "True False", "True"]
