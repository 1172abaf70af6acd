"""The pass and the rewrite that change a result, in hloom and in dumps of XLA."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import hloom
from hloom import HloError, HloModule
from hloom.debug.bisection import bisect, bisect_dumps, pass_dumps
from hloom.debug.inputs import random_arguments
from hloom.passes.fuel import limited
from hloom.passes.registry import passes
from hloom.passes.simplify.algebraic_simplifier import AlgebraicSimplifier
from hloom.tools.cli import main
from tests.planted_bugs.bugs import BUGS
from tests.planted_bugs.programs import program as planted_program

ADDITIONS = """HloModule additions

ENTRY e {
  x = f32[4] parameter(0)
  z = f32[] constant(-0)
  b = f32[4] broadcast(z), dimensions={}
  a0 = f32[4] add(x, b)
  n0 = f32[4] sine(a0)
  a1 = f32[4] add(n0, b)
  n1 = f32[4] sine(a1)
  ROOT a2 = f32[4] add(n1, b)
}
"""


def hloom_bisect(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["bisect", *map(str, arguments)])


# -- fuel


def test_fuel_limits_the_rewrites_of_a_pass() -> None:
    counts: list[int] = []
    for limit in range(5):
        module = HloModule.from_text(ADDITIONS)
        with limited(limit) as fuel:
            assert AlgebraicSimplifier().run(module) == (limit > 0)
        module.verify()
        counts.append(sum(i.opcode == "add" for i in module.instructions()))
        assert fuel.used == min(limit, 3)
    assert counts == [3, 2, 1, 0, 0]
    assert fuel.last.startswith("rule add_zero on %a")


TAKE_ARGUMENTS = {"product-views", "attention-fusion", "attention-gradient"}


@pytest.mark.parametrize("name", sorted(passes().keys() - TAKE_ARGUMENTS - {"dce"}))
def test_without_fuel_a_pass_leaves_what_it_counts(name: str) -> None:
    module = HloModule.from_text(ADDITIONS)
    with limited(0) as fuel:
        passes()[name]().run(module)
    assert fuel.used == 0
    assert (
        name in ("fusion", "hlo-memory-scheduler")
        or sum(i.opcode == "add" for i in module.instructions()) == 3
    )


# -- hloom's passes


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    path = tmp_path / "planted.hlo"
    path.write_text(planted_program(BUGS["add negated"], chains=4))
    return path


def test_a_right_pipeline_has_no_such_step(planted: Path) -> None:
    module = hloom.load(planted)
    assert bisect(module, random_arguments(module, 0)) is None
    result = hloom_bisect(planted)
    assert (result.exit_code, result.output) == (0, "agrees  planted: no step changes the result\n")


def test_the_rewrite_is_named_and_shown(planted: Path) -> None:
    with BUGS["add negated"].plant():
        result = hloom_bisect(planted)
        data = json.loads(hloom_bisect(planted, "--json").output)
    assert result.exit_code == 1
    assert result.output.startswith("algsimp changes the result of planted\n  rewrite ")
    assert "rule add_negated on %bug2_y" in result.output
    assert "- %bug2_y = f32[8,16]{1,0} add(" in result.output
    assert data["planted"]["pass"] == "algsimp" and "+ %subtract" in data["planted"]["diff"]


def test_wrong_native_code_is_told_from_wrong_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CACHE", "0")
    path = tmp_path / "native.hlo"
    path.write_text(planted_program(BUGS["native atan2"], chains=4))
    with BUGS["native atan2"].plant():
        result = hloom_bisect(path)
        data = json.loads(hloom_bisect(path, "--json").output)
        module = HloModule.from_text(path.read_text())
        found = bisect(module, random_arguments(module, seed=0))
    assert found is not None and (found.pass_name, found.number, found.total) == ("", 0, 0)
    assert result.exit_code == 1
    assert "native code of planted is wrong; no pass changes the result" in result.output
    assert "atan2(" in result.output
    assert data["planted"]["pass"] == "" and "atan2" in data["planted"]["instruction"]


def test_errors_have_their_own_exit_status(planted: Path, tmp_path: Path) -> None:
    assert hloom_bisect(planted, "--tolerance", "some").exit_code == 2
    assert hloom_bisect(tmp_path).exit_code == 2


# -- XLA's dumps

SCRIPT = """
import jax, jax.numpy as jnp
def loss(w, x):
    for _ in range(3):
        x = jax.nn.softmax(x @ w, axis=-1) + x.T.T
    return (x * x).sum()
jax.jit(jax.value_and_grad(loss)).lower(jnp.ones((8, 8)), jnp.ones((4, 8))).compile()
"""


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dumps that XLA writes after each pass."""
    pytest.importorskip("jaxlib")
    folder = tmp_path_factory.mktemp("dumps")
    flags = f"--xla_dump_to={folder} --xla_dump_hlo_pass_re=.* --xla_dump_large_constants"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    environment.pop("HLOOM_AS_CPU", None)
    subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True, capture_output=True)
    return folder


def test_passes_of_xla_keep_the_result(dumps: Path) -> None:
    (program,) = pass_dumps(dumps, "loss")
    assert len(program.passes) > 10
    assert bisect_dumps(program, lambda module: random_arguments(module, 0)) is None


def test_a_pass_of_xla_that_miscompiles_is_named(dumps: Path, tmp_path: Path) -> None:
    """The dumps from some pass on multiply by 2 what they should not."""
    (program,) = pass_dumps(dumps, "loss")
    paths = [stage.path for stage in program.passes]
    guilty = len(paths) // 2
    for number, path in enumerate(paths):
        text = path.read_text()
        if number >= guilty:
            assert " exponential(" in text
            text = text.replace(" exponential(", " exponential-minus-one(")
        (tmp_path / path.name).write_text(text)
    result = hloom_bisect(tmp_path, "--program", "loss")
    assert result.exit_code == 1, result.output
    after = paths[guilty].name.partition(".after_")[2].partition(".before_")[0]
    assert f"{after} changes the result of " in result.output
    assert "exponential-minus-one" in result.output
    assert hloom_bisect(tmp_path, "--program", "no such").exit_code == 2


def test_a_folder_without_dumps_of_passes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "module_0000.m.before_optimizations.txt").write_text("")
    with pytest.raises(HloError, match="xla_dump_hlo_pass_re") as caught:
        pass_dumps(tmp_path)
    assert caught.value.rule == "bisect.dumps"


def test_dumps_that_cannot_be_read_are_named_and_left_out(tmp_path: Path) -> None:
    text = "HloModule m\n\nENTRY e {\n  p = f32[2]{0} parameter(0)\n  ROOT r = f32[2]{0} negate(p)\n}\n"
    names = [f"module_0000.m.{n:04}.pipeline.after_a{n}.before_a{n + 1}.txt" for n in range(4)]
    for name in names:
        (tmp_path / name).write_text(text)
    for name in names[:3:2]:
        (tmp_path / name).write_text(text.replace("negate", "negat"))
    result = hloom_bisect(tmp_path)
    assert result.exit_code == 0, result.output
    for name in names[:3:2]:
        assert f"note: not run: {tmp_path / name}:5:22: unknown opcode 'negat'" in result.output
    for name in names[1::2]:
        (tmp_path / name).write_text("HloModule m")
    with pytest.raises(HloError) as caught:
        bisect_dumps(pass_dumps(tmp_path)[0], lambda module: random_arguments(module, 0))
    assert caught.value.rule == "bisect.unreadable"
