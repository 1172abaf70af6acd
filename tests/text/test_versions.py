"""Text of several versions of XLA: elements of tuples by number, attributes under other names."""

from __future__ import annotations

import pytest

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.ir.xla_version import NEWEST, OLDEST, V0_11, V0_11_2, V0_12, XlaVersion
from hloom.text.parser import parse_module

ELEMENTS = """HloModule m, entry_computation_layout={((f32[2]{0}, (f32[2]{0}, s32[])))->(f32[2]{0}, f32[2]{0}, s32[])}

ENTRY %e (p: (f32[2], (f32[2], s32[]))) -> (f32[2], f32[2], s32[]) {
  %p = (f32[2]{0}, (f32[2]{0}, s32[])) parameter(0)
  %x = f32[2]{0} add(%p#0, %p#1#0)
  ROOT %y = (f32[2]{0}, f32[2]{0}, s32[]) tuple(%x, %p#0, %p#1#1)
}

"""  # noqa: E501 (as XLA prints it)
DUMP = PrintOptions.dump()


def wrong(line: str) -> HloError:
    text = ELEMENTS.replace("add(%p#0, %p#1#0)", line)
    with pytest.raises(HloError) as caught:
        HloModule.from_text(text)
    return caught.value


# -- elements of tuples


@pytest.mark.parametrize("quick", [True, False])
def test_an_element_of_a_tuple_is_one_instruction(quick: bool) -> None:
    module = parse_module(ELEMENTS, quick=quick)
    assert [i.name for i in module.instructions()] == ["p", "p_0", "p_1", "p_1_0", "x", "p_1_1", "y"]
    x, y = module.entry.instructions[4], module.entry.root
    assert x.operands[0] is y.operands[1]
    module.verify()
    assert module.to_text(DUMP) == ELEMENTS


@pytest.mark.parametrize("quick", [True, False])
def test_elements_with_shapes_and_comments(quick: bool) -> None:
    text = ELEMENTS.replace("add(%p#0, %p#1#0)", "add(f32[2]{0} %p#0, /*index=1*/f32[2]{0} %p#1#0)")
    assert parse_module(text, quick=quick).to_text(DUMP) == ELEMENTS


def test_without_compact_elements_each_has_a_line() -> None:
    text = HloModule.from_text(ELEMENTS).to_text()
    assert "  %p_1_0 = f32[2]{0} get-tuple-element(%p_1), index=0\n" in text
    assert HloModule.from_text(text).to_text() == text


def test_a_name_that_an_element_has_taken_gets_a_number() -> None:
    text = ELEMENTS.replace("ROOT", "%p_0 = f32[2]{0} negate(%p#0)\n  ROOT")
    module = HloModule.from_text(text)
    assert [i.name for i in module.instructions() if i.opcode == "negate"] == ["p_0.1"]
    assert len({i.name for i in module.instructions()}) == len(list(module.instructions()))


def test_an_element_in_the_order_of_execution_has_a_line() -> None:
    """Control dependencies are printed by name."""
    text = ELEMENTS.replace(
        "  %x = f32[2]{0} add(%p#0, %p#1#0)\n",
        "  %g = f32[2]{0} get-tuple-element(%p), index=0\n"
        "  %x = f32[2]{0} add(%p#0, %p#1#0), control-predecessors={%g}\n",
    )
    assert HloModule.from_text(text).to_text(DUMP) == text


def test_a_root_that_is_an_element_has_a_line() -> None:
    text = "ENTRY e { p = (f32[], s32[]) parameter(0)\n ROOT g = s32[] get-tuple-element(p), index=1 }"
    assert "ROOT %g = s32[] get-tuple-element(%p), index=1" in HloModule.from_text(text).to_text(DUMP)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("add(%p#2, %p#1#0)", "p#2 does not exist: 'p' has 2 elements"),
        ("add(%p#0, %p#0#0)", "p#0#0 does not exist: 'p#0' has the shape f32[2]{0}"),
    ],
)
def test_elements_that_do_not_exist(line: str, message: str) -> None:
    error = wrong(line)
    assert error.rule == "text.element"
    assert error.message == message
    assert error.line == 5


def test_an_element_of_an_unknown_instruction() -> None:
    assert wrong("add(%q#0, %p#0)").rule == "text.operand"


def test_a_blank_does_not_belong_to_a_name() -> None:
    assert wrong("add(%p #0, %p#0)").rule == "text.syntax"


def test_a_stated_shape_is_that_of_the_element() -> None:
    assert wrong("add(f32[3] %p#0, %p#0)").rule == "text.operand-shape"


# -- versions


def printed(instruction: str, version: XlaVersion) -> str:
    text = f"ENTRY e {{ p = f32[4] parameter(0)\n q = s32[4] parameter(1)\n ROOT r = {instruction} }}"
    options = PrintOptions.dump(version)
    out = HloModule.from_text(text).to_text(options)
    assert HloModule.from_text(out).to_text(options) == out
    return out.partition("ROOT %r = ")[2].partition("\n")[0]


@pytest.mark.parametrize("written", ["type=TOTALORDER", "order=TOTAL"])
def test_the_total_order(written: str) -> None:
    line = f"pred[4] compare(p, p), direction=LT, {written}"
    for version in (OLDEST, V0_11):
        assert printed(line, version) == "pred[4]{0} compare(%p, %p), direction=LT, type=TOTALORDER"
    assert printed(line, V0_11_2) == "pred[4]{0} compare(%p, %p), direction=LT, order=TOTAL"


@pytest.mark.parametrize(
    "line",
    [
        "pred[4] compare(p, p), direction=LT, type=FLOAT",
        "pred[4] compare(p, p), direction=LT, order=PARTIAL",
        "pred[4] compare(q, q), direction=LT, order=TOTAL",
        "pred[4] compare(q, q), direction=LT, type=SIGNED",
    ],
)
def test_the_order_of_the_element_type_is_not_printed(line: str) -> None:
    assert printed(line, OLDEST).endswith("direction=LT")
    assert printed(line, NEWEST).endswith("direction=LT")


@pytest.mark.parametrize("attributes", ["order=PARTIAL", "order=TOTAL, type=UNSIGNED"])
def test_orders_that_contradict_the_type(attributes: str) -> None:
    with pytest.raises(HloError) as caught:
        printed(f"pred[4] compare(q, q), direction=LT, {attributes}", NEWEST)
    assert caught.value.rule == "compare.order"


def test_versions_are_those_of_jaxlib() -> None:
    assert XlaVersion.parse("0.12.0.1") == XlaVersion.parse("0.12") == V0_12
    assert (
        XlaVersion.parse("0.11.2") == V0_11_2 > XlaVersion.parse("0.11.1") > XlaVersion.parse("0.11") == V0_11
    )
    assert [str(version) for version in (V0_11, V0_11_2)] == ["0.11", "0.11.2"]
    assert XlaVersion.parse("1.3", newer=True) > NEWEST
    for text in ("0.9", "newest", "0", "0.12rc", "", f"0.{NEWEST.minor + 1}", "1.3", "9.9"):
        with pytest.raises(HloError) as caught:
            XlaVersion.parse(text)
        assert caught.value.rule == "text.xla-version"


def test_modules_print_the_dumps_of_a_version() -> None:
    module = HloModule.from_text(ELEMENTS)
    assert module.to_text(xla_version="0.12") == ELEMENTS
    assert module.to_text(xla_version="0.10") == module.to_text()
    assert "%" not in module.to_text(PrintOptions(print_percent=False), xla_version="0.12")


def test_topk_states_since_0_11_whether_it_is_stable() -> None:
    text = "ENTRY e { p = f32[8] parameter(0)\n ROOT t = (f32[3], s32[3]) topk(p), k=3, largest=true }"
    module = HloModule.from_text(text)
    assert "topk(%p), k=3, largest=true\n" in module.to_text(xla_version="0.10")
    assert "topk(%p), k=3, largest=true, is_stable=true\n" in module.to_text(xla_version="0.11")
    unstable = module.to_text(xla_version="0.11").replace("is_stable=true", "is_stable=false")
    assert HloModule.from_text(unstable).to_text(xla_version="0.11") == unstable
