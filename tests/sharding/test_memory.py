"""MemoryUsage of a device over the schedule, what lives at the peak, and whether it fits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.sharding import report
from hloom.sharding.reporting.memory import MemoryUsage
from hloom.sharding.reporting.topologies import TOPOLOGIES, parse_memory
from hloom.tools.cli import main
from hloom.tools.commands.shard import DOES_NOT_FIT


def of(body: str, head: str = "HloModule m", computations: str = "") -> MemoryUsage:
    found = report(HloModule.from_text(f"{head}\n{computations}\nENTRY e {{ {body} }}")).memory
    # The list at the peak, the peak and the timeline say the same.
    assert sum(array.bytes for array in found.peak) == found.peak_bytes
    assert max((size for _, size in found.timeline), default=found.peak_bytes) == found.peak_bytes
    return found


def names(found: MemoryUsage) -> set[str]:
    return {array.name for array in found.peak}


def test_values_live_until_they_are_read_last() -> None:
    found = of("""x = f32[256] parameter(0)
      a = f32[256,256] broadcast(x), dimensions={0}
      b = f32[256,256] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      c = f32[256,256] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT r = f32[256,256] dot(c, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}""")
    matrix = 256 * 256 * 4
    assert (found.argument_bytes, found.result_bytes) == (1024, matrix)
    assert found.peak_bytes == 1024 + 2 * matrix  # an operand and a result
    assert [size for _, size in found.timeline] == [1024 + matrix, *[1024 + 2 * matrix] * 3]


def test_elementwise_results_take_over_memory() -> None:
    found = of("""x = f32[64] parameter(0)
      a = f32[64] exponential(x)
      b = f32[64] negate(a)
      ROOT r = f32[64] add(b, x)""")
    assert found.peak_bytes == 2 * 256
    assert names(found) == {"x", "a"}


def test_elements_of_the_result_live_on() -> None:
    found = of("""x = f32[64] parameter(0)
      a = f32[64] exponential(x)
      t = (f32[64], f32[64]) tuple(a, x)
      g = f32[64] get-tuple-element(t), index=0
      b = f32[64] negate(g)
      ROOT r = (f32[64], f32[64]) tuple(b, g)""")
    assert found.peak_bytes == 3 * 256 and names(found) == {"x", "a", "b"}


@pytest.mark.parametrize(
    "head",
    [
        "HloModule m, input_output_alias={ {}: (0, {}, may-alias) }",
        "HloModule m, buffer_donor={ (0, {}) }",
    ],
)
def test_donated_arguments_take_results(head: str) -> None:
    body = """x = f32[64] parameter(0)
      ROOT a = f32[64] exponential(x)"""
    found = of(body, head)
    assert (found.donated_bytes, found.peak_bytes) == (256, 256)
    assert of(body).peak_bytes == 512


LOOP = """
  less { p = (s32[], f32[64], f32[64]) parameter(0)
    n = s32[] get-tuple-element(p), index=0
    k = s32[] constant(5)
    ROOT c = pred[] compare(n, k), direction=LT }
  body { p = (s32[], f32[64], f32[64]) parameter(0)
    n = s32[] get-tuple-element(p), index=0
    one = s32[] constant(1)
    m = s32[] add(n, one)
    x = f32[64] get-tuple-element(p), index=1
    w = f32[64] get-tuple-element(p), index=2
    big = f32[64,64] broadcast(w), dimensions={0}
    square = f32[64,64] dot(big, big), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    part = f32[1,64] slice(square), slice={[0:1], [0:64]}
    row = f32[64] reshape(part)
    y = f32[64] add(x, row)
    ROOT t = (s32[], f32[64], f32[64]) tuple(m, y, w) }
"""


def test_a_loop_changes_copies_of_arguments_and_needs_what_its_body_needs() -> None:
    found = of(
        """v = f32[64] parameter(0)
      u = f32[64] parameter(1)
      zero = s32[] constant(0)
      i = (s32[], f32[64], f32[64]) tuple(zero, v, u)
      l = (s32[], f32[64], f32[64]) while(i), condition=less, body=body
      ROOT r = f32[64] get-tuple-element(l), index=1""",
        computations=LOOP,
    )
    assert found.at == "l"
    # The body changes v and the counter, in copies; it hands u on as it is, and updates v in place.
    assert names(found) == {"v", "u", "zero", "l{0}", "l{1}", "one", "big", "square"}
    assert found.peak_bytes == 3 * 256 + 3 * 4 + 2 * 64 * 64 * 4


def test_branches_need_the_larger_one() -> None:
    found = of(
        """p = pred[] parameter(0)
      x = f32[64] parameter(1)
      ROOT c = f32[64] conditional(p, x, x), true_computation=small, false_computation=large""",
        computations="""small { ROOT x = f32[64] parameter(0) }
      large { x = f32[64] parameter(0)
        big = f32[64,64] broadcast(x), dimensions={0}
        first = f32[1,64] slice(big), slice={[0:1], [0:64]}
        ROOT r = f32[64] reshape(first) }""",
    )
    assert found.peak_bytes == 1 + 256 + 64 * 64 * 4 + 256
    assert "big" in names(found)


def test_tiles_of_layouts_are_padded() -> None:
    head = 'HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["data"=2]>}}'
    found = of(
        """ROOT x = f32[16,100]{1,0:T(8,128)} parameter(0), frontend_attributes={
      xla.sdy.sharding="#sdy.sharding<@mesh, [{\\"data\\"}, {}]>"}""",
        head,
    )
    assert found.argument_bytes == 8 * 128 * 4
    assert found.padding_bytes == 8 * 28 * 4
    (array,) = found.peak
    assert array.shape == "f32[8,100]{1,0:T(8,128)}"


SMALL = """HloModule m
ENTRY e { x = f32[1000] parameter(0)
  ROOT y = f32[1000] exponential(x), metadata={op_name="jit(f)/exp" source_file="a.py" source_line=3} }"""


def test_the_exit_status_says_whether_it_fits(tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(SMALL)
    fits = CliRunner().invoke(main, ["shard", str(file), "--memory", "8KB"])
    assert fits.exit_code == 0 and "fits into 8 KB" in fits.output
    assert "jit(f)/exp, a.py:3" in fits.output
    large = CliRunner().invoke(main, ["shard", str(file), "--memory", "7.9KB"])
    assert large.exit_code == DOES_NOT_FIT == 3 and "does not fit into 7.9 KB" in large.output
    data = json.loads(CliRunner().invoke(main, ["shard", str(file), "--json"]).output)
    assert data["fits"] is True and data["capacity"] == TOPOLOGIES["tpu-v5p"].memory
    assert data["memory"]["peak"][0]["bytes"] == 4000
    unknown = CliRunner().invoke(main, ["shard", str(file), "--json", "--topology", "ethernet"])
    assert json.loads(unknown.output)["fits"] is None


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("16GiB", 16 << 30),
        ("80GB", 80 * 10**9),
        ("1e9", 10**9),
        ("512", 512),
        ("1.5K", 1500),
        ("2Ti", 2 << 40),
    ],
)
def test_notations_of_memory(text: str, count: int) -> None:
    assert parse_memory(text) == count


@pytest.mark.parametrize("text", ["", "much", "-1GB x", "inf"])
def test_bad_notations_of_memory(text: str) -> None:
    with pytest.raises(HloError, match=r"\[memory\.notation\]"):
        parse_memory(text)


def test_a_mesh_is_sizes_of_axes() -> None:
    class Mesh:
        shape = {"data": 4}

    module = HloModule.from_text(SMALL)
    assert report(module, Mesh()).devices == report(module, {"data": 4}).devices == 4
    with pytest.raises(HloError, match=r"\[report\.mesh\]"):
        report(module, 4)
