"""The operation that CONTRIBUTING.md adds, added and used in every way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hloom
from hloom.codegen.elementwise.registry import LOWERINGS
from hloom.debug.error_analysis import ErrorAnalysis
from hloom.error_bounds.floating import ulp
from hloom.error_bounds.rules import largest
from hloom.errors import HloError, NoBound
from hloom.ir.operation import REGISTRY
from hloom.ir.traits import Roundoff
from tests import agreement
from tests.arrays import f32

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture
def relu() -> Iterator[None]:
    """The declaration on the page, for the time of a test."""
    block = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)[0]
    exec(compile(block, "CONTRIBUTING.md", "exec"), {"__name__": "contributed"})
    yield
    del REGISTRY["relu"]
    LOWERINGS.pop("relu", None)


TEXT = """HloModule m, entry_computation_layout={(f32[3]{0})->f32[3]{0}}

ENTRY %main (x: f32[3]) -> f32[3] {
  %x = f32[3]{0} parameter(0)
  ROOT %y = f32[3]{0} relu(%x)
}
"""

LOG = "%log = f32[3]{0} log(%x)\n  ROOT"


@pytest.mark.usefixtures("relu")
def test_parses_prints_verifies_and_evaluates() -> None:
    module = hloom.HloModule.from_text(TEXT)
    module.verify()
    assert module.to_text().strip() == TEXT.strip()
    out = hloom.compile(module, backend="evaluator")(f32([-1, np.nan, 2]))
    agreement.equal(out, f32([0, np.nan, 2]))


@pytest.mark.usefixtures("relu")
def test_compiles_with_the_lowering_on_the_page() -> None:
    """And not without it."""
    module = hloom.HloModule.from_text(TEXT)
    with pytest.raises(HloError) as caught:
        hloom.compile(module)
    assert caught.value.rule == "cpu.lowering-missing"
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "@lowering" in b]
    exec(compile(block, "CONTRIBUTING.md", "exec"), {"__name__": "contributed"})
    out = hloom.compile(module)(f32([-1, np.nan, 2]))
    agreement.equal(out, f32([0, np.nan, 2]))


@pytest.mark.usefixtures("relu")
def test_states_its_error_rule_in_its_declaration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error analysis names no operation: without a rule there is no bound, with one there is."""
    module = hloom.HloModule.from_text(TEXT.replace("relu(%x)", "relu(%log)").replace("ROOT", LOG))
    arguments = [f32([0.5, 1, 2])]
    with pytest.raises(NoBound):
        ErrorAnalysis(module).run(arguments)
    monkeypatch.setattr(REGISTRY["relu"], "roundoff", Roundoff.NONE)
    monkeypatch.setattr(REGISTRY["relu"], "propagate", largest)
    agreement.equal(ErrorAnalysis(module).run(arguments)[1], 4 * ulp(np.log(arguments[0]), np.float32))


@pytest.mark.usefixtures("relu")
def test_goes_through_protos() -> None:
    module = hloom.HloModule.from_text(TEXT)
    assert hloom.HloModule.from_proto(module.to_proto()).to_text() == module.to_text()


@pytest.mark.usefixtures("relu")
def test_has_a_builder_function() -> None:
    builder = hloom.XlaBuilder("built")
    x = hloom.ops.Parameter(builder, 0, hloom.Shape.parse("bf16[2]"), "x")
    assert "relu(%x)" in builder.build(hloom.ops.Relu(x)).to_text()


@pytest.mark.usefixtures("relu")
def test_refuses_what_it_does_not_take() -> None:
    module = hloom.HloModule.from_text(
        "HloModule m\nENTRY e { x = s32[3] parameter(0)  ROOT y = s32[3] relu(x) }"
    )
    with pytest.raises(hloom.HloError) as caught:
        module.verify()
    assert caught.value.rule == "relu.element-type"
