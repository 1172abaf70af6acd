"""Registries of a target's kernels, by operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Final, Generic, TypeAlias, TypeVar

from hloom.errors import HloError
from hloom.ir.instruction import HloInstruction
from hloom.operations.control_flow import Fusion
from hloom.plan.kernel import KernelPlan
from hloom.records import dataclass

Program = TypeVar("Program")
Target = TypeVar("Target")
ROW_FUSION: Final = "row-fusion"
"""Key of fusions of kind kCustom: row reductions and elementwise operations on the same rows."""
ATTENTION: Final = "attention"
"""Key of fusions of kind kCustom with dots: two dots, and a row fusion between them."""
ATTENTION_GRADIENT: Final = "attention-gradient"
"""Key of fusions of kind kCustom with dots and several results: scores, rows of them, products of rows."""


@dataclass(slots=True)
class Kernel(Generic[Program, Target]):
    """A registered kernel.

    Attributes:
        emit: emits the kernel of a plan into a program.
        fuses: elementwise operations and movements may be fused around the operation.
        workspace: returns the bytes of scratch memory of an instruction on a target; None without any.
    """

    emit: Callable[[Program, KernelPlan], None]
    fuses: bool = False
    workspace: Callable[[HloInstruction, Target], int] | None = None


Emit: TypeAlias = Callable[[Program, KernelPlan], None]


class Kernels(Generic[Program, Target]):
    """The kernels of one target by the opcode of the hero; registering an opcode twice is an error.

    A kernel's module is imported when a program has the opcode.

    Attributes:
        modules: the module of each kernel that is imported so, by opcode.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._kernels: dict[str, Kernel[Program, Target]] = {}
        self.modules: dict[str, str] = {}

    def imported_from(self, module: str, *opcodes: str) -> None:
        """Name the module that registers the kernels of some opcodes, to import for a program with one."""
        for opcode in opcodes:
            if self.modules.setdefault(opcode, module) != module:
                raise self._registered_twice(opcode)

    def register(
        self,
        *opcodes: str,
        fuses: bool = False,
        workspace: Callable[[HloInstruction, Target], int] | None = None,
    ) -> Callable[[Emit[Program]], Emit[Program]]:
        """Register the decorated emitter for some opcodes."""

        def enter(emit: Emit[Program]) -> Emit[Program]:
            for opcode in opcodes:
                if opcode in self._kernels:
                    raise self._registered_twice(opcode)
                self._kernels[opcode] = Kernel(emit, fuses, workspace)
            return emit

        return enter

    def _registered_twice(self, opcode: str) -> HloError:
        message = f"{self.target} has a kernel for {opcode} already"
        return HloError(message, rule="plan.kernel-registered-twice")

    def __contains__(self, opcode: str) -> bool:
        return opcode in self._kernels or opcode in self.modules

    def __iter__(self) -> Iterator[str]:
        return iter({**self.modules, **self._kernels})

    def __getitem__(self, opcode: str) -> Kernel[Program, Target]:
        if opcode not in self._kernels and opcode in self.modules:
            import_module(self.modules[opcode])
        return self._kernels[opcode]

    def hero(self, i: HloInstruction) -> HloInstruction:
        """Return a fusion's first member with a fusing kernel, else its root."""
        if not isinstance(i.operation, Fusion):
            return i
        body = i.called_computations[0]
        for member in body.instructions:
            if member.opcode in self and self[member.opcode].fuses:
                return member
        return body.root

    def key(self, i: HloInstruction) -> str:
        """Return the key of an instruction's kernel: the hero's opcode, or that of a kCustom fusion."""
        opcode = self.hero(i).opcode
        if isinstance(i.operation, Fusion) and i.operation.kind == "kCustom":
            products = ATTENTION_GRADIENT if i.shape.is_tuple else ATTENTION
            return products if opcode == "dot" else ROW_FUSION
        return opcode

    def serves(self, i: HloInstruction) -> bool:
        """Return true if a kernel is registered for an instruction."""
        return self.key(i) in self

    def workspace(self, i: HloInstruction, target: Target) -> int:
        """Return the size in bytes of the scratch memory of an instruction's kernel on a target."""
        key = self.key(i)
        workspace = self[key].workspace if key in self else None
        return workspace(i, target) if workspace is not None else 0
