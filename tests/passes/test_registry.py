"""The registry of passes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hloom.cpu.pipeline import CPU_PIPELINE
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.passes.pipeline import Pass
from hloom.passes.registry import pass_named, passes
from hloom.passes.simplify.dead_code import DeadCodeElimination


def test_every_pass_of_the_cpu_pipeline_is_registered() -> None:
    assert {item.name: type(item) for item in CPU_PIPELINE.flat()}.items() <= passes().items()


def test_registered_passes_are_passes_under_their_own_names() -> None:
    assert len(passes()) > 30
    for name, cls in passes().items():
        assert cls.name == name
        assert isinstance(cls.run, type(Pass.run))


REPORTS_NOTHING = {
    "hlo-memory-scheduler": "states an order",
    "product-views": "takes an argument",
    "attention-fusion": "takes an argument",
    "attention-gradient": "takes an argument",
}


@pytest.mark.parametrize("name", sorted(passes().keys() - REPORTS_NOTHING.keys()))
def test_a_pass_that_finds_nothing_reports_no_change(name: str) -> None:
    """Pipelines run until no pass reports a change."""
    module = HloModule.from_text("HloModule m\nENTRY e { ROOT p = f32[3]{0} parameter(0) }")
    pass_named(name)().run(module)
    before = module.to_text()
    assert not pass_named(name)().run(module)
    assert module.to_text() == before


def test_a_pass_is_found_by_name() -> None:
    assert pass_named("dce") is DeadCodeElimination


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(HloError, match=r"known are .*algsimp") as caught:
        pass_named("no-such-pass")
    assert caught.value.rule == "pass.name"


def test_a_second_pass_of_a_name_is_refused() -> None:
    with pytest.raises(HloError) as caught:

        class Other(Pass, name=DeadCodeElimination.name):
            pass

    assert caught.value.rule == "pass.name-unique"
    assert pass_named("dce") is DeadCodeElimination


def test_the_registry_imports_passes_on_demand() -> None:
    code = "import sys, hloom.passes.registry; print('hloom.passes.simplify.dead_code' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
