"""Calls of a program in each library: compiled if the library has a compiler, on two threads if it has any.

PyTorch runs its file eagerly or compiled; ONNX Runtime and OpenVINO run the graphs that are exported from it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.small_programs.program import Array, all_programs

PACKAGE: Final = "benchmarks.small_programs.peers"
FILES: Final = {"numpy": "arrays", "numba": "loops"}
"""The files of the peers; the others take that of PyTorch."""
Call = Callable[[], Any]


def names_of(side: str) -> set[str]:
    """Return the names of a peer's programs, without importing its library.

    Graphs are exported from programs that are no loops in Python.
    """
    file = Path(__file__).with_name(f"{FILES.get(side, 'pytorch')}.py")
    functions = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]
    if side in ("onnxruntime", "openvino"):
        functions = [f for f in functions if not any(ast.unparse(d) == "stepwise" for d in f.decorator_list)]
    return {f.name for f in functions} & set(all_programs())


def function_of(side: str, name: str) -> Callable[..., Any]:
    """Return a program of a peer."""
    return getattr(import_module(f"{PACKAGE}.{FILES.get(side, 'pytorch')}"), name)


def direct(function: Callable[..., Any], arrays: Sequence[Array]) -> Call:
    """Call a function of arrays."""
    return lambda: function(*arrays)


def torch_call(function: Callable[..., Any], arrays: Sequence[Array]) -> Call:
    """Call PyTorch's operations one by one."""
    import torch

    tensors = [torch.from_numpy(array) for array in arrays]

    def call() -> Any:
        with torch.inference_mode():
            return function(*tensors)

    return call


def compiled_call(function: Callable[..., Any], arrays: Sequence[Array]) -> Call:
    """Compile the program, or a step of it."""
    import torch

    from benchmarks.small_programs.peers import pytorch

    if function.__name__ not in pytorch.STEPWISE:
        return torch_call(torch.compile(function), arrays)
    pytorch.compiled = torch.compile
    return torch_call(function, arrays)


def exported(function: Callable[..., Any], arrays: Sequence[Array]) -> tuple[Any, Any]:
    """Return the module and the example for an exporter."""
    import torch

    class Program(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            return function(*tensors)

    return Program().eval(), tuple(torch.from_numpy(array) for array in arrays)


def onnxruntime_call(function: Callable[..., Any], arrays: Sequence[Array]) -> Call:
    """Run the exported graph in ONNX Runtime."""
    import onnxruntime
    import torch

    module, example = exported(function, arrays)
    program = torch.onnx.export(module, example, dynamo=True, verbose=False)
    assert program is not None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(
        program.model_proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    inputs = {i.name: array for i, array in zip(session.get_inputs(), arrays, strict=True)}
    return lambda: tuple(session.run(None, inputs))


def openvino_call(function: Callable[..., Any], arrays: Sequence[Array]) -> Call:
    """Run the exported graph in OpenVINO, in the precision of the arrays."""
    module, example = exported(function, arrays)
    import openvino

    model = openvino.convert_model(module, example_input=example, input=[list(a.shape) for a in arrays])
    precision = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 2}
    core = openvino.Core()
    request = core.compile_model(model, "CPU", precision).create_infer_request()

    def call() -> Any:
        assert core is not None  # it has to outlive its requests
        results = request.infer(list(arrays), share_inputs=True, share_outputs=True)
        return tuple(results.values())

    return call


SIDES: Final[dict[str, Callable[[Callable[..., Any], Sequence[Array]], Call]]] = {
    "numpy": direct,
    "numba": direct,
    "torch": torch_call,
    "compiled": compiled_call,
    "onnxruntime": onnxruntime_call,
    "openvino": openvino_call,
}


class Model:
    """A program on a side, ``SIDE/NAME``, as `benchmarks.child` runs it."""

    def __init__(self, name: str) -> None:
        self.side, _, self.name = name.partition("/")
        self.function = function_of(self.side, self.name)

    def build(self) -> Call:
        """Return the prepared call."""
        generator = np.random.default_rng(0)
        arrays = [draw(generator) for draw in all_programs()[self.name].arguments]
        return SIDES[self.side](self.function, arrays)

    def step(self, state: Call) -> tuple[Call, Any]:
        """Run the program."""
        return state, state()

    def ready(self, result: Any) -> Any:
        """Return the result: it is computed."""
        return result

    def arrays(self, result: Any) -> list[Array]:
        """Return the results, those of small floating-point types as f32."""
        leaves = result if isinstance(result, (tuple, list)) else (result,)
        wide = [x.float() if str(getattr(x, "dtype", "")) == "torch.bfloat16" else x for x in leaves]
        return [np.array(x) for x in wide]
