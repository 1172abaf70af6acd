"""External functions and global data of a module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from hloom.codegen.llvm.attributes import Attribute
from hloom.codegen.llvm.types import VOID, Type
from hloom.records import dataclass


class FunctionDeclaration:
    """An external function.

    Attributes:
        name, result: name and type of the result (``void`` for none).
        parameter_types, parameter_attributes: of the parameters, in order.
        attributes: of the function.
    """

    __slots__ = ("attributes", "name", "parameter_attributes", "parameter_types", "result")

    def __init__(
        self,
        name: str,
        result: Type | None,
        parameters: Sequence[Type],
        *,
        attributes: Sequence[Attribute] = (),
        parameter_attributes: Mapping[int, tuple[Attribute, ...]] | None = None,
    ) -> None:
        self.name = name
        self.result: Type = result or VOID
        self.parameter_types: Sequence[Type] = tuple(parameters)
        stated_attributes = parameter_attributes or {}
        self.parameter_attributes = [stated_attributes.get(number, ()) for number in range(len(parameters))]
        self.attributes: tuple[Attribute, ...] = tuple(attributes)


@dataclass(slots=True)
class GlobalConstant:
    """A constant global.

    Attributes:
        name: of the symbol.
        data: the bytes.
        align: of the address, in bytes.
        external: whether the loader, not LLVM, places the bytes.
    """

    name: str
    data: bytes
    align: int
    external: bool


@dataclass(slots=True)
class GlobalVariable:
    """A mutable global.

    Attributes:
        name: of the symbol.
        size, align: in bytes.
        data: initial contents; the rest is zero.
        linkage: of the symbol; objects that the loader links share hidden ones.
    """

    name: str
    size: int
    align: int
    data: bytes = b""
    linkage: Literal["internal", "hidden", "external hidden"] = "internal"
