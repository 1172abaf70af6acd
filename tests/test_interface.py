"""The public interface: the names of `hloom` used together, and the cost of importing them."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hloom
from tests import agreement
from tests.arrays import f32


def test_shapes_layouts_and_literals() -> None:
    s = hloom.Shape.parse("bf16[8,128]{1,0:T(8,128)(2,1)}")
    assert (str(s.element_type), s.dimensions, s.byte_size) == ("bf16", (8, 128), 2048)
    assert s.layout is not None
    assert s.layout.minor_to_major == (1, 0)
    assert [tile.dimensions for tile in s.layout.tiles] == [(8, 128), (2, 1)]
    assert str(s) == "bf16[8,128]{1,0:T(8,128)(2,1)}"
    assert hloom.linear_index(s, (1, 2)) == 5
    assert hloom.multi_index(s, 7) == (1, 3)
    assert hloom.multi_index(hloom.Shape.parse("F32[3,5]{1,0:(2,2)}"), 11) is None
    array = np.arange(1024).reshape(8, 128).astype(ml_dtypes.bfloat16)
    data = hloom.Literal(array, s).to_bytes()
    assert (hloom.Literal.from_bytes(s, data).numpy() == array).all()


def test_modules_in_every_form(tmp_path: Path) -> None:
    m = hloom.HloModule.from_text(
        "HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n  ROOT n = f32[4] negate(p)\n}"
    )
    assert hloom.HloModule.from_text(m.to_text()).to_text() == m.to_text()
    data = m.to_proto()
    assert hloom.HloModule.from_proto(data).to_proto() == data
    (tmp_path / "dump.pb.gz").write_bytes(gzip.compress(data))
    assert hloom.load(tmp_path / "dump.pb.gz").to_text() == m.to_text()


def test_a_built_program_runs() -> None:
    b = hloom.XlaBuilder("f")
    x = hloom.ops.Parameter(b, 0, hloom.Shape.parse("f32[4]"), "x")
    c = b.build(x * 2 + hloom.ops.Sin(x))
    exe = hloom.compile(c, backend="evaluator")
    values = np.arange(4, dtype=np.float32)
    out = exe(values)
    assert isinstance(out, np.ndarray)
    agreement.near(out, values * 2 + np.sin(np.float64(values)), 2)


EXCHANGE = """HloModule exchange
ENTRY e {
  t = token[] parameter(0)
  i = (f32[2], token[]) infeed(t)
  v = f32[2] get-tuple-element(i), index=0
  k = token[] get-tuple-element(i), index=1
  o = token[] outfeed(v, k), outfeed_shape=f32[2]
  ROOT r = (f32[2], token[]) tuple(v, o)
}
"""


def test_a_program_per_device_tokens_and_the_host() -> None:
    module_0 = hloom.HloModule.from_text(EXCHANGE)
    module_1 = hloom.HloModule.from_text("ENTRY e { x = s32[] parameter(0)\n ROOT y = s32[] negate(x) }")
    exe = hloom.compile([module_0, module_1], num_replicas=2)
    lit = hloom.Literal(f32([1, 2]))
    exe.devices[0].transfer_to_infeed(lit)
    (value, token), second = exe.run([[None], [np.int32(3)]])
    assert (value.tolist(), token, int(second)) == ([1, 2], None, -3)
    assert exe.devices[0].transfer_from_outfeed().tolist() == [1, 2]


def test_errors_say_where() -> None:
    with pytest.raises(hloom.HloError) as caught:
        hloom.HloModule.from_text(
            "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT n = f32[2] nagate(p)\n}"
        )
    error = caught.value
    assert (error.rule, error.instruction, error.line, error.column) == ("text.opcode", "n", 4, 19)


# -- importing


def loaded_by(statements: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after some statements."""
    code = f"import sys\n{statements}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_hloom_loads_nothing_heavy() -> None:
    heavy = {"llvmlite", "scipy", "jax", "jaxlib", "google", "click", "rich"}
    assert not heavy & loaded_by("import hloom")
    assert not heavy & loaded_by("import hloom\nfor name in hloom.__all__: getattr(hloom, name)")
    evaluation = f"import hloom\nhloom.compile(hloom.HloModule.from_text({EXCHANGE!r}))"
    assert not (heavy - {"scipy"}) & loaded_by(evaluation)


def test_compiling_loads_neither_package_metadata_nor_debugging() -> None:
    modules = loaded_by(f"import hloom\nhloom.compile(hloom.HloModule.from_text({EXCHANGE!r}), 'cpu')")
    assert not {"importlib.metadata", "hloom.debug"} & modules


def test_importing_hloom_costs_little_beside_numpy() -> None:
    code = "import time, numpy\nt = time.process_time()\nimport hloom\nprint(time.process_time() - t)"
    seconds = min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    )
    assert seconds < 0.15
