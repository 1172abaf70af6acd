"""Public functions refuse arguments of other types: the message says what was wanted, and what was got."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom
from hloom import HloModule, Layout, Literal, Shape, Tile, debug, passes

MODULE = HloModule.from_text("HloModule m\nENTRY e { ROOT p = f32[2] parameter(0) }")
NUMBER: Any = 3
PATH = Path("never-written.pb")
WANTED: dict[str, list[Callable[[Any], object]]] = {
    "an HloModule": [
        lambda x: hloom.save(x, PATH),
        lambda x: hloom.prove(x, MODULE),
        lambda x: hloom.prove(MODULE, x),
        lambda x: hloom.prove_any_size(x, MODULE),
        lambda x: hloom.prove_any_size(MODULE, x),
        lambda x: hloom.prove_partitioned(x, MODULE, [], []),
        lambda x: hloom.prove_partitioned(MODULE, x, [], []),
        lambda x: debug.bisect(x, []),
        lambda x: debug.check(x, []),
        lambda x: debug.optimized(x, "cse"),
        lambda x: debug.random_arguments(x, 0),
        lambda x: debug.reduce(x, [], lambda *_: True),
        lambda x: debug.trace(x, []),
        lambda x: passes.run(x, "cse"),
    ],
    "the path of a file": [
        hloom.load,
        hloom.load_all,
        hloom.load_snapshot,
        lambda x: hloom.save(MODULE, x),
        lambda x: hloom.save_snapshot(hloom.Snapshot(MODULE, (), None), x),
    ],
    "a Snapshot": [
        lambda x: hloom.save_snapshot(x, PATH),
        lambda x: hloom.save_snapshot(hloom.Snapshot(x, (), None), PATH),
    ],
    "the bytes of a": [HloModule.from_proto, lambda x: Literal.from_bytes(Shape.parse("f32[]"), x)],
    "the text of a": [
        Shape.parse,
        Layout.parse,
        Tile.parse,
        lambda x: Literal.parse(x, Shape.parse("f32[]")),
    ],
    "the name of": [hloom.ElementType.parse, hloom.XlaBuilder, passes.pass_named],
    "names of passes": [lambda x: passes.run(MODULE, x)],
    "PrintOptions": [lambda x: MODULE.to_text(x or NUMBER)],
    "a version of jaxlib": [lambda x: MODULE.to_text(xla_version=x or NUMBER)],
    "a Shape": [
        Shape.buffer,
        Literal.elided,
        lambda x: Literal.parse("1", x),
        lambda x: Literal.from_bytes(x, b""),
        lambda x: Literal.from_layout_order(x, np.zeros(1)),
        lambda x: hloom.linear_index(x, [0]),
        lambda x: hloom.multi_index(x, 0),
    ],
    "a NumPy array": [Shape.of, lambda x: Literal.from_layout_order(Shape.parse("f32[]"), x)],
    "a sequence of Shapes": [Shape.maybe_tuple],
    "Shapes": [Shape.tuple_],
    "Literals": [Literal.tuple_],
    "the dimensions of a tile": [Tile],
    "a sequence as minor_to_major": [Layout],
    "a SymbolicRule": [hloom.prove_rule],
    "a function": [hloom.from_jax, debug.nan_origin, debug.infinity_origin],
}
CASES = [(wanted, call) for wanted, calls in WANTED.items() for call in calls]


@pytest.mark.parametrize(
    ("wanted", "call"), CASES, ids=[f"{wanted}-{number}" for number, (wanted, _) in enumerate(CASES)]
)
@pytest.mark.parametrize("value", [None, 3], ids=str)
def test_arguments_of_other_types(wanted: str, call: Callable[[Any], object], value: object) -> None:
    with pytest.raises(hloom.HloError, match=rf"^expected {wanted}.*, got (NoneType|int) ") as caught:
        call(value)
    assert caught.value.rule == "argument.type"
    assert not PATH.exists()
