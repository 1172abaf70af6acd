"""The backends that `hloom.debug` compares.

- ``evaluator``: the reference evaluator;
- ``passes``: the evaluator on the program after the passes of the cpu backend; a difference is a wrong
  rewrite, not wrong native code;
- ``cpu``: native code, or any other backend that is registered;
- ``xla``: XLA:CPU of jaxlib, if it is installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from hloom.debug.statistics import flat
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.ir.value import Value
from hloom.runtime.backend import backend_names
from hloom.runtime.executable import compile as compile_module
from hloom.shape.shape import Shape

XLA: Final = "xla"
PASSES: Final = "passes"


def names() -> tuple[str, ...]:
    """Return the names of all backends that `run_on` accepts: the registered ones, ``passes`` and ``xla``."""
    return (*backend_names(), PASSES, XLA)


def run_on(backend: str, module: HloModule, arguments: Sequence[Sequence[Value]]) -> list[Any]:
    """Run a program on a backend; return a list with the result of each device.

    Args:
        backend: the name of the backend.
        module: the program.
        arguments: for each device, its list of arguments; ``xla`` runs programs of one device only.

    Raises HloError (rule ``check.backend``) for an unknown backend, (rule ``check.one-device``) for a program
    of several devices on ``xla``, (rule ``check.jaxlib``) if the backend is ``xla`` and jaxlib is not
    installed, and (rule ``check.xla``) for a program that XLA:CPU does not compile or run.
    """
    if backend not in names():
        raise HloError(
            f"there is no backend {backend!r}; known are {', '.join(names())}", rule="check.backend"
        )
    if backend == XLA:
        if len(arguments) != 1:
            message = f"{backend} runs programs of one device; this one has {len(arguments)}"
            raise HloError(message, rule="check.one-device")
        return [_on_xla(module, arguments[0])]
    config = module.config
    executable = compile_module(
        _optimized(module) if backend == PASSES else module,
        "evaluator" if backend == PASSES else backend,
        num_replicas=config.replica_count,
        num_partitions=config.num_partitions,
    )
    return executable.run(arguments)


def run_one(backend: str, module: HloModule, arguments: Sequence[Value]) -> Any:
    """Run a program of one device on the backend named ``backend``; return the program's result.

    Raises the errors of `run_on`.
    """
    return run_on(backend, module, [arguments])[0]


def _optimized(module: HloModule) -> HloModule:
    """Return a copy of a program after all compiler passes of the cpu backend."""
    from hloom.cpu.pipeline import CPU_PIPELINE

    copy = module.clone()
    CPU_PIPELINE.run(copy)
    return copy


def _on_xla(module: HloModule, arguments: Sequence[Value]) -> Any:
    if find_spec("jaxlib") is None:
        message = "xla is XLA:CPU of jaxlib, which is not installed; pip install jax"
        raise HloError(message, rule="check.jaxlib")
    from hloom.debug.xla_cpu import run_on_xla

    text = module.to_text(PrintOptions(print_large_constants=True, print_metadata=False))
    try:
        leaves = run_on_xla(text, [leaf for argument in arguments for leaf in flat(argument)])
    except (RuntimeError, ValueError) as error:  # those of jaxlib
        raise HloError(f"XLA:CPU refuses the program: {error}", rule="check.xla") from error
    return _joined(module.entry.root.shape, iter(leaves))


def _joined(shape: Shape, leaves: Iterator[object]) -> Value:
    if shape.is_tuple:
        return tuple([_joined(part, leaves) for part in shape.tuple_shapes])
    return np.asarray(next(leaves)) if shape.is_array else None
