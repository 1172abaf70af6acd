"""The structure rules of the verifier, each broken once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hloom import HloError, HloModule
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import Alias
from hloom.ir.operation import REGISTRY, ProgramShape
from hloom.shape.shape import Shape
from tests.evaluation import parse, refused
from tests.reducers import with_reducers

TEXT = with_reducers("""HloModule m

ENTRY e {
  p = f32[4]{0} parameter(0)
  q = f32[] parameter(1)
  a = f32[4]{0} abs(p)
  b = f32[4]{0} negate(a)
  c = f32[] call(q, q), to_apply=add
  ROOT t = (f32[4]{0}, f32[], f32[]) tuple(b, c, c)
}
""")


class Program:
    """The module of TEXT, its instructions by name."""

    def __init__(self) -> None:
        self.module = parse(TEXT)
        self.entry = self.module.entry
        self.add = next(c for c in self.module.computations if c is not self.entry)
        self.by_name = {i.name: i for i in self.module.instructions()}

    def __getitem__(self, name: str) -> HloInstruction:
        return self.by_name[name]


def test_the_program_is_fine() -> None:
    Program().module.verify()


def refusal(breaking: Callable[[Program], object]) -> HloError:
    program = Program()
    breaking(program)
    with pytest.raises(HloError) as caught:
        program.module.verify()
    return caught.value


def _set(thing: object, **values: object) -> None:
    for name, value in values.items():
        setattr(thing, name, value)


def _entry_of_another_module(p: Program) -> None:
    p.module.remove(p.entry)


def _second_entry_parameter(p: Program) -> None:
    p["q"].operation = REGISTRY["parameter"](parameter_number=0)  # type: ignore[call-arg]


def _parameter_gap(p: Program) -> None:
    p["q"].operation = REGISTRY["parameter"](parameter_number=5)  # type: ignore[call-arg]


def _cycle(p: Program) -> None:
    p["a"].replace_operand(0, p["b"])


def _control_cycle(p: Program) -> None:
    p["b"].add_control_dependency_to(p["a"])


def _control_elsewhere(p: Program) -> None:
    p["add.result"].add_control_dependency_to(p["a"])


def _control_with_one_end(p: Program) -> None:
    p["a"].control_predecessors = (p["q"],)


def _recursion(p: Program) -> None:
    x, y = p.add.parameters
    call = p.add.add(HloInstruction("again", REGISTRY["call"](), x.shape, [x, y], [p.add]))
    p.add.root = call


def _callee_elsewhere(p: Program) -> None:
    p["c"].called_computations = (Program().add,)


def _callee_missing(p: Program) -> None:
    p["c"].called_computations = ()


def _callee_too_many(p: Program) -> None:
    p["c"].called_computations = (p.add, p.add)


def _scheduled_backwards(p: Program) -> None:
    p.module.config.is_scheduled = True
    p.entry.reorder(reversed(list(p.entry.instructions)))


def _shape(p: Program) -> None:
    p["b"].shape = Shape.parse("f32[5]")


def _layout(p: Program, *parameters: str, result: str = "(f32[4], f32[])") -> None:
    shapes = tuple(map(Shape.parse, parameters))
    p.module.config.entry_layout = ProgramShape(shapes, Shape.parse(result))


def _alias(p: Program, output: tuple[int, ...], number: int, index: tuple[int, ...] = ()) -> None:
    p.module.config.aliases[output] = Alias(number, index)


def _donated_and_shared(p: Program) -> None:
    _alias(p, (0,), 0)
    p.module.config.buffer_donors.append((0, ()))


def _shared_twice(p: Program) -> None:
    _alias(p, (1,), 1)
    _alias(p, (2,), 1)


@pytest.mark.parametrize(
    ("rule", "breaking"),
    [
        ("module.entry", _entry_of_another_module),
        ("module.unique-names", lambda p: _set(p.add, name="e")),
        ("computation.unique-names", lambda p: _set(p["a"], name="b")),
        ("computation.parent", lambda p: _set(p["a"], parent=p.add)),
        ("computation.root", lambda p: _set(p.entry, root=p["add.result"])),
        ("computation.root", lambda p: _set(p.add, _root=None)),
        ("computation.operands", lambda p: p["a"].replace_operand(0, p["add.result"])),
        ("computation.use-lists", lambda p: p["a"].users.clear()),
        ("computation.use-lists", lambda p: p["q"].users.update({p["b"]: None})),
        ("computation.parameter-numbers", _second_entry_parameter),
        ("computation.parameter-numbers", _parameter_gap),
        ("computation.cycle", _cycle),
        ("computation.cycle", _control_cycle),
        ("computation.control", _control_elsewhere),
        ("computation.control", _control_with_one_end),
        ("module.recursion", _recursion),
        ("module.callee", _callee_elsewhere),
        ("instruction.calls", _callee_missing),
        ("instruction.calls", _callee_too_many),
        ("schedule.order", _scheduled_backwards),
        ("instruction.arity", lambda p: _set(p["b"], operands=[p["a"], p["a"]])),
        ("instruction.shape-matches", _shape),
        ("module.entry-layout", lambda p: _layout(p, "f32[4]")),
        ("module.entry-layout", lambda p: _layout(p, "f32[5]", "f32[]")),
        ("module.entry-layout", lambda p: _layout(p, "f32[4]", "f32[]", result="f32[]")),
        ("alias.output", lambda p: _alias(p, (3,), 0)),
        ("alias.output", lambda p: _alias(p, (), 0)),
        ("alias.parameter", lambda p: _alias(p, (0,), 2)),
        ("alias.parameter", lambda p: _alias(p, (0,), 0, (1,))),
        ("alias.sizes", lambda p: _alias(p, (0,), 1)),
        ("alias.parameter-once", _shared_twice),
        ("alias.donor", lambda p: p.module.config.buffer_donors.append((7, ()))),
        ("alias.donor-not-shared", _donated_and_shared),
    ],
)
def test_a_broken_structure_is_refused(rule: str, breaking: Callable[[Program], object]) -> None:
    assert refusal(breaking).rule == rule


COPY = """
  x = f32[2] parameter(0)
  s = (f32[2], f32[2], u32[]) copy-start(x)
  a = f32[2] copy-done(s)
  ROOT b = f32[2] copy-done({})
"""


def test_asynchronous_operations_have_a_beginning_and_one_end() -> None:
    assert refused(COPY.format("s")).rule == "async.one-end"
    made = "  y = u32[] constant(0)\n  t = (f32[2], f32[2], u32[]) tuple(x, x, y)\n"
    twisted = COPY.format("t").replace("  ROOT", made + "  ROOT")
    assert refused(twisted).rule == "async.beginning"


def test_the_refusal_names_the_instruction() -> None:
    assert refusal(_shape).instruction == "b"
    assert refusal(_callee_missing).instruction == "c"


def test_names_may_return_in_other_computations() -> None:
    parse(TEXT.replace("x", "p").replace("y =", "q =").replace(", y)", ", q)")).verify()


def test_a_module_without_computations_has_no_entry() -> None:
    with pytest.raises(HloError) as caught:
        HloModule("empty").verify()
    assert caught.value.rule == "module.entry"


def test_computations_guard_their_instructions() -> None:
    p = Program()
    for breaking, rule in (
        (lambda: p.entry.remove(p["a"]), "computation.remove-used"),
        (lambda: p.entry.reorder([p["a"]]), "computation.reorder"),
        (lambda: p.module.reorder([p.entry]), "module.reorder"),
    ):
        with pytest.raises(HloError) as caught:
            breaking()
        assert caught.value.rule == rule
    lonely = p.entry.add(HloInstruction("lonely", REGISTRY["abs"](), p["p"].shape, [p["p"]]))
    lonely.add_control_dependency_to(p["t"])
    with pytest.raises(HloError) as caught:
        p.entry.remove(lonely)
    assert caught.value.rule == "computation.remove-control"


def test_a_computation_knows_its_own() -> None:
    p = Program()
    assert isinstance(p.add, HloComputation)
    assert p["add.result"] in p.add
    assert p["add.result"] not in p.entry


def test_an_instruction_is_checked_although_others_share_its_operation_and_shape() -> None:
    text = "HloModule m\nENTRY e { p = f32[2] parameter(0) q = f32[3] parameter(1)\n"
    text += (
        " a = f32[2] add(p, p)\n b = f32[2] add(a, p)\n ROOT t = (f32[2], f32[2], f32[3]) tuple(a, b, q) }"
    )
    module = parse(text)
    module.verify()
    named = {i.name: i for i in module.entry}
    named["b"].operation, named["b"].shape = named["a"].operation, named["a"].shape
    named["b"].replace_operand(1, named["q"])
    with pytest.raises(HloError) as caught:
        module.verify()
    assert caught.value.instruction == "b"
