"""Routines: functions of the run time, each written as an emitter of its body.

``@routine(PTR, storage=STORAGE)`` declares the types of result and parameters. The decorated function gets
the function under construction and its parameters, structs as `Fields`. Calling a routine in another one
emits a call and adds the callee to the module, which thus holds what its exported routines reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, cast

from hloom.codegen.llvm.attributes import ALWAYS_INLINE
from hloom.codegen.llvm.control_flow import Unreachable
from hloom.codegen.llvm.declarations import GlobalVariable
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.module import Function, Module
from hloom.codegen.llvm.types import I8, PTR, VOID, Type
from hloom.codegen.llvm.values import Operand, Value
from hloom.codegen.structs import Struct
from hloom.codegen.target import Target
from hloom.records import dataclass

PassedValue: TypeAlias = Operand | Fields
Body: TypeAlias = Callable[..., Operand | Fields | None]


class Library(Module):
    """A module of routines.

    Args:
        target: the machine.
        linked: a module that the loader links to this one: its exported routines and its states are shared.
    """

    def __init__(self, target: Target, linked: Library | None = None) -> None:
        super().__init__(target)
        self.linked = linked
        self.alignment = PTR.size  # routines have numbers, pointers and structs in stack memory, no vectors
        self._called: dict[str, Routine] = {}

    def add(self, routines: Iterable[Routine]) -> Library:
        """Emit routines and their callees, direct and indirect."""
        waiting = list(routines)
        while waiting:
            for callee in waiting:
                if self._is_missing(callee.name):
                    callee.emit(self)
            waiting = [callee for name, callee in self._called.items() if self._is_missing(name)]
        return self

    def _is_missing(self, name: str) -> bool:
        shared = self.linked and self.linked.functions.get(name)
        return name not in self.functions and (not shared or shared.internal)

    def call(self, callee: Routine) -> None:
        """Record a callee."""
        self._called[callee.name] = callee


@dataclass(eq=False)
class Routine:
    """A function of the run time.

    Attributes:
        body: emits the code; gets the function and its parameters.
        name: the symbol.
        result: type of the result.
        parameters: types by name; structs are passed by address.
        exported: whether it is visible outside of the module.
        inline: whether it is always inlined.
    """

    body: Body
    result: Type
    parameters: dict[str, Type | Struct]
    name: str = ""
    exported: bool = False
    inline: bool = False

    def __post_init__(self) -> None:
        self.name = self.name or self.body.__name__
        self._types = [PTR if isinstance(p, Struct) else p for p in self.parameters.values()]

    def __call__(self, f: Function, *arguments: PassedValue) -> Value:
        """Emit a call."""
        cast(Library, f.module).call(self)
        return f.call(self.result, self.name, *_values(f, self._types, arguments))

    def address(self, f: Function) -> Value:
        """Return the routine's address."""
        cast(Library, f.module).call(self)
        return f.address(self.name)

    def external(self) -> External:
        """Return the routine as an external function, for modules that the loader links to it."""
        return External(self.name, self.result, *self._types)

    def emit(self, library: Library) -> None:
        """Emit the routine into a module."""
        attributes = (ALWAYS_INLINE,) if self.inline else ()
        f = library.function(
            self.name, self._types, self.result, attributes=attributes, internal=not self.exported
        )
        arguments = [
            Fields(p, value) if isinstance(p, Struct) else value
            for p, value in zip(self.parameters.values(), f.parameters, strict=True)
        ]
        result = self.body(f, *arguments)
        if result is None and self.result is not VOID:
            f.append(Unreachable(f))
        elif not f.block.is_terminated:
            f.return_value(result.pointer if isinstance(result, Fields) else result)
        library.functions[self.name] = f


class External:
    """A function of the C library or of Python's C API, which the loader resolves."""

    def __init__(self, name: str, result: Type = VOID, *parameters: Type) -> None:
        self.name, self.result, self._types = name, result, parameters

    def __call__(self, f: Function, *arguments: PassedValue) -> Value:
        """Emit a call."""
        return f.call(self.result, self.name, *_values(f, self._types, arguments))

    def address(self, f: Function) -> Value:
        """Return the function's address."""
        f.module.declare(self.name, self.result, self._types)
        return f.address(self.name)


class State:
    """A zero-initialized global struct, one for all linked libraries."""

    def __init__(self, name: str, /, **fields: Type | Struct) -> None:
        types = {field: type.text if isinstance(type, Type) else type for field, type in fields.items()}
        self.name, self._struct = name, Struct(name, **types)

    def __call__(self, f: Function) -> Fields:
        """Return the fields, for code of a function."""
        struct, linked = self._struct, cast(Library, f.module).linked
        is_shared = linked is not None and self.name in linked.variables
        f.module.variables[self.name] = GlobalVariable(
            self.name, struct.size, struct.alignment, linkage="external hidden" if is_shared else "hidden"
        )
        return Fields(struct, f.address(self.name))


def text(f: Function, name: str, message: str) -> Value:
    """Return the address of a NUL-terminated string constant."""
    f.module.constant_bytes(name, message.encode() + b"\0", align=I8.size)
    return f.address(name)


def routine(
    result: Type = VOID, /, *, exported: bool = False, inline: bool = False, **parameters: Type | Struct
) -> Callable[[Body], Routine]:
    """Declare a routine by the types of its result and, by name, of its parameters."""
    return lambda body: Routine(body, result, parameters, exported=exported, inline=inline)


def routines_of(*modules: object) -> list[Routine]:
    """Return the routines that Python modules define or import."""
    return [r for m in modules for r in vars(m).values() if isinstance(r, Routine)]


def _values(f: Function, types: Iterable[Type], arguments: Iterable[PassedValue]) -> list[Value]:
    return [
        a.pointer if isinstance(a, Fields) else f.operand(t, a) for t, a in zip(types, arguments, strict=True)
    ]
