"""The backend: passes, plans, kernels of scalar code, and a walk over the instructions at run time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import I64, PTR, Function, Module
from hloom.codegen.loops import outer_loops, root_values
from hloom.codegen.target import Target, host
from hloom.cpu import emitters  # noqa: F401  (element rules; the kernels of cpu are not used)
from hloom.cpu.jit.llvm import generate_module
from hloom.cpu.jit.loader import LoadedObject
from hloom.cpu.loaded_program import external_address
from hloom.devices.world import VirtualDevice
from hloom.errors import HloError
from hloom.ir.cloning import clone_module
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.value import Value
from hloom.operations.control_flow import Conditional, While
from hloom.operations.structure import Constant, GetTupleElement, Parameter, Tuple, parameter_number
from hloom.passes.expand.batchnorm_expander import BatchNormExpander
from hloom.passes.expand.map_inliner import MapInliner
from hloom.passes.expand.rng_expander import RngExpander
from hloom.passes.fusion.fusion import InstructionFusion
from hloom.passes.pipeline import Pipeline
from hloom.plan.iteration import result_shapes
from hloom.plan.kernel import KernelKind, KernelPlan, plan_program
from hloom.plan.registry import Kernels
from hloom.runtime.backend import Backend, CompileOptions, DeviceProgram, Program

KERNELS: Kernels[Module, Target] = Kernels("scalar")
"""No kernel but the loop over elements."""


class ScalarBackend(Backend):
    """Compiles each kernel plan to a loop nest of scalar code."""

    name = "scalar"

    @property
    def target(self) -> Target:
        return Target.named(host().triple)

    def pipeline(self) -> Pipeline:
        return Pipeline(
            [MapInliner(), BatchNormExpander(), RngExpander(), InstructionFusion()], title="scalar"
        )

    def compile(self, module: HloModule, options: CompileOptions) -> Program:
        module.verify()
        optimized = clone_module(module)
        self.pipeline().run(optimized)
        return ScalarProgram(optimized, self.target)


class ScalarProgram(Program):
    """Plans, and the code of those that are kernels."""

    def __init__(self, hlo: HloModule, target: Target) -> None:
        self.hlo = hlo
        self.plans = plan_program(hlo, KERNELS, target)
        self.module = Module(target)
        kernels = [p for p in self.plans.values() if p.kind in (KernelKind.LOOP, KernelKind.SCALAR)]
        names = {plan.instruction: f"kernel{number}" for number, plan in enumerate(kernels)}
        for plan in kernels:
            emit_kernel(self.module, names[plan.instruction], plan)
        code = LoadedObject([generate_module(self.module)], external_address, self.module.data)
        self.code = code
        self.functions = {i: ctypes.CFUNCTYPE(None)(code.symbols[name]) for i, name in names.items()}

    def load(self, device: VirtualDevice) -> DeviceProgram:
        return ScalarDeviceProgram(self)


def emit_kernel(module: Module, name: str, plan: KernelPlan) -> Function:
    """Emit (inputs..., results...): the loops of the plan, one element at a time."""
    inputs, shapes = plan.parts.inputs, result_shapes(plan.parts.roots)
    function = module.function(name, [PTR] * (len(inputs) + len(shapes)), internal=False)
    views = [
        View(p, s.element_type, s.dimensions)
        for p, s in zip(function.parameters, [*(i.shape for i in inputs), *shapes], strict=True)
    ]
    elements = Elements(function, 0, dict(zip(inputs, views, strict=False)))

    def body(indices: tuple[Any, ...]) -> None:
        made = root_values(elements, plan.parts.roots, indices)
        for view, value in zip(views[len(inputs) :], made, strict=True):
            elements.store(view, indices, value)

    if plan.space is None or not plan.space.variables:
        if all(0 not in s.dimensions for s in shapes):
            body(plan.space.indices if plan.space is not None else ())
    else:
        first = plan.space.variables[0]
        begin, end = function.constant(I64, 0), function.constant(I64, first.trips)
        with outer_loops(function, plan.space.variables, begin, end), elements.scope():
            body(plan.space.indices)
    function.finish()
    return function


class ScalarDeviceProgram(DeviceProgram):
    """Runs the kernels in order; Python is the control flow."""

    def __init__(self, program: ScalarProgram) -> None:
        self.program = program

    def run(self, arguments: Sequence[Value]) -> Value:
        return self.computation(self.program.hlo.entry, arguments)

    def computation(self, computation: HloComputation, arguments: Sequence[Value]) -> Value:
        values: dict[HloInstruction, Any] = {}
        for i in computation.execution_order():
            operands = [values[o] for o in i.operands]
            values[i] = self.instruction(i, operands, arguments)
        return values[computation.root]

    def instruction(self, i: HloInstruction, operands: list[Any], arguments: Sequence[Value]) -> Any:
        call = self.computation
        match i.operation:
            case Parameter():
                return arguments[parameter_number(i)]
            case Constant(literal=literal):
                return literal.numpy()
            case Tuple():
                return tuple(operands)
            case GetTupleElement(index=index):
                return operands[0][index]
            case While():
                return self.loop(i, operands[0], call)
            case Conditional() as conditional:
                return conditional.evaluate(cast("Any", _Branches(i, call)), *operands)
            case operation if operation.calls_program:
                return call(i.called_computations[0], operands)
            case _ if self.program.plans[i].kind is KernelKind.NONE:
                return (
                    np.ascontiguousarray(operands[0])
                    .view(i.shape.element_type.numpy_dtype)
                    .reshape(i.shape.dimensions)
                )
            case _:
                return self.kernel(i, operands)

    def loop(self, i: HloInstruction, state: Value, call: Callable[..., Any]) -> Value:
        body, condition = i.called_computations
        while call(condition, [state]):
            state = call(body, [state])
        return state

    def kernel(self, i: HloInstruction, operands: list[Any]) -> Any:
        function = self.program.functions.get(i)
        if function is None:
            raise HloError(f"the scalar backend has no kernel for {i.opcode}", rule="scalar.kernel")
        arrays = [np.ascontiguousarray(o) for o in dict(zip(i.operands, operands, strict=True)).values()]
        leaves = [s for _, s in i.shape.leaves()]
        results = [np.empty(s.dimensions, s.element_type.numpy_dtype) for s in leaves]
        function(*(ctypes.c_void_p(a.ctypes.data) for a in (*arrays, *results)))
        return tuple(results) if i.shape.is_tuple else results[0]


class _Branches:
    """The interface by which conditional's evaluation runs its branches."""

    def __init__(self, instruction: HloInstruction, call: Callable[..., Any]) -> None:
        self.instruction, self._call = instruction, call

    def call(self, index: int, *arguments: Value) -> Value:
        return self._call(self.instruction.called_computations[index], arguments)
