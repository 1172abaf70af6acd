"""Modules: functions, constants in memory, declarations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from hloom.codegen.llvm.attributes import Attribute
from hloom.codegen.llvm.function import Function
from hloom.codegen.llvm.printer import print_module
from hloom.codegen.llvm.types import VOID, Type
from hloom.codegen.target import Target

MOST_INLINE: Final = 4096
"""Bytes of a constant that is part of the module; longer ones stay outside of what LLVM sees."""


class Declaration:
    """A function that is defined elsewhere.

    Attributes:
        name, result: name and type of the result (``void`` for none).
        parameter_types, parameter_attributes: of the parameters, in order.
        attributes: of the function.
    """

    __slots__ = ("attributes", "name", "parameter_attributes", "parameter_types", "result")

    def __init__(
        self, name: str, result: Type | None, parameters: Sequence[Type], *,
        attributes: Sequence[Attribute] = (),
        parameter_attributes: Mapping[int, tuple[Attribute, ...]] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.result: Type = result or VOID
        self.parameter_types: Sequence[Type] = tuple(parameters)
        stated = parameter_attributes or {}
        self.parameter_attributes = [stated.get(number, ()) for number in range(len(parameters))]
        self.attributes: tuple[Attribute, ...] = tuple(attributes)


Callee: TypeAlias = Function | Declaration


class GlobalConstant:
    """Constant bytes.

    Attributes:
        name: of the symbol.
        data: the bytes.
        align: of the address, in bytes.
        external: whether the bytes are put in place by the loader instead of LLVM.
    """

    __slots__ = ("align", "data", "external", "name")

    def __init__(self, name: str, data: bytes, *, align: int, external: bool) -> None:
        self.name, self.data, self.align, self.external = name, data, align, external


class Module:
    """A module under construction.

    Attributes:
        target: the machine that the code is for.
        functions: the finished functions, by name.
        declarations: functions that are called; those that `functions` defines are not declared in the text.
        globals: constants in memory, by name.
        alignment: bytes to which stack memory and constants are aligned unless told otherwise.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.functions: dict[str, Function] = {}
        self.declarations: dict[str, Declaration] = {}
        self.globals: dict[str, GlobalConstant] = {}
        self.alignment = target.cache_line_bytes

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """Attributes of every function."""
        return (
            Attribute("nounwind"),
            Attribute("prefer-vector-width", str(8 * self.target.vector_bytes)),
            Attribute("no-trapping-math", "true"),
        )

    @property
    def data(self) -> dict[str, bytes]:
        """The constants that the loader puts in place, by name."""
        return {name: g.data for name, g in self.globals.items() if g.external}

    def function(
        self, name: str, parameters: Sequence[Type], result: Type | None = None, *,
        attributes: Sequence[Attribute] = (), internal: bool = True,
    ) -> Function:  # fmt: skip
        """Begin a function; its ``finish`` adds it."""
        return Function(self, name, parameters, result, attributes=attributes, internal=internal)

    def callee(self, name: str) -> Callee | None:
        """Return the function or declaration of a name."""
        return self.functions.get(name) or self.declarations.get(name)

    def declare(
        self, name: str, result: Type | None, parameters: Sequence[Type], *,
        attributes: Sequence[Attribute] = (),
        parameter_attributes: Mapping[int, tuple[Attribute, ...]] | None = None,
    ) -> Declaration:  # fmt: skip
        """Declare a function unless it is declared already; attributes of parameters are by number."""
        known = self.declarations.get(name)
        if known is None:
            known = self.declarations[name] = Declaration(
                name, result, parameters, attributes=attributes, parameter_attributes=parameter_attributes
            )
        return known

    def constant_bytes(self, name: str, data: bytes, *, align: int = 0) -> None:
        """Add constant bytes, whose address `Function.address` gives."""
        external = len(data) > MOST_INLINE
        self.globals[name] = GlobalConstant(name, data, align=align or self.alignment, external=external)

    def text(self) -> str:
        """Return the module in LLVM's textual language."""
        return print_module(self)
