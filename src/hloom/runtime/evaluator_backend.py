"""Backend ``evaluator``: the reference evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hloom.analysis.in_flight import check_values_in_flight
from hloom.devices.world import VirtualDevice
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.ir.operation import Value
from hloom.runtime.backend import Backend, CompileOptions, DeviceProgram, Program

if TYPE_CHECKING:
    from hloom.passes.pipeline import Pipeline


class EvaluatorBackend(Backend):
    """Evaluates modules as they are given."""

    name = "evaluator"

    @property
    def target(self) -> None:
        return None

    def pipeline(self) -> Pipeline:
        """Return the empty pipeline."""
        from hloom.passes.pipeline import Pipeline

        return Pipeline([], title="evaluator")

    def compile(self, module: HloModule, options: CompileOptions) -> Program:
        """Verify a module."""
        module.verify()
        check_values_in_flight(module)
        return EvaluatedProgram(module)


class EvaluatedProgram(Program):
    """A verified module."""

    def __init__(self, module: HloModule) -> None:
        self._module = module

    def load(self, device: VirtualDevice) -> DeviceProgram:
        return EvaluatedDeviceProgram(self._module, device)


class EvaluatedDeviceProgram(DeviceProgram):
    """A module with an evaluator for one device."""

    def __init__(self, module: HloModule, device: VirtualDevice) -> None:
        from hloom.evaluate.evaluator import Evaluator

        self._module = module
        self._evaluator = Evaluator(device)

    def run(self, arguments: Sequence[Value]) -> Value:
        try:
            return self._evaluator.run(self._module.entry, arguments)
        except HloError as error:
            self._module.locate(error)
            raise
