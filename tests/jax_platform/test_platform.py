"""The platform is there, computes, and says what it is."""

from __future__ import annotations

import pytest

from tests.jax_platform.process import Platform, run_program

BOTH = pytest.mark.parametrize("platform", ["cpu", "hloom"])


@BOTH
def test_programs_run_on_hloom(platform: Platform) -> None:
    program = """
import jax, jax.numpy as jnp
print(jax.devices()[0].platform, "hloom" in jax.devices()[0].client.platform_version)
print(jax.jit(lambda x: x * 2 + 1)(jnp.arange(4.0)))
print(jax.grad(lambda x: jnp.sin(x) ** 2)(0.5).round(4))
print(jnp.linalg.det(jnp.eye(3) * 2))
print(jax.jit(lambda x: jax.pure_callback(lambda a: a * 3, x, x))(jnp.arange(2.0)))
"""
    printed = run_program(program, platform).splitlines()
    assert printed == [f"{platform} True", "[1. 3. 5. 7.]", "0.8415", "8.0", "[0. 3.]"]


def test_nothing_changes_unless_hloom_is_asked_for() -> None:
    program = """
import jax, hloom.jax.plugin
hloom.jax.plugin.initialize()
print("hloom" in jax.devices()[0].client.platform_version)
"""
    assert run_program(program, "stock") == "False\n"


@BOTH
def test_modules_come_in_the_newest_version(platform: Platform) -> None:
    program = """
import jax
from jax._src import xla_bridge
from jaxlib.mlir.dialects import stablehlo
found = xla_bridge.backend_stablehlo_version(jax.devices()[0].client)
print(".".join(map(str, found)) == stablehlo.get_current_version())
"""
    assert run_program(program, platform) == "True\n"


@BOTH
def test_compiled_programs_show_the_optimized_module_its_cost_and_memory(platform: Platform) -> None:
    program = """
import jax, jax.numpy as jnp
compiled = jax.jit(lambda x: x @ x + 1).lower(jnp.ones((4, 4))).compile()
print("dot(" in compiled.as_text(), "ENTRY" in compiled.as_text())
print(compiled.cost_analysis()["flops"], compiled.memory_analysis().argument_size_in_bytes)
"""
    assert run_program(program, platform).splitlines() == ["True True", "144.0 64"]
