"""The example programs and their inputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hloom
from hloom.tools.examples import workload
from tests import agreement


def test_inputs_fit_the_parameters() -> None:
    """Every described program takes exactly the inputs that are drawn for it."""
    directory = workload.examples()
    for name in json.loads((directory / "inputs.json").read_text()):
        module = hloom.HloModule.from_text((directory / f"{name}.hlo").read_text())
        inputs = workload.draw_inputs(directory, name)
        assert [i.shape for i in inputs] == [p.shape.dimensions for p in module.entry.parameters], name
        assert [i.dtype for i in inputs] == [p.shape.element_type.dtype for p in module.entry.parameters], (
            name
        )


def test_inputs_are_the_same_every_time() -> None:
    """Parameter i is drawn with the seed i."""
    first, second = (workload.draw_inputs(workload.examples(), "softmax") for _ in range(2))
    agreement.equal(first[0], second[0])


def test_unknown_program() -> None:
    """A program that inputs.json does not describe has a clear error."""
    with pytest.raises(hloom.HloError) as caught:
        workload.draw_inputs(workload.examples(), "nothing")
    assert caught.value.rule == "workload.inputs"


def test_no_examples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Outside a checkout there are no examples."""
    monkeypatch.setattr(workload, "__file__", str(tmp_path / "a" / "b" / "c" / "d" / "e.py"))
    with pytest.raises(hloom.HloError) as caught:
        workload.examples()
    assert caught.value.rule == "workload.directory"
