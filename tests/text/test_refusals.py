"""Invalid programs are refused, with a position and the name of a rule."""

from __future__ import annotations

import pytest

import hloom.operations  # noqa: F401  (declares the operations)
from hloom.errors import ParseError
from hloom.text.parser import parse_module, parse_modules

P = "p = f32[2] parameter(0)"
BODY = "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  q = f32[2] "

# Rule and text; « stands before the place that the error names.
REFUSED = [
    ("text.no-hlo", "«"),
    ("text.syntax", "HloModule m«"),
    ("text.syntax", "HloModule «f32 ENTRY e { p = f32[] parameter(0) }"),
    ("text.attribute", "HloModule m, «foo=1 ENTRY e { p = f32[] parameter(0) }"),
    ("text.attribute-twice", "HloModule m, is_scheduled=true, «is_scheduled=true ENTRY e { p = f32[] }"),
    ("text.syntax", "HloModule m, is_scheduled=«1 ENTRY e { p = f32[] parameter(0) }"),
    ("module.alias-kind", "HloModule m, input_output_alias={ {0}: (0, {0}, «maybe) } ENTRY e { }"),
    ("module.alias-once", "HloModule m, input_output_alias={ {}: (0, {}), «{}: (1, {}) } ENTRY e { }"),
    (
        "module.alias-output",
        "«HloModule m, input_output_alias={ {3}: (0, {}) } ENTRY e { p = f32[] parameter(0) }",
    ),
    ("stack-frames.fields", 'HloModule m\nFileNames\n1 "a"\nFunctionNames\nFileLocations\n1 {«x=1}'),
    ("text.syntax", "ENTRY e { «}"),
    ("text.syntax", "ENTRY e { «1p = f32[] parameter(0) }"),
    ("text.syntax", "ENTRY e { «p= f32[] parameter(0) }"),
    ("text.name", "ENTRY e { «%f32 = f32[] parameter(0) }"),
    ("text.name", "ENTRY e { «__p = f32[] parameter(0) }"),
    ("text.instruction-twice", "ENTRY e { p = f32[] parameter(0)\n «p = f32[] negate(p) }"),
    ("text.computation-twice", "a { p = f32[] parameter(0) }\n«a { p = f32[] parameter(0) }"),
    ("module.one-entry", "ENTRY a { p = f32[] parameter(0) }\n«ENTRY b { p = f32[] parameter(0) }"),
    ("computation.one-root", "ENTRY e { ROOT p = f32[] parameter(0)\n«ROOT q = f32[] negate(p) }"),
    ("computation.result-shape", "ENTRY e (p: f32[2]) -> «f32[3] { p = f32[2] parameter(0) }"),
    ("computation.parameter-numbers", "ENTRY «e { p = f32[] parameter(1) }"),
    ("text.single-instruction", "p = f32[] parameter(0)\n«q = f32[] negate(p)"),
    ("text.opcode", "ENTRY e { p = f32[] «frobnicate() }"),
    ("text.opcode", "ENTRY e { p = f32[] «frobnicate-start() }"),
    ("text.shape-stated", "ENTRY e { p = «parameter(0) }"),
    ("text.operand", BODY + "negate(«r) }"),
    ("text.operand-shape", BODY + "negate(«f32[3] p) }"),
    ("instruction.arity", BODY + "«negate(p, p) }"),
    ("text.attribute", BODY + "negate(p), «sparsity=1 }"),
    ("text.attribute", BODY + "negate(p), «calls=c }"),
    ("text.attribute-twice", BODY + "negate(p), origin={}, «origin={} }"),
    ("text.attribute-missing", BODY + "«get-tuple-element(p) }"),
    ("text.computation", BODY + "call(p), to_apply=«nowhere }"),
    ("metadata.fields", BODY + "negate(p), metadata={«color=1} }"),
    ("text.integer", BODY + "negate(p), metadata={source_line=«99999999999} }"),
    ("text.integer", BODY + "negate(p), metadata={source_line=«000000000000000000001} }"),
    ("text.string-escape", BODY + 'negate(p), metadata={op_name=«"\\q"} }'),
    ("sharding.words", BODY + "negate(p), sharding={«somehow} }"),
    ("sharding.maximal-device", BODY + "negate(p), sharding={«maximal} }"),
    ("sharding.device-count", BODY + "negate(p), sharding={devices=«[2,2]0,1} }"),
    ("sharding.iota-permutation", BODY + "negate(p), sharding={devices=[4]<=«[2,2]T(1,1)} }"),
    ("origin.tree", BODY + 'negate(p), origin={«,{"a"}} }'),
    ("text.encoding", "// «\ud800"),
]


@pytest.mark.parametrize(("rule", "marked"), REFUSED)
def test_refused_with_rule_and_place(rule: str, marked: str) -> None:
    before = marked[: marked.index("«")]
    with pytest.raises(ParseError) as caught:
        parse_module(marked.replace("«", ""))
    error = caught.value
    assert error.rule == rule
    assert (error.line, error.column) == (before.count("\n") + 1, len(before) - before.rfind("\n"))


@pytest.mark.parametrize("rule", ["text.depth", "shape.text-depth"])
def test_depth_has_an_end(rule: str) -> None:
    deep = {
        "text.depth": "ENTRY e { p = f32[] " + "negate(f32[] " * 5000,
        "shape.text-depth": "ENTRY e { p = " + "(" * 50000,
    }
    with pytest.raises(ParseError) as caught:
        parse_module(deep[rule])
    assert caught.value.rule == rule


def test_the_message_about_a_long_opcode_is_short() -> None:
    with pytest.raises(ParseError, match="unknown opcode") as caught:
        parse_module("ENTRY e { p = f32[] " + "x" * 1_000_000 + "() }")
    assert len(str(caught.value)) < 1000


def test_the_message_points_at_the_place() -> None:
    with pytest.raises(ParseError) as caught:
        parse_module("HloModule m\n\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT q = f32[2] negate(x)\n}\n")
    assert str(caught.value) == (
        "5:26: instruction 'x' does not exist\n  in instruction %q [text.operand]\n"
        "    ROOT q = f32[2] negate(x)\n                           ^"
    )


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("nagate(p)", "'negate'"),
        ("negate(pp)", "'p'"),
        ("reverse(p), dimension={0}", "'dimensions'"),
        ("call(p), to_apply=negatted", "'negated'"),
        ('negate(p), metadata={op_nam="n"}', "'op_name'"),
        ("frobnicate(p)", ""),
        ("negate(p), " + "x" * 10_000 + "={}", ""),
    ],
)
def test_the_message_says_what_may_have_been_meant(line: str, hint: str) -> None:
    called = "negated { x = f32[2] parameter(0)\n ROOT y = f32[2] negate(x) }"
    with pytest.raises(ParseError) as caught:
        parse_module(
            f"HloModule m\n{called}\nENTRY e {{\n p = f32[2] parameter(0)\n ROOT q = f32[2] {line}\n}}"
        )
    assert (
        caught.value.message.endswith(f"; did you mean {hint}?")
        if hint
        else "mean" not in caught.value.message
    )


@pytest.mark.parametrize(
    "text", ['HloModule m, frontend_attributes={a="', "HloModule m /*", "HloModule m {{{{", "%"]
)
def test_texts_that_end_too_early(text: str) -> None:
    with pytest.raises(ParseError):
        parse_module(text)


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("async-start.shape-form", "s = (f32[2], f32[2]) negate-start(p)"),
        ("async.chain", "s = f32[2] async-done(p)"),
        ("async.wrapped-opcode", "s = ((f32[2]), f32[2]) negate-start(p) d = f32[2] abs-done(s)"),
        ("async-update.shape", "s = ((f32[2]), f32[2]) abs-start(p) d = ((f32[2]), s8[]) abs-update(s)"),
        ("async.thread", "s = ((f32[2]), f32[2]) abs-start(p) "
         'd = f32[2] abs-done(s), async_execution_thread="t"'),
        ("async-start.one-caller", "s = ((f32[2]), f32[2]) async-start(p), calls=w "
         "r = ((f32[2]), f32[2]) async-start(p), calls=w"),
        ("async.calls", "s = ((f32[2]), f32[2]) async-start(p), calls=w d = f32[2] async-done(s), calls=v"),
        ("text.attribute", "s = ((f32[2]), f32[2]) negate-start(p), calls=w"),
    ],
)  # fmt: skip
def test_asynchronous_chains_that_do_not_fit(rule: str, line: str) -> None:
    head = "w { p = f32[2] parameter(0) }\nv { p = f32[2] parameter(0) }\n"
    with pytest.raises(ParseError) as caught:
        parse_module(f"HloModule m\n{head}ENTRY e {{ {P} {line} }}")
    assert caught.value.rule == rule
    assert caught.value.line == 4


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("broadcast.dimensions-rank", "q = f32[2,2] broadcast(p)"),
        ("reduce.operand-count", "q = f32[] reduce(p), dimensions={0}, to_apply=a"),
        ("scatter.argument-count", "q = f32[2] scatter(p, p), to_apply=a, update_window_dims={}, "
         "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=0"),
        ("dynamic-slice.start-indices-count", "q = f32[1] dynamic-slice(p), dynamic_slice_sizes={1}"),
        ("sort.one-dimension", "q = f32[2] sort(p), dimensions={0,1}, to_apply=a"),
        ("conditional.branch-index", "q = f32[2] conditional(p, p), branch_computations={a}"),
        ("parameter.replication-leaves", "q = f32[2] parameter(1), parameter_replication={true,true}"),
        ("instruction.shape-matches", "q = (f32[2]) tuple(p, p)"),
    ],
)  # fmt: skip
def test_numbers_of_operands(rule: str, line: str) -> None:
    head = "a { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }"
    with pytest.raises(ParseError) as caught:
        parse_module(f"HloModule m\n{head}\nENTRY e {{ {P} {line} }}")
    assert (caught.value.rule, caught.value.line) == (rule, 3)


def test_files_of_several_modules() -> None:
    text = (
        "// RUN: x\n// -----\nHloModule a ENTRY e { p = f32[] parameter(0) }\n"
        "// ----- b\nENTRY f { q = f32[] parameter(0) }\n"
    )
    assert [module.name for module in parse_modules(text)] == ["a", "module_f"]
    with pytest.raises(ParseError) as caught:
        parse_modules(text + "// -----\nENTRY g {\n  = broken\n}")
    assert caught.value.line == 8
