"""The verifier: structure first, then every operation's own rules."""

from __future__ import annotations

from hloom.errors import VerifyError
from hloom.ir.module import HloModule


def verify(module: HloModule) -> None:
    """Check a module; raises VerifyError or ShapeError at the first violation, naming rule and instruction."""
    names: set[str] = set()
    for computation in module.post_order():
        _ = computation.root, computation.parameters
        for instruction in computation.post_order():
            if instruction.name in names:
                message = f"two instructions are named %{instruction.name}"
                raise VerifyError(message, rule="module.unique-names", instruction=instruction.name)
            names.add(instruction.name)
            instruction.check_shape()
            instruction.operation.verify(instruction)
