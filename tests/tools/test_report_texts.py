"""The texts of reports: every line that a sharding report and a comparison of backends may have."""

from __future__ import annotations

from dataclasses import replace

import click

from hloom.debug.agreement import Comparison
from hloom.debug.checking import Check, Culprit
from hloom.sharding.reporting.explanations import Conflict, Why
from hloom.sharding.reporting.memory import LiveArray, MemoryUsage
from hloom.sharding.reporting.replication import ReplicatedArray
from hloom.sharding.reporting.report import Report, Row
from hloom.sharding.reporting.suggestions import Suggestion
from hloom.tools.commands.check import report
from hloom.tools.reports.shard_text import report_text

WHY = Why(
    "operand", "dot", "dot", "jit(f)/dot", "a.py:7", "x", "[data, -]", "[-, -]", "its rows are summed",
    ("data of %x: its annotation",), 4000, 6000,
)  # fmt: skip
ROW = Row("ag", "all-gather", "", "", "data", 4, 3000, 2, 1.5e-6, WHY)
OTHER = Row(
    "ar", "all-reduce", "jit(f)/sum", "a.py:9", "", 2, 500, 1, 2e-7, Why("reduction", reason="summed")
)
ARRAY = LiveArray("x", "parameter", "x", "a.py:3", "f32[1000]", 4096, 96)
MEMORY = MemoryUsage(8000, 2_000_000, 500, 3_456_789, 192, "dot", (ARRAY, replace(ARRAY, name="z")), ())
WHOLE = ReplicatedArray("w", "parameter", "w", "a.py:4", "f32[8,8]", 256, False, "data", 1, 192)
SUGGESTION = Suggestion(
    "sharding", "cut %w over data", ("w",), "w", "a.py:4", "[-, -]", "[-, data]", 3000, -192,
    "partitioned again",
)  # fmt: skip
CONFLICT = Conflict(
    "dot", "jit(f)/dot", "a.py:7", ("%x: rows over data",), ("%y: rows over data",), 10, 20
)  # fmt: skip
FULL = Report(
    4,
    {"data": 4},
    (OTHER, ROW, replace(ROW, name="ag2")),
    MEMORY,
    capacity=3_000_000,
    unknown_loops=1,
    conflicts=(CONFLICT,),
    replicated_arrays=(WHOLE, replace(WHOLE, name="v", op_name="", source="", is_annotated=True, saved=0)),
    suggestions=(SUGGESTION,),
)  # fmt: skip


def shown(found: Report, everything: bool = False) -> list[str]:
    return click.unstyle(report_text(found, everything)).split("\n")


def test_a_sharding_report() -> None:
    assert shown(FULL) == [
        "4 devices (data=4)",
        "     collective      number  axis  of  bytes  times  per step  estimate  from",
        "  1  all-gather %ag  2       data  4   3 KB   2      12 KB     3.0 us    jit(f)/dot, a.py:7",
        "  2  all-reduce %ar  1       -     2   500 B  1      500 B     0.2 us    jit(f)/sum, a.py:9",
        "12.5 KB sent by each device in a step, about 3.2 us (estimate)",
        "1 loop of unknown length counted as one iteration",
        "",
        "why",
        "  1 %x [data, -] to [-, -] by dot %dot: its rows are summed",
        "    sends 4 KB; the second cheapest assignment 6 KB",
        "    data of %x: its annotation",
        "  2 reduction: summed",
        "",
        "conflicts: incompatible shardings",
        "  %dot (jit(f)/dot, a.py:7): kept %x: rows over data; not %y: rows over data: sends 10 B, "
        "the second cheapest assignment 20 B",
        "",
        "memory of a device",
        "8 KB arguments, 2 MB results (500 B in the memory of donated arguments), 3.457 MB at the peak, "
        "192 B of it padding of tiled layouts",
        "does not fit into 3 MB",
        "live during %dot:",
        "  array           number  shape      bytes     from",
        "  %x (parameter)  2       f32[1000]  8.192 KB  x, a.py:3",
        "",
        "replicated",
        "  %w f32[8,8]: 256 B, not annotated; dimension 1 over data saves 192 B (w, a.py:4)",
        "  %v f32[8,8]: 256 B, annotated",
        "",
        "to consider, each by itself",
        "  cut %w over data",
        "    saves 3 KB in a step, takes 192 B more at the peak of memory (partitioned again)",
    ]


def test_a_sharding_report_of_nothing() -> None:
    nothing = MemoryUsage(0, 0, 0, 0, 0, "", (), ())
    assert shown(Report(2, {}, (), nothing, capacity=10)) == [
        "2 devices",
        "0 B sent by each device in a step, about 0.0 us (estimate)",
        "",
        "memory of a device",
        "0 B arguments, 0 B results, 0 B at the peak",
        "fits into 10 B",
    ]


def test_costs_are_left_out_where_nothing_was_chosen() -> None:
    for why in (replace(WHY, bytes=-1), replace(WHY, other_bytes=-1), replace(WHY, other_bytes=4000)):
        assert "    sends" not in "\n".join(shown(replace(FULL, collectives=(replace(ROW, why=why),))))
    alone = replace(CONFLICT, other_bytes=-1, op_name="", source="", kept=())
    assert "  %dot: kept nothing; not %y: rows over data: sends 10 B" in shown(
        replace(FULL, conflicts=(alone,))
    )


def test_long_lists_are_cut_unless_all_is_asked_for() -> None:
    count = 14
    long = replace(
        FULL,
        collectives=tuple(replace(ROW, bytes=1000 + n) for n in range(count)),
        memory=replace(MEMORY, peak=tuple(replace(ARRAY, shape=f"f32[{n}]") for n in range(count))),
        conflicts=FULL.conflicts * count,
        replicated_arrays=FULL.replicated_arrays * (count // 2),
        suggestions=FULL.suggestions * count,
    )
    cut = [line for line in shown(long) if line.startswith("...")]
    kinds = ("kinds of collectives", "conflicts", "kinds of arrays", "arrays", "suggestions")
    assert cut == [f"... and 2 more {kind} (--all)" for kind in kinds]
    everything = shown(long, everything=True)
    assert not [line for line in everything if line.startswith("...")]
    assert len(everything) == len(shown(long)) - len(cut) + 2 * (1 + 3 + 1 + 1 + 1 + 2)


def compared(wrong: int, unjudged: int, unequal: int) -> Comparison:
    return Comparison("result", "f32[8]", 8, unequal, wrong, unjudged, 3.25, 0.125, (1, 2), 1.5, 1.25, 0.0625)


def test_a_comparison_of_many_results_lists_those_that_differ() -> None:
    found = Check("cpu", "evaluator", "random 3", [compared(0, 0, 0)] * 40 + [compared(1, 0, 2)])
    lines = click.unstyle(report(found)).split("\n")
    assert lines[0].startswith("cpu against evaluator, random 3: 40 of 41 results agree")
    assert len(lines) == 1 + 2
    assert len(report(found, every=True).split("\n")) == 1 + 40 + 2


def test_a_comparison_of_backends() -> None:
    culprit = Culprit(
        "%y = f32[8] multiply(%x, %w)", "multiply", "jit(f)/scale, a.py:7", "loop %w, iteration 3",
        [("%x", "8 numbers")], [compared(1, 0, 2)],
    )  # fmt: skip
    comparisons = [compared(0, 0, 0), compared(0, 0, 2), compared(1, 0, 2), compared(0, 2, 3)]
    found = Check("cpu", "evaluator", "random 3", comparisons, "%s has no rule", culprit)
    differs = [
        "  differs result f32[8]: 1 of 8 elements differ, at most 3.25 ulp, 0.125",
        "          result[1][2] is 1.5, not 1.25 (allowed: 0.0625)",
    ]
    summary = "2 of 4 results agree, 1 in all bits; at most 3.25 ulp in result"
    assert click.unstyle(report(found)).split("\n") == [
        f"cpu against evaluator, random 3: {summary}",
        "  agrees  result f32[8]: equal bits",
        "  agrees  result f32[8]: 2 of 8 differ, at most 3.25 ulp, 0.125",
        *differs,
        "  unequal result f32[8]: 2 of 8 elements differ, at most 3.25 ulp, 0.125",
        "          result[1][2] is 1.5, not 1.25 (allowed: 0.0625)",
        "  no tolerance can be derived: %s has no rule; state one with --tolerance",
        "",
        "first instruction that differs",
        "  %y = f32[8] multiply(%x, %w)",
        "  at jit(f)/scale, a.py:7",
        "  in loop %w, iteration 3",
        "  %x = 8 numbers",
        *differs,
    ]
    bare = replace(culprit, origin="", loop="", operands=[], comparisons=[])
    assert click.unstyle(report(replace(found, comparisons=[], undecided="", culprit=bare))).split("\n") == [
        "cpu against evaluator, random 3",
        "",
        "first instruction that differs",
        "  %y = f32[8] multiply(%x, %w)",
    ]
