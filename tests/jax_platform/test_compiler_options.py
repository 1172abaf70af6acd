"""Compiler options: XLA's names are accepted and checked, those about dumps followed, others refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hloom.jax.compilation.compile_options import Option, compiler_options, dump_flags
from hloom.jax.pjrt.errors import PjrtError
from tests.jax_platform.process import Platform, run_program

ACCEPTED: Sequence[tuple[str, Option, Option]] = [
    ("xla_backend_optimization_level", 1, 1),
    ("xla_backend_optimization_level", "-1", -1),
    ("xla_cpu_enable_fast_math", True, True),
    ("xla_cpu_enable_fast_math", "False", False),
    ("xla_gpu_autotune_gemm_rtol", "1e-3", 1e-3),
    ("xla_disable_hlo_passes", "fusion", "fusion"),
    ("xla_cpu_opt_preset", 1, 1),
    ("xla_cpu_opt_preset", "CPU_OPT_PRESET_FAST_COMPILE", "CPU_OPT_PRESET_FAST_COMPILE"),
    ("xla_gpu_experimental_autotune_backends", "CUBLAS", "CUBLAS"),
]
REFUSED: Sequence[tuple[str, Option]] = [
    ("xla_backend_optimization_level", "x"),
    ("xla_backend_optimization_level", True),
    ("xla_backend_optimization_level", 1.5),
    ("xla_backend_optimization_level", 1 << 31),
    ("xla_cpu_enable_fast_math", 1),
    ("xla_cpu_enable_fast_math", "1"),
    ("xla_gpu_autotune_gemm_rtol", 1),
    ("xla_gpu_autotune_gemm_rtol", "much"),
    ("xla_dump_to", True),
    ("xla_cpu_opt_preset", "x"),
    ("xla_cpu_opt_preset", 3),
    ("xla_backend_extra_options", "a=b"),
    ("no_such_option", 1),
]


@pytest.mark.parametrize(("name", "value", "wanted"), ACCEPTED)
def test_options_have_their_own_types(name: str, value: Option, wanted: Option) -> None:
    found = compiler_options([(name, value)])
    assert found == {name: wanted} and type(found[name]) is type(wanted)


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_other_names_and_values_are_refused(name: str, value: Option) -> None:
    with pytest.raises(PjrtError, match=name):
        compiler_options([(name, value)])


def test_options_about_dumps_become_flags() -> None:
    options = compiler_options([("xla_dump_to", "/tmp/a b"), ("xla_cpu_enable_fast_math", True)])
    assert dump_flags(options) == "'--xla_dump_to=/tmp/a b'"


REFUSALS = """
import jax, numpy as np
options = [("no_such_option", "x"), ("xla_backend_optimization_level", True), ("xla_cpu_opt_preset", "x")]
for name, value in options:
    try:
        jax.jit(lambda x: x + 1, compiler_options={name: value})(np.float32(1))
    except jax.errors.JaxRuntimeError as error:
        print(error)
"""


def test_refusals_read_as_those_of_jax() -> None:
    refusals = run_program(REFUSALS, "cpu")
    assert refusals.count("INVALID_ARGUMENT") == 3
    assert refusals == run_program(REFUSALS, "stock")


@pytest.mark.parametrize("platform", ["cpu", "stock"])
def test_dumps_may_be_asked_for_one_function(platform: Platform, tmp_path: Path) -> None:
    program = f"""
import jax, numpy as np
def shown(x): return x * 3
def other(x): return x * 4
print(jax.jit(shown, compiler_options={{"xla_dump_to": {str(tmp_path)!r}}})(np.ones(2, np.float32)))
print(jax.jit(other)(np.ones(2, np.float32)))
"""
    assert run_program(program, platform) == "[3. 3.]\n[4. 4.]\n"
    names = {path.name for path in tmp_path.iterdir()}
    assert any("jit_shown" in name and "before_optimizations" in name for name in names)
    assert not any("jit_other" in name for name in names)
