"""The builder itself: instructions, names, called computations, annotations, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from hloom import HloError, HloModule, XlaBuilder
from hloom.ir.metadata import OpMetadata
from hloom.shape.shape import Shape
from tests.arrays import f32
from tests.builder.building import ADD, built, ops, value

F4 = Shape.parse("f32[4]")


def test_the_first_program() -> None:
    b = XlaBuilder("f")
    x = ops.Parameter(b, 0, F4, "x")
    computation = b.build(x * 2 + ops.Sin(x))
    assert computation.to_text() == (
        "HloModule f, entry_computation_layout={(f32[4]{0})->f32[4]{0}}\n\n"
        "ENTRY %f (x: f32[4]) -> f32[4] {\n"
        "  %x = f32[4]{0} parameter(0)\n"
        "  %constant = f32[] constant(2)\n"
        "  %broadcast = f32[4]{0} broadcast(%constant), dimensions={}\n"
        "  %multiply = f32[4]{0} multiply(%x, %broadcast)\n"
        "  %sine = f32[4]{0} sine(%x)\n"
        "  ROOT %add = f32[4]{0} add(%multiply, %sine)\n"
        "}\n\n"
    )
    assert str(computation.program_shape) == "(f32[4]{0}) -> f32[4]{0}"


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (lambda x: x + 1, [2, 4, 6]),
        (lambda x: 1 + x, [2, 4, 6]),
        (lambda x: x - 1, [0, 2, 4]),
        (lambda x: 1 - x, [0, -2, -4]),
        (lambda x: x * 3, [3, 9, 15]),
        (lambda x: x / 2, [0, 1, 2]),
        (lambda x: 7 / x, [7, 2, 1]),
        (lambda x: x % 2, [1, 1, 1]),
        (lambda x: x**2, [1, 9, 25]),
        (lambda x: 2**x, [2, 8, 32]),
        (lambda x: x & 1, [1, 1, 1]),
        (lambda x: x | 8, [9, 11, 13]),
        (lambda x: x ^ 1, [0, 2, 4]),
        (lambda x: x << 2, [4, 12, 20]),
        (lambda x: 16 >> x, [8, 2, 0]),
        (lambda x: -x, [-1, -3, -5]),
        (lambda x: abs(-x), [1, 3, 5]),
        (lambda x: ~x, [-2, -4, -6]),
        (lambda x: x + np.array([10, 20, 30]), [11, 23, 35]),
        (lambda x: np.array([10, 20, 30]) - x, [9, 17, 25]),
        (lambda x: [10, 20, 30] - x, [9, 17, 25]),
        (lambda x: x < 3, [True, False, False]),
        (lambda x: x <= 3, [True, True, False]),
        (lambda x: x > 3, [False, False, True]),
        (lambda x: x >= 3, [False, True, True]),
        (lambda x: x == 3, [False, True, False]),
        (lambda x: x != 3, [True, False, True]),
        (lambda x: x[1:], [3, 5]),
        (lambda x: x[::-1], [5, 3, 1]),
        (lambda x: x[::-2], [5, 1]),
        (lambda x: x[-1], 5),
        (lambda x: x[2:1], []),
        (lambda x: x @ x, 35),
    ],
)  # fmt: skip
def test_operators_of_python(operator, expected) -> None:
    assert np.asarray(value(operator, np.array([1, 3, 5], np.int32))).tolist() == expected


def test_slices_of_several_dimensions() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert (value(lambda p: p[1, ..., 1:3], x) == x[1, ..., 1:3]).all()
    assert (value(lambda p: p[..., 2], x) == x[..., 2]).all()
    assert (value(lambda p: p[:, 1], x) == x[:, 1]).all()


def test_tuples_are_indexed_and_unpacked() -> None:
    def swap(x, y):
        first, second = ops.Tuple([x, y])
        return ops.Tuple([second, ops.Tuple([x, y])[0], first])

    b, a, again = value(swap, np.float32(1), np.int32(2))
    assert (b, a, again) == (2, 1, 1)


def test_constants_take_the_type_of_the_other_operand() -> None:
    c = built(lambda x: x + 1.5, "bf16[2]")
    assert "bf16[] constant(1.5)" in c.to_text()
    c = built(lambda x: x + np.float64(1.5), "f16[2]")
    assert "f16[] constant(1.5)" in c.to_text()


@pytest.mark.parametrize("number", [1.5, 1 << 40, 1j, "text"])
def test_constants_must_fit_that_type(number) -> None:
    with pytest.raises(HloError):
        built(lambda x: x + number, "s32[2]")


def test_called_computations_are_copied_once() -> None:
    def twice(x):
        return ops.Tuple([ops.Reduce(x, 0, ADD, [0]), ops.Reduce(x, 1, ADD, [0])])

    c = built(twice, "f32[4]")
    assert len(c.computations) == 2
    assert ADD.entry.module is ADD


def test_a_parsed_module_can_be_called() -> None:
    inner = HloModule.from_text(
        "HloModule m\nENTRY e {\n p = f32[2] parameter(0)\n ROOT r = f32[2] negate(p)\n}\n"
    )
    assert value(lambda x: ops.Call(inner, x), f32([1, 2])).tolist() == [-1, -2]
    assert value(lambda b: ops.Call(b, built(lambda b: ops.Constant(b, 3.0)))) == 3


def test_names_are_unique_and_spellable() -> None:
    b = XlaBuilder("my program")
    x = ops.Parameter(b, 0, F4, "in put")
    c = b.build(ops.Add(ops.Abs(x), ops.Abs(x)))
    names = [i.name for i in c.instructions()]
    assert names == ["in_put", "abs", "abs.1", "add"]
    assert HloModule.from_text(c.to_text()).name == "my_program"


def test_annotations() -> None:
    b = XlaBuilder("f")
    x = ops.Parameter(b, 0, F4, "x")
    b.set_frontend_attributes({"key": "value"})
    with b.annotated(metadata=OpMetadata(op_name="outer"), sharding="{replicated}"):
        y = ops.Abs(x)
    b.clear_frontend_attributes()
    b.set_sharding("{replicated}")
    b.clear_sharding()
    b.set_op_metadata(OpMetadata(op_name="last"))
    b.clear_op_metadata()
    z = ops.Neg(y)
    b.build(z)
    assert y.instruction.metadata == OpMetadata(op_name="outer")
    assert y.instruction.sharding is not None
    assert y.instruction.frontend_attributes == {"key": "value"}
    assert (z.instruction.metadata, z.instruction.sharding, z.instruction.frontend_attributes) == (None,) * 3


def test_aliases_and_program_shape() -> None:
    b = XlaBuilder("f")
    x = ops.Parameter(b, 0, F4, "x")
    y = ops.Neg(x)
    b.setup_alias((), 0, ())
    assert str(b.get_program_shape(y).result) == "f32[4]{0}"
    assert b.get_shape(y) == F4
    assert b.build(y).config.aliases[()].parameter_number == 0


def _rule(function, *shapes: str) -> str:
    with pytest.raises(HloError) as caught:
        built(function, *shapes)
    return caught.value.rule


def test_other_builders_values_are_refused() -> None:
    other = ops.Constant(XlaBuilder("g"), 1.0)
    assert _rule(lambda x: ops.Add(x, other), "f32[]") == "builder.same-builder"


def test_unknown_opcodes_and_attributes_are_refused() -> None:
    assert _rule(lambda x: x.builder.emit("frobnicate", [x]), "f32[]") == "builder.opcode"
    assert _rule(lambda x: x.builder.emit("negate", [x], size=1), "f32[]") == "builder.attribute"
    assert _rule(lambda x: x.builder.emit("transpose", [x]), "f32[]") == "builder.attribute-missing"


def test_a_value_has_no_truth() -> None:
    assert _rule(lambda x: x if x == 1 else -x, "f32[]") == "builder.no-truth-value"


def test_arrays_are_not_iterated() -> None:
    assert _rule(lambda x: next(iter(x)), "f32[2]") == "builder.iterate-tuple"


@pytest.mark.parametrize(
    ("index", "rule"),
    [((0, 0), "builder.index-rank"), (1.5, "builder.index-kind"), (2, "builder.index-range")],
)
def test_impossible_indices(index, rule: str) -> None:
    assert _rule(lambda x: x[index], "f32[2]") == rule


def test_nothing_but_constants_has_no_builder() -> None:
    assert _rule(lambda x: ops.Add(1, 2), "f32[]") == "builder.operand"
    assert _rule(lambda x: ops.Reduce(1.0, 0.0, ADD, [0]), "f32[]") == "builder.operand"


def test_what_is_called_must_be_a_computation() -> None:
    assert _rule(lambda x: ops.Call("add", x), "f32[]") == "builder.computation"
    assert _rule(lambda x: ops.Call(ADD, x), "f32[]") == "call.arguments"


def test_integers_are_integers() -> None:
    assert _rule(lambda x: ops.Transpose(x, [0.5]), "f32[2]") == "builder.integers"
    assert _rule(lambda x: ops.Transpose(x, 0), "f32[2]") == "builder.integers"


def test_a_constant_of_the_wrong_rank() -> None:
    assert _rule(lambda x: ops.ConstantR1(x.builder, 1.0), "f32[2]") == "builder.constant-rank"


def test_an_empty_builder_and_a_finished_one() -> None:
    b = XlaBuilder("f")
    with pytest.raises(HloError) as caught:
        b.build()
    assert caught.value.rule == "builder.empty"
    x = ops.Constant(b, 1.0)
    b.build()
    for late in (b.build, lambda: ops.Neg(x)):
        with pytest.raises(HloError) as caught:
            late()
        assert caught.value.rule == "builder.finished"


def test_errors_name_the_instruction_and_leave_no_trace() -> None:
    b = XlaBuilder("f")
    x = ops.Parameter(b, 0, F4, "x")
    with pytest.raises(HloError) as caught:
        ops.Transpose(x, [1])
    assert caught.value.instruction == "transpose"
    assert caught.value.rule.startswith("transpose.")
    assert not x.instruction.users
    assert "transpose" not in b.build(ops.Abs(x)).to_text()
