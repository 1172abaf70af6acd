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
