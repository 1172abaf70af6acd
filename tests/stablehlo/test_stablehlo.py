"""Programs of StableHLO and of JAX."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.files import kind_of, load, load_snapshot
from hloom.stablehlo import holds_stablehlo, module_from_stablehlo, to_stablehlo
from tests import agreement
from tests.raised_rules import printed

TEXT = """// a comment
#loc = loc("x.py":1:2)
module @jit_f attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<3xf32>) -> tensor<2xf32> {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] :
        (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
"""
EXPORTED = Path(__file__).parent / "with_derivative.jax_export"
"""``sin(x) @ y`` of f32[3,3], serialized by jax.export with its derivative."""
MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)
VECTOR = np.array([1, -2, 4], np.float32)


@pytest.fixture
def jax() -> Any:
    return pytest.importorskip("jax")


def test_forms_are_recognized() -> None:
    assert (
        kind_of(TEXT.encode())
        == kind_of(EXPORTED.read_bytes())
        == kind_of(b"ML\xefR\x06StableHLO")
        == "stablehlo"
    )
    assert holds_stablehlo(b"func.func @main() { return }")
    assert holds_stablehlo(b'"builtin.module"() ({ "func.func"() ({ }) : () -> () }) : () -> ()')


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HloModule module\n",
        b"module {\n  ROOT p = f32[] parameter(0)\n}\n",
        b"\x08\x01\x12\x04ML\xefR",
        bytes(range(256)) + b"ML\xefR" + bytes(64),
        b"\xff" * 16 + b"ML\xefR",
    ],
)
def test_other_files_are_not(data: bytes) -> None:
    assert not holds_stablehlo(data)


def test_no_prefix_of_an_exported_function_is_a_fault() -> None:
    data = EXPORTED.read_bytes()
    for size in range(0, len(data), 97):
        holds_stablehlo(data[:size])


@pytest.mark.usefixtures("jax")
def test_text_and_bytecode_run(tmp_path: Path) -> None:
    path = tmp_path / "model.mlir.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    agreement.equal(hloom.compile(load(path))(MATRIX, VECTOR), MATRIX @ VECTOR)
    assert load_snapshot(path).runs == ()


@pytest.mark.usefixtures("jax")
def test_an_exported_function_runs() -> None:
    module = load(EXPORTED)
    x, y = np.eye(3, dtype=np.float32), np.arange(9, dtype=np.float32).reshape(3, 3)
    assert [p.shape.dimensions for p in module.entry.parameters] == [(3, 3), (3, 3)]
    agreement.computed(hloom.compile(module)(x, y), module, [x, y], wanted=np.sin(x) @ y)


@pytest.mark.usefixtures("jax")
@pytest.mark.parametrize(("level", "logged"), [(None, 0), ("0", 2)], ids=["default", "asked for"])
def test_jaxlib_logs_nothing_unless_asked(tmp_path: Path, jax: Any, level: str | None, logged: int) -> None:
    """jaxlib, loaded before JAX, logs its devices where JAX would have told it not to."""
    path = tmp_path / "program.mlir"
    path.write_text(TEXT)
    name = "TF_CPP_MIN_LOG_LEVEL"
    environment = {key: value for key, value in os.environ.items() if key != name}
    command = [sys.executable, "-m", "hloom", "check", "--against", "xla", "--random", "1", str(path)]
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env=environment | ({name: level} if level else {}),
    )
    assert (
        len(re.findall(r"^[IWE]\d{4} ", ran.stdout + ran.stderr, re.M))
        == len(ran.stderr.splitlines())
        == logged
    )
    assert "1 of 1 results agree" in ran.stdout


def test_stablehlo_and_back() -> None:
    module = module_from_stablehlo(TEXT.encode())
    again = module_from_stablehlo(to_stablehlo(module).encode())
    agreement.equal(hloom.compile(again)(MATRIX, VECTOR), MATRIX @ VECTOR)


@pytest.mark.usefixtures("jax")
def test_a_wrong_program_is_refused_with_its_place() -> None:
    with pytest.raises(hloom.HloError) as caught:
        module_from_stablehlo(TEXT.replace("dot_general", "dot_particular").encode())
    assert caught.value.rule == "stablehlo.conversion"
    assert "dot_particular" in str(caught.value)


def test_without_jaxlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jaxlib", None)
    with pytest.raises(hloom.HloError) as caught:
        module_from_stablehlo(TEXT.encode())
    assert caught.value.rule == "stablehlo.jaxlib"
    assert "pip install 'hloom[jax]'" in printed(str(caught.value))


# -- functions of JAX


def test_from_jax_takes_every_argument(jax: Any) -> None:
    module = hloom.from_jax(lambda x, unused, *, scale: {"a": x * scale}, VECTOR, 2, scale=MATRIX[0])
    assert len(module.entry.parameters) == 3
    agreement.equal(hloom.compile(module)(VECTOR, 2, MATRIX[0]), VECTOR * MATRIX[0])


def test_from_jax_takes_shapes(jax: Any) -> None:
    module = hloom.from_jax(jax.numpy.sum, jax.ShapeDtypeStruct((4, 5), np.float32))
    assert module.entry.root.shape.dimensions == ()
    assert str(module.entry.parameters[0].shape) == "f32[4,5]{1,0}"


def test_lowered_and_exported_functions_compile(jax: Any) -> None:
    from jax import export

    function = jax.jit(lambda x: x * 2)
    for backend in ("cpu", "evaluator"):
        agreement.equal(hloom.compile(function.lower(VECTOR), backend)(VECTOR), VECTOR * 2)
        exported = export.export(function)(jax.ShapeDtypeStruct((3,), np.float32))
        agreement.equal(hloom.compile(exported, backend)(VECTOR), VECTOR * 2)
