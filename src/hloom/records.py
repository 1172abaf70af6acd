"""Dataclasses that are cheap to declare: a method is compiled when it is first looked up.

`dataclasses.dataclass` compiles up to seven methods for every class. hloom declares more than 300 classes, of
which a program needs a few: compiling all methods took half the time of loading the compiler. Fields are kept
as Python keeps them, so that `dataclasses.fields`, `replace` and `asdict` apply.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, field, fields
from reprlib import recursive_repr
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeVar, dataclass_transform, overload

T = TypeVar("T")
_FACTORY: Final = object()
"""Default of a parameter whose field has a ``default_factory``."""
_FIELDS: Final = "__dataclass_fields__"
"""Attribute in which `dataclasses` keeps the fields of a class, by name."""

_INSTANCE_FIELD: Final[object] = vars(dataclasses)["_FIELD"]
"""Marks a `Field` as one of instances, not a class variable; `dataclasses.fields` returns only these."""


@overload
def dataclass(cls: type[T], /) -> type[T]: ...
@overload
def dataclass(
    *,
    init: bool = True,
    repr: bool = True,
    eq: bool = True,
    frozen: bool = False,
    kw_only: bool = False,
    slots: bool = False,
) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(field, Field))
def dataclass(
    cls: type[Any] | None = None,
    /,
    *,
    init: bool = True,
    repr: bool = True,
    eq: bool = True,
    frozen: bool = False,
    kw_only: bool = False,
    slots: bool = False,
) -> Any:
    """Make a class a dataclass; the options are those of `dataclasses.dataclass`."""

    def declare(cls: type[Any]) -> type[Any]:
        _declare_fields(cls, kw_only)
        declared = _with_slots(cls) if slots else cls
        own: dict[str, object] = {**vars(declared)}
        methods: dict[str, object] = {"__replace__": _replaced}
        if init:
            methods["__init__"] = _Method(declared, lambda: _init(declared, frozen))
        if repr:
            methods["__repr__"] = _Method(declared, lambda: _repr(declared))
        if eq:
            methods["__eq__"] = _Method(declared, lambda: _eq(declared))
            # A class that defines __eq__ alone has None as its __hash__.
            if own.get("__hash__") is None:
                own.pop("__hash__", None)
                methods["__hash__"] = _Method(declared, lambda: _hash(declared)) if frozen else None
        if frozen:
            methods |= {"__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
            if slots:
                methods |= {"__getstate__": _state, "__setstate__": _restore}
        for name, method in methods.items():
            if name not in own:
                setattr(declared, name, method)
        return declared

    return declare if cls is None else declare(cls)


def _declare_fields(cls: type[Any], kw_only: bool) -> None:
    """Set ``__dataclass_fields__`` and ``__match_args__`` of a class from its annotations and its bases."""
    declared: dict[str, Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        declared |= getattr(base, _FIELDS, {})
    for name, kind in inspect.get_annotations(cls).items():
        if not str(kind).startswith(("ClassVar", "typing.ClassVar")):
            declared[name] = _field(cls, name, kind, kw_only)
    setattr(cls, _FIELDS, declared)
    if "__match_args__" not in vars(cls):
        cls.__match_args__ = tuple([f.name for f in declared.values() if f.init and not f.kw_only])


def _field(cls: type[Any], name: str, kind: Any, kw_only: bool) -> Field[Any]:
    """Return the field that an annotation declares; its default becomes the class's attribute."""
    value: Any = vars(cls).get(name, MISSING)
    is_declared = issubclass(type(value), Field)
    declared: Any = value if is_declared else field(default=value)
    declared.name, declared.type, declared._field_type = name, kind, _INSTANCE_FIELD
    if declared.kw_only is MISSING:
        declared.kw_only = kw_only
    if declared.default is not MISSING:
        if type(declared.default).__hash__ is None:
            raise ValueError(f"{cls.__name__}.{name}: a mutable default is shared; use default_factory")
        setattr(cls, name, declared.default)
    elif is_declared:
        delattr(cls, name)
    return declared


def _with_slots(cls: type[Any]) -> type[Any]:
    """Return a class like ``cls`` whose fields are slots, but for those that a base has as slots."""
    inherited = {slot for base in cls.__mro__[1:] for slot in vars(base).get("__slots__", ())}
    names: Mapping[str, Field[Any]] = getattr(cls, _FIELDS)
    members = {k: v for k, v in vars(cls).items() if k not in names and k not in ("__dict__", "__weakref__")}
    members["__slots__"] = tuple([name for name in names if name not in inherited])
    metaclass: Any = type(cls)
    slotted: type[Any] = metaclass(cls.__name__, cls.__bases__, members)
    slotted.__qualname__ = cls.__qualname__
    return slotted


def _replaced(self: Any, /, **changes: object) -> Any:
    return dataclasses.replace(self, **changes)


class _Method:
    """A method of a class, replaced by its function when it is first looked up."""

    def __init__(self, cls: type[Any], compiled: Callable[[], Callable[..., Any]]) -> None:
        self._class, self._compiled = cls, compiled

    def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
        function = self._compiled()
        setattr(self._class, function.__name__, function)
        return function.__get__(instance, owner)


def _init(cls: type[Any], frozen: bool) -> Callable[..., Any]:
    names: dict[str, object] = {"_FACTORY": _FACTORY, "_set": object.__setattr__}
    positional, keywords, body = ["self"], ["*"], ["pass"]
    for f in fields(cls):
        has_factory = f.default_factory is not MISSING
        names[f"_default_{f.name}"] = f.default_factory if has_factory else f.default
        default = f"_default_{f.name}()" if has_factory else f"_default_{f.name}"
        has_default = has_factory or f.default is not MISSING
        value = f.name
        if f.init:
            parameter = f.name + ("=_FACTORY" if has_factory else f"={default}") * has_default
            (keywords if f.kw_only else positional).append(parameter)
            if has_factory:
                value = f"{default} if {value} is _FACTORY else {value}"
        elif has_default:
            value = default
        else:
            continue  # __post_init__ sets it
        body.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = positional + (keywords if len(keywords) > 1 else [])
    function = _compiled(cls, "__init__", parameters, body, names)
    function.__annotations__ = {f.name: f.type for f in fields(cls) if f.init} | {"return": None}
    return function


def _repr(cls: type[Any]) -> Callable[..., Any]:
    shown = ", ".join(f"{f.name}={{self.{f.name}!r}}" for f in fields(cls) if f.repr)
    body = [f'return f"{{self.__class__.__qualname__}}({shown})"']
    return recursive_repr()(_compiled(cls, "__repr__", ["self"], body))


def _eq(cls: type[Any]) -> Callable[..., Any]:
    body = [
        "if other.__class__ is not self.__class__: return NotImplemented",
        f"return {_compared(cls, 'self')} == {_compared(cls, 'other')}",
    ]
    return _compiled(cls, "__eq__", ["self", "other"], body)


def _hash(cls: type[Any]) -> Callable[..., Any]:
    return _compiled(cls, "__hash__", ["self"], [f"return hash({_compared(cls, 'self')})"])


def _compared(cls: type[Any], instance: str) -> str:
    """Return an expression: the tuple of the fields that count for equality."""
    return "(" + "".join(f"{instance}.{f.name}, " for f in fields(cls) if f.compare) + ")"


def _compiled(
    cls: type[Any],
    name: str,
    parameters: Iterable[str],
    body: Iterable[str],
    names: Mapping[str, object] = MappingProxyType({}),
) -> Callable[..., Any]:
    namespace = dict(names)
    exec(f"def {name}({', '.join(parameters)}):\n " + "\n ".join(body), namespace)
    function: Any = namespace[name]
    function.__module__, function.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"
    return function


def _refuse_assignment(self: object, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, f.name) for f in fields(self)]


def _restore(self: Any, state: list[object]) -> None:
    for f, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)
