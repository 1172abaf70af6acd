"""Dataclasses whose methods are compiled when first looked up behave as Python's own."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloom import records

OPTIONS = st.fixed_dictionaries(
    {name: st.booleans() for name in ("repr", "eq", "frozen", "kw_only", "slots")}
)


class Source:
    """Fields of each kind, to be made a dataclass."""

    number: int
    numbers: list[int] = field(default_factory=list)
    name: str = "a"
    hidden: int = field(default=3, repr=False, compare=False)
    keyword: int = field(default=4, kw_only=True)
    derived: int = field(init=False, default=5)
    total: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.number + len(self.name))


def declared(dataclass: Callable[..., Any], **options: bool) -> type[Any]:
    """Declare a dataclass with the fields of `Source`."""
    namespace = {k: v for k, v in vars(Source).items() if k not in ("__dict__", "__weakref__")}
    return dataclass(**options)(type("Declared", (), namespace))


def outcome(function: Callable[[], Any]) -> Any:
    """Return the result of a function, or the type of its exception and the text of a FrozenInstanceError."""
    try:
        return function()
    except Exception as error:
        return type(error), str(error) if isinstance(error, FrozenInstanceError) else ""


def behaviour(cls: type[Any]) -> list[Any]:
    """Return the fields of a class, and how its instances print, compare, hash, change and copy."""
    instances = [outcome(lambda k=k: cls(**k)) for k in ({}, {"number": 1}, {"number": 1, "name": "bc"})]
    one, other = outcome(lambda: cls(number=1, hidden=7)), outcome(lambda: cls(number=1))
    changed = outcome(lambda: cls(number=1))
    return [
        [repr(i) if type(i).__repr__ is not object.__repr__ else type(i).__name__ for i in instances],
        outcome(lambda: cls(1, [2], "b").number),
        one == other,
        one == 1,
        outcome(lambda: hash(cls(number=1, numbers=())) == hash(cls(number=1, numbers=()))),
        outcome(lambda: setattr(changed, "number", 2)),
        outcome(lambda: changed.number),
        outcome(lambda: delattr(changed, "name")),
        outcome(lambda: dataclasses.asdict(cls(number=1))),
        outcome(lambda: dataclasses.replace(cls(number=1), name="xyz").total),
        outcome(lambda: copy.deepcopy(cls(number=1)).total),
        hasattr(cls, "__slots__"),
        cls.__match_args__,
        [(f.name, f.kw_only, f.init) for f in dataclasses.fields(cls)],
    ]


@given(OPTIONS)
def test_classes_behave_as_python_s_dataclasses(options: dict[str, bool]) -> None:
    assert behaviour(declared(records.dataclass, **options)) == behaviour(
        declared(dataclasses.dataclass, **options)
    )


@given(OPTIONS)
def test_signatures_are_those_of_python_s_dataclasses(options: dict[str, bool]) -> None:
    def parameters(cls: type[Any]) -> list[tuple[str, Any]]:
        signature = inspect.signature(cls)
        return [(p.name, p.kind) for p in signature.parameters.values()]

    ours, theirs = declared(records.dataclass, **options), declared(dataclasses.dataclass, **options)
    assert parameters(ours) == parameters(theirs)


@records.dataclass(frozen=True, slots=True)
class Point:
    """A frozen class with slots."""

    x: int
    y: int = 0


@records.dataclass(frozen=True, slots=True)
class Place(Point):
    """A class that inherits fields."""

    names: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return 1


def test_slots_of_frozen_instances_are_pickled() -> None:
    place = Place(1, 2, ("a",))
    assert pickle.loads(pickle.dumps(place)) == place
    assert copy.copy(place) == place


def test_a_method_of_the_class_is_kept() -> None:
    @records.dataclass(init=False)
    class Own:
        a: int

        def __init__(self) -> None:
            self.a = 5

    assert repr(Own()).endswith("Own(a=5)")
    assert hash(Place(1)) == 1
    assert hash(Point(1)) == hash((1, 0))


def test_subclasses_inherit_methods_and_are_not_equal() -> None:
    class Named(Point):
        pass

    assert Named(1) != Point(1)
    assert repr(Named(1)).endswith("Named(x=1, y=0)")
    assert Named(1) == Named(1)


def test_arrays_and_nan_compare_by_identity_first() -> None:
    nan = float("nan")
    assert Point(nan) == Point(nan)  # type: ignore[arg-type]


def test_a_method_is_compiled_once() -> None:
    @records.dataclass
    class Counted:
        a: int

    assert not inspect.isfunction(vars(Counted)["__init__"])
    Counted(1)
    assert inspect.isfunction(vars(Counted)["__init__"])
    assert not inspect.isfunction(vars(Counted)["__repr__"])
    assert Counted.__init__.__qualname__.endswith("Counted.__init__")


def test_an_instance_that_contains_itself_is_printed() -> None:
    @records.dataclass
    class Node:
        next: Any = None

    node = Node()
    node.next = node
    assert repr(node).endswith("Node(next=...)")


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]
