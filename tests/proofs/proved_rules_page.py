"""The text of docs/proved_rules.md."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hloom.passes.pipeline import Pass
from hloom.passes.registry import passes
from hloom.passes.rewriting import RewriteRule, RulePass
from hloom.passes.rules import contraction, convolution
from hloom.proofs.symbolic.questions import MOST_EFFORT
from hloom.proofs.verdict import Relation
from tests.proofs.proved_rules import PROGRAMS, RULE_EFFORT, Result, rules, rules_of_xla

INTRODUCTION: Final = """\
# Proved rules

hloom simplifies programs by rules, each a Python function. This page says which of them are proved to
keep the results for **all** sizes: of shapes, ranges, paddings, strides and windows. `make docs` writes
it; a test fails if a rule or one of its examples has changed since, or if a rule has neither a proof nor
a reason. [Proofs](proofs.md#rules-for-all-sizes) says how.

Each rule has examples, on which the tests evaluate both sides. For a proof the sizes of an example
become symbols; the rule's own code rewrites the program, once for each way in which its comparisons of
sizes come out. From each example programs of all ranks up to 4 are made. The dimensions of its values that
correspond are an axis, with a role: kept or reduced, repeated, reversed, batch, contracting. Axes of a role
occur any number of times, in any order; so does an axis of all arrays, whether the example has one or not.
An axis that occurs once by its nature (joined, sorted, split by a reshape), and those of gathers,
convolutions and sorts, stay as they are in the examples.

- **Relation**: *identical* bits, or *real*: equal for real numbers if f32, f64 and complex operations did not
  round; infinities, NaN and signs of zeros are then tested, not proved. Of several examples, the weaker one.
- **Types**: the number of element types for which all examples of the type are proved, of those of the
  examples. Programs of other ranks have the first type.
- **Ranks**: at which all programs are proved; the rank of a program is the highest of its values.
- **Programs**: those made from the examples that the rule rewrites: proved, of all. Where an example has
  many of a rank, some are drawn: 2 to about {most}.
- **Seconds**: processor time. What is proved does not depend on it: a proof is given up after
  {effort} million steps, z3's own and 5,000 for each question to it, and programs of other ranks of a
  rule after {rule_effort} million, or two that were given up.

Of ranks above 4: where a rule treats the axes of a role alike, finitely many stand for any number, since
where two programs differ, some access or condition differs, and only the axes that show this need be
retained ([TensorRight](https://doi.org/10.1145/3704865)). That a rule treats them alike is not proved.
"""

_NUMBER: Final = "makes a constant of the number of a size"
_WINDOWS: Final = "too many cases of the sizes of windows"
TESTED: Final = {
    "size_of_static_dimension": _NUMBER,
    "sum_of_broadcast": _NUMBER,
    "select_of_updates": "scatters are not modelled; its examples with dynamic-update-slice are proved",
    "scatter_of_one_window": "scatters are not modelled",
    "scatter_of_one_element_each": "scatters are not modelled",
    "sum_of_one_element_each": "a sum of which a condition leaves one term is not written as the term",
    "reduce_of_stack": "a maximum along a concatenation is not written as that of its parts; sums are proved",
    "start_indices_one_by_one": "the old form of dynamic slices, with one vector of indices, is not modelled",
    "convolution_of_pad": _WINDOWS,
    "convolution_as_dot": _WINDOWS,
    "convolution_of_spaced_elements": _WINDOWS,
    "spatial_dimensions_of_one": _WINDOWS,
    "window_in_plain_words": _WINDOWS,
    "concatenate_of_nibbles": "bits of integers are not modelled; a test compares all bytes",
    "element_of_reshape": "quotients by products of several sizes",
    "reshape_of_broadcast": "quotients by products of several sizes, in two of five examples",
}
"""Why a rule is not proved: tests compare both sides on its examples, with special numbers."""

UNRULY: Final = {
    "instructions go, move or are grouped, values stay": (
        "cse computation-deduplicator dce flatten-call-graph call-inliner sharding-remover unscheduler "
        "hlo-memory-scheduler array-subviews fusion fusion-limiter scatter-fusion attention-fusion "
        "attention-gradient product-views stencil-updates while-loop-trip-count-annotator "
        "synchronous-operations all-reduce-combiner transpose-motion"
    ),
    "values are computed by the evaluator": "constant_folding",
    "loops and branches": (
        "simplify-conditional simplify-while-loops while-loop-invariant-code-motion loop-stack-reuse "
        "while-loop-dot-code-motion while-loop-dot-layout elementwise-loop-fusion stack-allocation "
        "in-place-accumulation previous-value-updates while-loop-components while-loop-gather-code-motion "
        "while-loop-skewing"
    ),
    "depends on ranges of values": "integer-range-simplifier integer-division",
    "sums are added in another order": "split-k",
    "expansions, and other changes of how values are computed": "",
}
"""Passes without rules, by what they do."""


def page(results: Mapping[str, Result]) -> str:
    """Return the text of the page."""
    listed = list(rules())
    proved = [name for name, _, _ in listed if results[name].is_proved]
    everywhere = [name for name in proved if results[name].is_proved_at_all_ranks]
    programs = [pair for name, _, _ in listed for pair in results[name].ranks.values()]
    seconds = sum(result.seconds for result in results.values())
    lines = [
        INTRODUCTION.format(most=PROGRAMS, effort=MOST_EFFORT // 10**6, rule_effort=RULE_EFFORT // 10**6),
        f"**{len(proved)} of {len(listed)} rules are proved** ({100 * len(proved) / len(listed):.0f} %), "
        f"{len(everywhere)} of them for every program at all ranks up to 4 that they apply to. "
        f"{sum(p for p, _ in programs):,} of {sum(n for _, n in programs):,} programs are proved. "
        f"All proofs of this page take {seconds / 60:.0f} minutes of one core.",
        "",
        "| rule | rewrites | relation | types | ranks | programs | seconds |",
        "|---|---|---|---|---|---|---|",
        *(_row(rule, results[name]) for name, rule, _ in listed if name in proved),
        "",
        "## Tested only",
        "",
        "| rule | rewrites | examples proved | why not all |",
        "|---|---|---|---|",
        *(_open_row(rule, results[name]) for name, rule, _ in listed if name not in proved),
        "",
        *_partly({name: results[name] for name in proved}),
        *_xla(results),
        "## Passes",
        "",
        *_passes(set(proved)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _row(rule: RewriteRule, result: Result) -> str:
    relations = {Relation(relation) for _, _, relation in result.relations}
    relation = "real" if Relation.EQUAL_OVER_REALS in relations else "identical"
    cells = _name(rule), _purpose(rule), relation, _types(result), *_figures(result)
    return f"| {' | '.join(cells)} |"


def _types(result: Result) -> str:
    kinds = {kind for _, kind, _ in result.relations}
    partly = {kind for _, kind, relation in result.relations if not Relation(relation).is_proof}
    return f"{len(kinds - partly)} of {len(kinds)}" if partly else str(len(kinds))


def _figures(result: Result) -> tuple[str, str, str]:
    done, count = (sum(pair[n] for pair in result.ranks.values()) for n in (0, 1))
    return _span(result.proved_ranks), f"{done} of {count}", f"{result.seconds:.1f}"


def _partly(results: Mapping[str, Result]) -> Iterable[str]:
    """Yield why some programs of proved rules are open."""
    yield "Programs of proved rules that are open:"
    yield ""
    for name, result in results.items():
        if not result.is_proved_at_all_ranks:
            counts = (f"rank {rank}: {n - p} of {n}" for rank, (p, n) in result.ranks.items() if p < n)
            reasons = dict.fromkeys(reason.split(": ", 1)[-1] for _, reason in result.open)
            yield f"- `{name}`: {', '.join(counts)} ({'; '.join(reasons)})"
    yield ""


def _xla(results: Mapping[str, Result]) -> Iterable[str]:
    """Yield the table of rules of XLA."""
    listed = list(rules_of_xla())
    treated = [name for name, _ in listed if is_treated_by_tensorright(name)]
    everywhere = [name for name, _ in listed if results[name].is_proved_at_all_ranks]
    both = set(treated).intersection(everywhere)
    yield "## Rules of XLA"
    yield ""
    yield from textwrap.wrap(
        f"`hloom.proofs.symbolic.xla` states {len(listed)} rules of XLA's algebraic simplifier, "
        f"{len(treated)} of them of the 175 of TensorRight, the other ones of those that it leaves out. "
        f"**{len(everywhere)} are proved at all ranks up to 4**, {len(both)} of "
        "TensorRight's, for all sizes and numbers of dimensions of each class. The rank is the highest of a "
        "parameter.",
        110,
    )
    yield ""
    yield "| rule | rewrites | types | ranks | instances | seconds | not proved |"
    yield "|---|---|---|---|---|---|---|"
    for name, rule in listed:
        result = results[name]
        purpose = rule.purpose.replace("|", "\\|")
        reasons = "; ".join(dict.fromkeys(reason for _, reason in result.open[:3]))
        cells = f"`{name}`", purpose, _types(result), *_figures(result), reasons
        yield f"| {' | '.join(cells)} |"
    yield ""


def is_treated_by_tensorright(name: str) -> bool:
    """Return whether a rule of XLA is one of those of TensorRight."""
    return not name.startswith("conversion.")


def _open_row(rule: RewriteRule, result: Result) -> str:
    examples = {number for number, _, _ in result.relations}
    proved = {n for n, _, relation in result.relations if Relation(relation).is_proof}
    return f"| {_name(rule)} | {_purpose(rule)} | {len(proved)} of {len(examples)} | {TESTED[rule.name]} |"


def _name(rule: RewriteRule) -> str:
    return f"`{rule.name}`"


def _purpose(rule: RewriteRule) -> str:
    return " ".join((rule.rewrite.__doc__ or "").strip().splitlines()[0].split()).replace("|", "\\|")


def _span(ranks: Sequence[int]) -> str:
    """Return ranks as text: the first and the last one, if all between are there."""
    if len(ranks) > 1 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]} to {ranks[-1]}"
    return ", ".join(map(str, ranks)) or "none"


def rules_of(pass_class: type[Pass]) -> list[RewriteRule]:
    """Return the rules that a pass applies."""
    if issubclass(pass_class, RulePass):
        rules_by_name = {r.name: r for entry in pass_class.table.by_class.values() for r in entry.rules}
        return list(rules_by_name.values())
    families = {
        "dot_decomposer": (contraction.FOLDS, contraction.REPAIRS),
        "convolution-canonicalization": (convolution.RULES, convolution.DOTS),
    }
    return [rule for family in families.get(pass_class.name, ()) for rule in family]


def _passes(proved: set[str]) -> Iterable[str]:
    yield "| pass | its rules that are proved |"
    yield "|---|---|"
    others: list[str] = []
    # other tests define passes of their own
    hloom_passes = {n: c for n, c in passes().items() if c.__module__.startswith("hloom.")}
    for name, pass_class in sorted(hloom_passes.items()):
        own = [rule.name for rule in rules_of(pass_class)]
        if own:
            yield f"| `{name}` | {len(proved.intersection(own))} of {len(own)} |"
        else:
            others.append(name)
    yield ""
    yield from textwrap.wrap(
        f"The other {len(others)} passes do not work by rules, and nothing is proved of them for all sizes. "
        "`hloom opt --prove` proves each run of a pass for the sizes of the program, and the tests compare "
        "results. Those by kind:",
        110,
    )
    yield ""
    expected = {name: kind for kind, names in UNRULY.items() for name in names.split()}
    by_kind: dict[str, list[str]] = {kind: [] for kind in UNRULY}
    for name in others:
        by_kind[expected.get(name, list(UNRULY)[-1])].append(name)
    for kind, names in by_kind.items():
        yield f"- {kind}: " + ", ".join(f"`{name}`" for name in names)
