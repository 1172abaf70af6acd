"""Conditions that `hloom.debug.reduce` preserves while it shrinks a program.

A condition is a function (module, arguments) that returns a bool.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hloom.debug.backends import run_one
from hloom.debug.checking import differs
from hloom.debug.statistics import flat
from hloom.debug.tolerance import Tolerance
from hloom.errors import HloError
from hloom.files import save
from hloom.ir.module import HloModule
from hloom.ir.value import Value

Condition = Callable[[HloModule, list[Value]], bool]


def two_backends_differ(
    backend: str = "cpu", against: str = "evaluator", tolerance: Tolerance | None = None
) -> Condition:
    """Return the condition that the results of two backends differ by more than a tolerance.

    A condition is a function (module, arguments) that returns a bool; `reduce` keeps it true. A tolerance of
    None allows the program's rounding errors.
    """
    return lambda module, arguments: differs(module, arguments, backend, against, tolerance or Tolerance())


def fails(rule: str, backend: str = "cpu") -> Condition:
    """Return the condition that verification, compilation or a run of a program raises a certain HloError.

    The condition is a function (module, arguments) that returns true if the attribute ``rule`` of the error
    equals ``rule``, the identifier of the violated rule. ``backend`` names the backend that compiles and runs
    the program.
    """

    def condition(module: HloModule, arguments: list[Value]) -> bool:
        try:
            module.verify()
            run_one(backend, module, arguments)
        except HloError as error:
            return error.rule == rule
        return False

    return condition


def command(text: str, timeout: float = 300.0) -> Condition:
    """Return the condition that a shell command exits with status 0.

    A condition is a function (module, arguments) that returns a bool. In the command, ``{}`` stands for the
    file of the program, which is appended if there is no ``{}``, and ``{input}`` for an .npz file of the
    arguments. A command that takes longer than ``timeout`` seconds does not meet the condition.
    """

    def condition(module: HloModule, arguments: list[Value]) -> bool:
        with tempfile.TemporaryDirectory(prefix="hloom-reduce-") as folder:
            program, inputs = Path(folder, "program.hlo"), Path(folder, "input.npz")
            save(module, program)
            if "{input}" in text:
                np.savez(inputs, *flat(tuple(arguments)))
            line = text if "{}" in text else f"{text} {{}}"
            line = line.replace("{input}", str(inputs)).replace("{}", str(program))
            try:
                done = subprocess.run(line, shell=True, capture_output=True, timeout=timeout, check=False)
            except subprocess.TimeoutExpired:
                return False
            return done.returncode == 0

    return condition
