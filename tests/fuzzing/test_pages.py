"""Files that a fuzzing run writes: coverage, titles and keys of causes, pages, scripts, errors."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hloom.fuzzing import causes, pages, reproduction
from hloom.fuzzing.campaign import Finding, FindingKind, Passes
from hloom.fuzzing.causes import CODE_GENERATION, FindingCause, message, nature, signature, title
from hloom.fuzzing.child import Child
from hloom.fuzzing.coverage import Coverage, features
from hloom.fuzzing.explanations import Difference
from hloom.fuzzing.generators.case import Case
from hloom.fuzzing.known import DIFFERENCES
from hloom.fuzzing.limits import time_limit
from hloom.fuzzing.session import Session
from hloom.ir.module import HloModule
from hloom.operations.combiners import Grouping
from tests.arrays import c64, f32, s32

ADDED = Case(
    "by hand/0", "add f32", ("f32[2]", "f32[2]"), (f32([1, 2]), f32([3, 4])),
    ("@a = negate(@p0)", "@r = add(@a, @p1)"), ("@r",),
)  # fmt: skip


def difference(ours: Any, theirs: Any, where: list[bool] | None = None) -> Difference:
    mask = np.ones(ours.shape, bool) if where is None else np.array(where)
    return Difference(ADDED, ours, theirs, mask, lambda arguments: ours, np.zeros(ours.shape))


def finding(kind: FindingKind = FindingKind.VALUES, what: str = "what differs", **fields: Any) -> Finding:
    return Finding(ADDED, kind, what, **fields)


# -- coverage


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("f32[2,3]{0,1} negate(x)", {"rank 2", "layout"}),
        ("f32[2,3]{1,0} negate(x)", {"rank 2"}),
        ("f32[0,3] slice(x), slice={[0:0:1],[0:3:1]}",
         {"rank 2", "empty", "slice some"}),
        ("f32[6] reshape(x)", {"rank 1"}),
        ("f32[2] reduce(x, z), dimensions={1}, to_apply=f", {"rank 1", "dimensions some", "dimensions of 1"}),
        ("f32[2,3] reduce(x, z), dimensions={}, to_apply=f", {"rank 2", "dimensions none"}),
        ("pred[2,3] compare(x, x), direction=LT", {"rank 2", "direction LT"}),
        ("f32[2,3] negate(x), sharding={replicated}", {"rank 2", "sharding"}),
        ("f32[<=2,3] set-dimension-size(x, n), dimensions={0}",
         {"rank 2", "dynamic", "dimensions some", "dimensions of 0"}),
    ],
)  # fmt: skip
def test_features_of_instructions(line: str, texts: set[str]) -> None:
    """Attributes by the class of their numbers, and properties of shapes."""
    module = HloModule.from_text(
        "HloModule m\nf { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }\n"
        "ENTRY e { x = f32[2,3] parameter(0)  z = f32[] parameter(1)  n = s32[] parameter(2)\n"
        f"ROOT r = {line} }}"
    )
    found = set(features(module.entry.root))
    assert texts <= found
    shapes = {
        t for t in found if t.split()[0] in ("rank", "empty", "dynamic", "layout", "sharding", "dimensions")
    }
    assert shapes <= texts


def test_a_program_covers_something_new_once() -> None:
    coverage = Coverage()
    assert coverage.add(ADDED.module)
    assert not coverage.add(ADDED.module)
    assert coverage.add(dataclasses.replace(ADDED, lines=("@r = subtract(@p0, @p1)",)).module)
    assert coverage.types["add f32"] == 2 and coverage.types["subtract f32"] == 1
    assert coverage.attributes["add rank 1"] == 2
    rows = {opcode: (types, attributes) for opcode, types, attributes in coverage.table()}
    assert list(rows) == sorted(rows)
    assert rows["add"] == ("f32: 2", "rank 1: 2")
    assert coverage.summary().endswith(
        f"{len(coverage.types)} pairs of operation and type, "
        f"{len(coverage.attributes)} of operation and attribute"
    )
    assert coverage.summary().startswith("5 of ")


# -- causes


@pytest.mark.parametrize(
    ("ours", "theirs", "where", "word"),
    [
        (f32([0.0, 1]), f32([-0.0, 1]), None, "signs of zeros"),
        (f32([1, 2]), f32([1, np.nan]), None, "NaN"),
        (f32([np.nan, 2]), f32([np.nan, np.inf]), None, "infinities"),
        (f32([np.nan, 2]), f32([np.nan, 3]), None, "numbers"),
        (f32([np.inf, 2]), f32([np.nan, 3]), [False, True], "numbers"),
        (f32([np.inf, 2]), f32([np.nan, np.inf]), None, "NaN"),
        (s32([1]), s32([2]), None, "numbers"),
        (c64([1 + 1j]), c64([complex(1, np.inf)]), None, "infinities"),
    ],
)
def test_the_most_special_values_that_differ(ours: Any, theirs: Any, where: Any, word: str) -> None:
    assert nature(difference(ours, theirs, where)) == word
    assert signature(finding(difference=difference(ours, theirs, where))) == word


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("INTERNAL: no layout f32[2,3]{1,0} of pred[] here\nsecond line", "INTERNAL: no layout of here"),
        ("cannot add %x to it", "cannot add"),
        ("cannot add @x", "cannot add"),
        (
            "the process ends with status -6\nCheck failed: x",
            "the process ends with status - Check failed: x",
        ),
        ("x" * 200, "x" * 160),
    ],
)
def test_words_of_errors(error: str, words: str) -> None:
    assert message(error) == words
    kinds = (FindingKind.CRASHED, FindingKind.REFUSED)
    assert [signature(finding(kind, error)) for kind in kinds] == [f"crash: {words}", f"refused: {words}"]
    assert signature(finding(FindingKind.FORM, error)) == "wrong shapes"


def test_keys_and_titles_of_causes() -> None:
    known = DIFFERENCES[1]
    values = finding(difference=difference(f32([1, 2]), f32([1, 3])))
    assert FindingCause(values, "dce").key == "numbers in dce: add negate"
    assert FindingCause(values, "").key == "numbers in an unknown pass: add negate"
    explained = dataclasses.replace(values, explanation=known)
    assert FindingCause(explained, "dce").key == f"numbers in dce: {known.name}"
    assert FindingCause(finding(FindingKind.REFUSED, "no"), "dce").key == "refused: no in dce: "
    assert title(FindingCause(values, "dce"), "xla") == "XLA:CPU (dce): numbers: add, negate"
    assert title(FindingCause(values, ""), "cpu") == "hloom's native code: numbers: add, negate"
    assert title(FindingCause(explained, ""), "passes") == f"hloom's passes: numbers: {known.name}"
    broken = FindingCause(finding(FindingKind.EVALUATOR), "")
    assert title(broken, "xla") == "hloom: the evaluator fails: add, negate"


@pytest.mark.parametrize(
    ("body", "unused"),
    [("ROOT n = f32[2] negate(a)", False), ("m = f32[2] sine(a)  ROOT n = f32[2] negate(a)", True)],
)
def test_fusions_that_compute_what_they_do_not_use(body: str, unused: bool) -> None:
    text = f"HloModule m\nf {{ a = f32[2] parameter(0)  {body} }}\n"
    text += "ENTRY e { x = f32[2] parameter(0)  s = f32[2] sine(x)\n"
    text += "  ROOT r = f32[2] fusion(x), kind=kLoop, calls=f }"
    assert causes._has_unused(HloModule.from_text(text)) is unused  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("combiner", "grouping"), [("r = f32[] add(a, b)", Grouping.FREE), ("r = f32[] subtract(a, b)", None)]
)
def test_orders_of_combiners(combiner: str, grouping: Grouping | None) -> None:
    text = f"HloModule m\nf {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT {combiner} }}\n"
    text += "ENTRY e { x = f32[2] parameter(0)  z = f32[] constant(0)\n"
    text += "  ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=f }"
    order = causes._order(HloModule.from_text(text))  # pyright: ignore[reportPrivateUsage]
    assert (order is Grouping.FREE) is (grouping is Grouping.FREE)
    assert causes._order(ADDED.module) is Grouping.FREE  # pyright: ignore[reportPrivateUsage]


# -- pages and scripts


def cause(**fields: Any) -> FindingCause:
    values = finding(difference=difference(f32([2, 2]), f32([2, 3]), [False, True]))
    return FindingCause(dataclasses.replace(values, **fields), "dce", "a rewrite")


def test_a_page_has_program_arguments_results_and_pass() -> None:
    page = pages.page(cause(), "cpu")
    assert page.startswith(
        "# hloom's native code (dce): numbers: add, negate\n\nwhat differs\n\n## Program\n\n```\n"
    )
    assert "## Arguments\n\n```\np0 = float32[2] [1. 2.]\np1 = float32[2] [3. 4.]\n```" in page
    results = "hloom's evaluator: float32[2] [2. 2.]\ncpu              : float32[2] [2. 3.]"
    assert f"## Results\n\n```\n{results}\n```" in page
    assert "## Pass\n\ndce\na rewrite\n\n## Versions\n\n" in page
    assert "Reproduction" not in page and "```diff" not in page
    folded = pages.page(cause(case=dataclasses.replace(ADDED, folded=True)), "cpu")
    assert "## Arguments" not in folded
    unknown = pages.page(FindingCause(finding(FindingKind.CRASHED), ""), "cpu")
    assert "## Pass\n\nnot known\n\n## Versions" in unknown and "## Results" not in unknown


def test_a_page_of_xla_has_a_script_and_its_outcome() -> None:
    pytest.importorskip("jax")
    assert "Outcome: not run." in pages.page(cause(), "xla")
    assert "Outcome: reproduced." in pages.page(cause(), "xla", "reproduced")
    assert "Reproduction" not in pages.page(FindingCause(finding(FindingKind.PRINT), ""), "xla")


def test_a_page_shows_what_the_pass_changes() -> None:
    before, after = (dataclasses.replace(ADDED, lines=lines).module for lines in (
        ADDED.lines, ("@r = subtract(@p1, @p0)",)))  # fmt: skip
    text = pages.page(dataclasses.replace(cause(), before=before, after=after), "cpu")
    changes = text.split("```diff\n")[1].split("\n```")[0].splitlines()
    assert any(line.startswith("-") and "negate" in line for line in changes)
    assert any(line.startswith("+") and "subtract" in line for line in changes)
    assert not any(line.startswith(("---", "+++", "@", " ")) for line in changes)
    long = HloModule.from_text(
        "HloModule m\nENTRY e {\n v0 = f32[] parameter(0)\n"
        + "".join(f" v{n + 1} = f32[] negate(v{n})\n" for n in range(40)) + " ROOT r = f32[] negate(v40)\n}"
    )  # fmt: skip
    many = pages.page(dataclasses.replace(cause(), before=long, after=after), "cpu")
    changes = many.split("```diff\n")[1].split("\n```")[0].splitlines()
    assert len(changes) == pages.MOST_CHANGED_LINES + 1 and changes[-1] == "..."


def test_instructions_are_counted_without_the_tuple_of_results() -> None:
    assert pages.instructions(ADDED) == 4


def test_a_script_states_arguments_and_what_is_expected() -> None:
    pytest.importorskip("jax")
    script = reproduction.script(cause())
    compile(script, "script", "exec")
    assert "DIFFERING = {0: [1]}" in script
    assert "    np.array([1.0, 2.0], np.float32).reshape((2,)),\n" in script
    assert "EXPECTED = [\n    np.array([2.0, 2.0], np.float32).reshape((2,)),\n]" in script
    assert "local_devices()[:1]" in script
    folded = reproduction.script(cause(case=dataclasses.replace(ADDED, folded=True)))
    assert "ARGUMENTS = []" in folded
    refused = reproduction.script(FindingCause(finding(FindingKind.REFUSED), ""))
    assert "DIFFERING = {}" in refused and "EXPECTED = []" in refused
    form = reproduction.script(FindingCause(finding(FindingKind.FORM), ""))
    assert "DIFFERING = {0: []}" in form and "EXPECTED = [\n" in form
    two = dataclasses.replace(ADDED, replicas=2, arguments=ADDED.arguments * 2)
    several = reproduction.script(cause(case=two))
    compile(several, "script", "exec")
    assert "local_devices()[:2]" in several and "options.num_replicas = build.num_replicas = 2" in several
    assert "shards[0]" in several


@pytest.mark.parametrize(
    "array",
    [
        f32([1, np.nan]), s32([[1, 2]]), np.array([True, False]), np.array(1.5, np.float64),
        c64([1 + 2j, complex(np.inf, -0.0)]), np.array([1, -2], ml_dtypes.int4),
        np.array([1.5, 2], ml_dtypes.bfloat16), np.zeros((0, 2), np.float32),
    ],
)  # fmt: skip
def test_arrays_as_expressions(array: Any) -> None:
    text = reproduction._expression(array)  # pyright: ignore[reportPrivateUsage]
    again = eval(text, {"np": np, "ml_dtypes": ml_dtypes, "nan": np.nan, "inf": np.inf})
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert again.tobytes() == array.tobytes()


def test_of_many_differing_elements_a_script_compares_twenty() -> None:
    pytest.importorskip("jax")
    many = np.zeros(30, np.float32)
    wide = dataclasses.replace(ADDED, parameters=("f32[30]",) * 2, arguments=(many, many))
    values = dataclasses.replace(difference(many, many + 1), case=wide)
    script = reproduction.script(FindingCause(Finding(wide, FindingKind.VALUES, "", values), ""))
    assert f"DIFFERING = {{0: {list(range(20))}}}" in script


# -- limits, children and sessions


def test_a_limit_of_time_leaves_the_handler_of_signals() -> None:
    before = signal.getsignal(signal.SIGPROF)
    with time_limit(100.0):
        assert signal.getsignal(signal.SIGPROF) is not before
        assert signal.getitimer(signal.ITIMER_PROF)[0] > 90
    assert signal.getsignal(signal.SIGPROF) is before
    assert signal.getitimer(signal.ITIMER_PROF)[0] == 0


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        ("one\ntwo\nthree\nfour\n", "one\ntwo\nthree"),
        ("one\nF0000 fatal\nx Check failed: y\nLLVM ERROR: z\nF last\n", "F0000 fatal\nx Check failed: y\n"
         "LLVM ERROR: z"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_last_errors_of_a_child_are_the_fatal_ones(output: str, lines: str) -> None:
    with Child("cpu") as child:
        assert (child.restarts, child.seconds, child.process) == (0, 0.0, None)
        child._errors.write(output.encode())  # pyright: ignore[reportPrivateUsage]
        assert child._last_errors() == lines  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("names", "after", "expected"),
    [
        (["m.0001.before_dce.txt", "m.0002.before_cse.after_dce.txt"], False, "cse"),
        (["m.0001.after_cse.before_pipeline-end.txt"], False, CODE_GENERATION),
        (["m.0001.before_dce.txt"], True, CODE_GENERATION),
        ([], False, ""),
    ],
)
def test_the_pass_that_ran_when_compilation_ended(names: list[str], after: bool, expected: str) -> None:
    class Stage:
        def __init__(self, name: str) -> None:
            self.path = Path(name)

    class Dumped:
        passes = [Stage(name) for name in names]
        stages = [*passes, *([Stage("m.cpu_after_optimizations.txt")] if after else [])]

    dumped: Any = Dumped()
    assert causes._next_pass(dumped) == expected  # pyright: ignore[reportPrivateUsage]


def test_a_session_keeps_programs_with_their_arguments(tmp_path: Path) -> None:
    session = Session(Passes("dce"), "evaluator dce", tmp_path, 3)
    session.keep(ADDED)
    session.keep(dataclasses.replace(ADDED, folded=True))
    texts = sorted((tmp_path / "corpus").glob("by hand-*.hlo"))
    (arrays,) = (tmp_path / "corpus").glob("*.npz")
    assert len(texts) == 2
    assert all(file.read_text().startswith("// by hand/0: add f32\nHloModule cases") for file in texts)
    assert [np.load(arrays)[name].tolist() for name in ("arr_0", "arr_1")] == [[1, 2], [3, 4]]
    session.save()
    table = (tmp_path / "coverage.md").read_text()
    assert table.startswith("# Coverage\n\n0 of ") and "| operation | element types | attributes |" in table


def test_a_session_counts_programs_and_differences_that_are_set_aside(tmp_path: Path) -> None:
    session = Session(Passes("dce"), "evaluator dce", tmp_path, 3)
    session.step(3)
    assert (session.state.next, session.programs) == (3, 3)
    assert session.state.cases.total() == 3
    assert not session.state.causes
    assert (session.state.format, session.interrupted, session.sharded) == (2, False, False)
