"""Programs as graphs: users, replacing, removing, ordering, copying."""

from __future__ import annotations

import copy
import itertools
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hloom
from hloom import HloError, HloModule, Shape
from hloom.hooks import PROVIDED
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import REGISTRY
from tests.evaluation import parse
from tests.reducers import with_reducers

TEXT = with_reducers("""HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }

ENTRY main {
  p = f32[4]{0} parameter(0), metadata={op_name="input"}, sharding={devices=[2]<=[2]}
  lowest = f32[] constant(-inf)
  a = f32[4]{0} abs(p), backend_config={"fast":true}, frontend_attributes={note="kept"}
  twice = f32[4]{0} add(a, a), control-predecessors={lowest}
  top = f32[] reduce(twice, lowest), dimensions={0}, to_apply=maximum
  ROOT t = (f32[4]{0}, f32[]) tuple(twice, top)
}
""")


@pytest.fixture
def module() -> HloModule:
    return parse(TEXT)


def named(computation: HloComputation, name: str) -> HloInstruction:
    return next(i for i in computation.instructions if i.name == name)


def negated(operand: HloInstruction) -> HloInstruction:
    return HloInstruction("negated", REGISTRY["negate"](), operand.shape, [operand])


def rule_of(action: Callable[[], object]) -> str | None:
    with pytest.raises(HloError) as caught:
        action()
    return caught.value.rule


# -- users


def test_users_are_listed_once_in_the_order_they_came(module: HloModule) -> None:
    entry = module.entry
    assert [u.name for u in named(entry, "a").users] == ["twice"]
    assert [u.name for u in named(entry, "twice").users] == ["top", "t"]
    assert [u.name for u in named(entry, "lowest").users] == ["top"]


def test_an_operand_that_stands_twice_stays_used_until_both_are_replaced(module: HloModule) -> None:
    twice, a, p = (named(module.entry, name) for name in ("twice", "a", "p"))
    twice.replace_operand(0, p)
    assert (list(a.users), p in twice.operands) == ([twice], True)
    twice.replace_operand(1, p)
    assert not a.users
    assert list(p.users) == [a, twice]


def test_replacing_all_uses_spares_the_new_instruction(module: HloModule) -> None:
    entry = module.entry
    a = named(entry, "a")
    new = entry.add(negated(a))
    a.replace_all_uses_with(new)
    assert new.operands == [a]
    assert [o.name for o in named(entry, "twice").operands] == ["negated", "negated"]
    top = named(entry, "top")
    entry.root.replace_all_uses_with(top)
    assert entry.root is top


# -- replacing and removing


def test_replace_removes_the_old_and_keeps_control_dependencies(module: HloModule) -> None:
    entry = module.entry
    twice = named(entry, "twice")
    new = entry.replace(twice, negated(named(entry, "a")))
    assert twice.parent is None
    assert twice not in entry
    assert [p.name for p in new.control_predecessors] == ["lowest"]
    entry.reorder(entry.post_order())
    module.verify()


def test_what_is_in_use_is_not_removed(module: HloModule) -> None:
    entry = module.entry
    assert rule_of(lambda: entry.remove(named(entry, "a"))) == "computation.remove-used"
    assert rule_of(lambda: entry.remove(entry.root)) == "computation.remove-used"
    orphan = entry.add(negated(named(entry, "p")))
    named(entry, "a").add_control_dependency_to(orphan)
    assert rule_of(lambda: entry.remove(orphan)) == "computation.remove-control"
    orphan.drop_control_dependencies()
    entry.remove(orphan)
    assert orphan not in named(entry, "p").users
    module.verify()


# -- order


def test_post_order_puts_operands_and_control_predecessors_first(module: HloModule) -> None:
    order = [i.name for i in module.entry.post_order()]
    for before, after in (("p", "a"), ("a", "twice"), ("lowest", "twice"), ("twice", "top"), ("top", "t")):
        assert order.index(before) < order.index(after)
    assert [c.name for c in module.post_order()] == ["maximum", "main"]


def test_a_circle_has_no_order(module: HloModule) -> None:
    a, twice = named(module.entry, "a"), named(module.entry, "twice")
    twice.add_control_dependency_to(a)
    assert rule_of(module.entry.post_order) == "computation.cycle"


def test_a_new_order_holds_every_instruction(module: HloModule) -> None:
    assert rule_of(lambda: module.entry.reorder([])) == "computation.reorder"
    assert rule_of(lambda: module.reorder([])) == "module.reorder"


def test_unique_names_know_what_is_there(module: HloModule) -> None:
    assert [module.unique_name(name) for name in ("fresh", "a", "a", "maximum")] == [
        "fresh",
        "a.1",
        "a.2",
        "maximum.1",
    ]


# -- copies


@pytest.mark.parametrize(
    "duplicate",
    [HloModule.clone, copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))],
    ids=["clone", "copy", "deepcopy", "pickle"],
)
def test_copies_are_equal_and_independent(
    module: HloModule, duplicate: Callable[[HloModule], HloModule]
) -> None:
    twin = duplicate(module)
    twin.verify()
    assert twin.to_text() == module.to_text()
    assert twin.to_proto() == module.to_proto()
    assert not set(twin.instructions()) & set(module.instructions())
    twin.config.is_scheduled = False
    twin.entry.replace(named(twin.entry, "twice"), negated(named(twin.entry, "a")))
    assert module.to_text() == parse(TEXT).to_text()


def test_long_programs_are_copied(module: HloModule) -> None:
    entry = module.entry
    last = named(entry, "a")
    for number in range(20_000):
        step = HloInstruction(f"step{number}", REGISTRY["abs"](), last.shape, [last])
        last = entry.add(step)
    assert len(copy.deepcopy(module).entry) == len(entry) == 20_006


def test_an_instruction_is_cloned_with_other_parts(module: HloModule) -> None:
    a, p = named(module.entry, "a"), named(module.entry, "p")
    twin = a.clone("b", operands=[p], shape=Shape.parse("f32[4]{0:S(1)}"))
    assert twin.parent is None
    assert (twin.backend_config, twin.frontend_attributes) == (a.backend_config, a.frontend_attributes)
    assert list(p.users) == [a, twin]
    assert a.shape.layout != twin.shape.layout


CALLED_AT_TWO_DEPTHS = """HloModule m
a { x = f32[] parameter(0) ROOT n = f32[] negate(x) }
b { x = f32[] parameter(0) ROOT n = f32[] call(x), to_apply=a }
c { x = f32[] parameter(0) y = f32[] call(x), to_apply=b ROOT n = f32[] call(y), to_apply=a }
d { x = f32[] parameter(0) y = f32[] call(x), to_apply=a ROOT n = f32[] call(y), to_apply=c }
ENTRY e {
  i = s32[] parameter(0)
  x = f32[] parameter(1)
  ROOT r = f32[] conditional(i, x, x, x, x), branch_computations={ORDER}
}
"""


@pytest.mark.parametrize("order", itertools.permutations("abcd"), ids="".join)
def test_post_order_and_text_have_callees_before_callers(order: tuple[str, ...]) -> None:
    names = ", ".join(order)
    module = parse(CALLED_AT_TWO_DEPTHS.replace("{ORDER}", f"{{{names}}}"))
    done: set[HloComputation] = set()
    for computation in module.post_order():
        assert done.issuperset(c for i in computation for c in i.called_computations)
        done.add(computation)
    assert done == set(module.computations)
    assert HloModule.from_text(module.to_text()).to_text() == module.to_text()


# -- hooks


def test_every_hook_is_provided_with_a_function() -> None:
    texts = [file.read_text() for file in Path(hloom.__file__).parent.rglob("*.py")]
    declared = {name for text in texts for name in re.findall(r' = Hook\("(\w+)"\)', text)}
    assert declared == PROVIDED.keys()
    assert all(callable(function.resolve()) for function in PROVIDED.values())


def test_a_hook_imports_its_module_at_the_first_call() -> None:
    code = (
        "import sys; from hloom.ir.module import HloModule; before = 'hloom.text.parser' in sys.modules; "
        "HloModule.from_text('ENTRY e { ROOT c = f32[] constant(1) }'); "
        "print(before, 'hloom.text.parser' in sys.modules, 'google.protobuf' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["False", "True", "False"]
