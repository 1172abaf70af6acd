"""Counts of operations, arithmetic and bytes."""

from __future__ import annotations

import json

import pytest

from hloom import HloModule
from hloom.analysis.cost import Cost
from hloom.tools.reports.amounts import quantity
from hloom.tools.reports.statistics import statistics_json, statistics_of, statistics_text
from tests import agreement
from tests.reducers import binary, comparison

SCALARS = binary("add", name="add") + comparison("LT", name="less")


def flops(body: str, computations: str = SCALARS) -> float:
    return statistics_of(
        HloModule.from_text(f"HloModule m\n{computations}\nENTRY e {{\n{body}\n}}\n")
    ).cost.flops


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("p = f32[3,4] parameter(0)\n ROOT r = f32[3,4] add(p, p)", 12),
        ("p = f32[3,4] parameter(0)\n ROOT r = f32[4,3] transpose(p), dimensions={1,0}", 0),
        (
            "a = f32[3,4] parameter(0)\n b = f32[4,5] parameter(1)\n"
            "ROOT r = f32[3,5] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            2 * 3 * 4 * 5,
        ),
        (
            "a = f32[1,3,8] parameter(0)\n b = f32[5,3,2] parameter(1)\n"
            "ROOT r = f32[1,5,7] convolution(a, b), window={size=2}, dim_labels=bf0_oi0->bf0",
            2 * 5 * 7 * 3 * 2,
        ),
        ("a = f32[3,4] parameter(0)\n z = f32[] constant(0)\n"
         "ROOT r = f32[3] reduce(a, z), dimensions={1}, to_apply=add", 9),
        ("a = f32[8] parameter(0)\n z = f32[] constant(0)\n"
         "ROOT r = f32[4] reduce-window(a, z), window={size=2 stride=2}, to_apply=add", 4),
        ("a = f32[8] parameter(0)\n ROOT r = f32[8] sort(a), dimensions={0}, to_apply=less", 32),
        ("a = f32[4,4] parameter(0)\n ROOT r = f32[4,4] cholesky(a), lower=true", 64 / 3),
    ],
)  # fmt: skip
def test_arithmetic(body: str, expected: float) -> None:
    agreement.near(flops(body), expected)


def test_calls_and_loops() -> None:
    text = """HloModule m
more {
  i = s32[] parameter(0)
  n = s32[] constant(10)
  ROOT p = pred[] compare(i, n), direction=LT
}
step {
  i = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT j = s32[] add(i, one)
}
ENTRY e {
  z = s32[] parameter(0)
  c = s32[] call(z), to_apply=step
  ROOT w = s32[] while(c), condition=more, body=step
}
"""
    found = statistics_of(HloModule.from_text(text))
    assert (found.cost.flops, found.breakdown.unknown_loops) == (3, 1)
    assert "1 loop of unknown trip count counted as one iteration" in statistics_text(
        found, lambda text, role: text
    )


COUNTING = """HloModule m
more {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(10)
  ROOT p = pred[] compare(i, n), direction=LT
}
step {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[8] get-tuple-element(s), index=1
  y = f32[8] multiply(x, x)
  ROOT t = (s32[], f32[8]) tuple(j, y)
}
ENTRY e {
  z = s32[] constant(0)
  x = f32[8] parameter(0)
  s = (s32[], f32[8]) tuple(z, x)
  ROOT w = (s32[], f32[8]) while(s), condition=more, body=step, backend_config={"known_trip_count":{"n":"7"}}
}
"""


def test_a_trip_count_that_follows_from_the_program_wins_over_a_stale_hint() -> None:
    found = statistics_of(HloModule.from_text(COUNTING))
    costs = {opcode: cost.flops for opcode, cost in found.breakdown.by_opcode.items() if cost.flops}
    assert costs == {"multiply": 80, "add": 10, "compare": 10}
    assert (found.cost.flops, found.breakdown.unknown_loops) == (100, 0)


def test_a_hint_counts_where_nothing_better_is_known() -> None:
    text = COUNTING.replace("n = s32[] constant(10)", "n = s32[] get-tuple-element(s), index=0")
    found = statistics_of(HloModule.from_text(text))
    assert (found.cost.flops, found.breakdown.unknown_loops) == (70, 0)


def test_the_sum_over_opcodes_is_the_cost_of_the_module() -> None:
    text = """HloModule m
inside { p = f32[64] parameter(0)
  t = f32[64] tanh(p)
  ROOT r = f32[64] add(t, p) }
other { p = f32[64] parameter(0)
  ROOT r = f32[64] copy(p) }
ENTRY e { p = f32[64] parameter(0)
  b = pred[] parameter(1)
  c = f32[64] conditional(b, p, p), true_computation=inside, false_computation=other
  ROOT f = f32[64] fusion(c), kind=kLoop, calls=inside }
"""
    found = statistics_of(HloModule.from_text(text))
    assert sum(found.breakdown.by_opcode.values(), Cost()) == found.cost
    assert found.cost == Cost(128, 128, bytes=256 * (2 + 3 + 2))
    rows = [line.split() for line in statistics_text(found, lambda text, role: text).split("\n")]
    assert ["tanh", "1", "▇" * 6, "128", "transcendental"] in [row[:5] for row in rows]
    assert {("parameter", "4"), ("add", "1"), ("copy", "1")} <= {tuple(row[:2]) for row in rows}


GEMM = '"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}'


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("a = f32[10,40] parameter(0)\n b = f32[40,30] parameter(1)\n "
         'ROOT r = (f32[10,30], s8[1024]) custom-call(a, b), custom_call_target="__cublas$lt$matmul", '
         f'backend_config={{"gemm_backend_config":{{{GEMM}}}}}', 2 * 10 * 40 * 30),
        ("a = f32[10,40] parameter(0)\n b = f32[40,30] parameter(1)\n "
         'ROOT r = f32[10,30] custom-call(a, b), custom_call_target="__cublas$gemm", '
         f"backend_config={{{GEMM}}}", 2 * 10 * 40 * 30),
        ("a = f32[40,10] parameter(0)\n b = f32[40,30] parameter(1)\n "
         'ROOT r = f32[10,30] custom-call(a, b), custom_call_target="__onednn$matmul", '
         'backend_config={"onednn_matmul_config":{"transpose_a":true}}', 2 * 10 * 40 * 30),
        ("a = f32[2,3,9] parameter(0)\n b = f32[5,3,4] parameter(1)\n "
         'ROOT r = (f32[2,5,6], u8[0]) custom-call(a, b), custom_call_target="__cudnn$convForward", '
         "window={size=4}, dim_labels=bf0_oi0->bf0", 2 * (2 * 5 * 6) * 4 * 3),
        ("a = f32[2,5,6] parameter(0)\n b = f32[5,3,4] parameter(1)\n "
         'ROOT r = (f32[2,3,9], u8[0]) custom-call(a, b), custom_call_target="__cudnn$convBackwardInput", '
         "window={size=4}, dim_labels=bf0_oi0->bf0", 2 * (2 * 5 * 6) * 4 * 3),
        ("a = f32[2,3,9] parameter(0)\n b = f32[2,5,6] parameter(1)\n "
         'ROOT r = (f32[5,3,4], u8[0]) custom-call(a, b), custom_call_target="__cudnn$convBackwardFilter", '
         "window={size=4}, dim_labels=bf0_oi0->bf0", 2 * (2 * 5 * 6) * 4 * 3),
    ],
)  # fmt: skip
def test_library_calls_count_as_what_they_compute(body: str, wanted: float) -> None:
    found = statistics_of(HloModule.from_text(f"HloModule m\nENTRY e {{\n{body}\n}}\n"))
    assert (found.cost.flops, found.breakdown.unknown_calls) == (wanted, 0)


@pytest.mark.parametrize(
    "call",
    [
        '"__cublas$gemm", backend_config="{"',
        '"__cublas$gemm", backend_config={"dot_dimension_numbers":3}',
        '"__cublas$gemm", backend_config={"dot_dimension_numbers":{}}',
        f'"__cublas$gemm", backend_config={{{GEMM.replace("1", "7", 1)}}}',
        '"__onednn$matmul", backend_config={"onednn_matmul_config":{"transpose_a":"yes"}}',
        '"__cudnn$convForward"',
        '"__cudnn$convForward", dim_labels=b012f_o012i->b012f',
    ],
)
def test_calls_with_malformed_configurations_are_not_counted(call: str) -> None:
    body = f"a = f32[4,4] parameter(0)\n ROOT r = f32[4,4] custom-call(a, a), custom_call_target={call}"
    found = statistics_of(HloModule.from_text(f"HloModule m\nENTRY e {{\n{body}\n}}\n"))
    assert (found.cost.flops, found.breakdown.unknown_calls) == (0, 1)


def test_unknown_custom_calls_are_said_to_be_left_out() -> None:
    body = 'a = f32[4] parameter(0)\n ROOT r = f32[4] custom-call(a), custom_call_target="mystery"'
    found = statistics_of(HloModule.from_text(f"HloModule m\nENTRY e {{\n{body}\n}}\n"))
    assert found.cost.flops == 0
    assert "1 custom call not counted" in statistics_text(found, lambda text, role: text)


def test_bytes() -> None:
    found = statistics_of(
        HloModule.from_text(
            "HloModule m\nENTRY e {\n p = (f32[10], bf16[3]) parameter(0)\n c = f64[2] constant({1, 2})\n"
            " x = f32[10] get-tuple-element(p), index=0\n ROOT r = f32[10] exponential(x)\n}\n"
        )
    )
    assert (found.parameters[0][2], found.constant_bytes, found.result_bytes) == (46, 16, 40)
    assert found.cost.transcendentals == 10


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (999, "999 B"), (1200, "1.2 kB"), (3.5e9, "3.5 GB"), (2e15, "2 PB")]
)
def test_quantities(number: float, text: str) -> None:
    assert quantity(number, "B") == text


# -- LAPACK


@pytest.mark.parametrize(
    ("target", "operands", "wanted"),
    [
        ("lapack_sgetrf_ffi", "f32[3,8,8]", 3 * 2 / 3 * 8**3),
        ("lapack_sgetrf_ffi", "f32[9,4]", 9 * 4**2 - 4**3 / 3),
        ("lapack_sgetrf_ffi", "f32[4,9]", 9 * 4**2 - 4**3 / 3),
        ("lapack_dpotrf_ffi", "f64[6,6]", 6**3 / 3),
        ("lapack_cpotrf_ffi", "c64[6,6]", 4 * 6**3 / 3),
        ("lapack_sgeqrf_ffi", "f32[9,4]", 2 * 9 * 4**2 - 2 * 4**3 / 3),
        ("lapack_sgeqrf_ffi", "f32[4,9]", 2 * 9 * 4**2 - 2 * 4**3 / 3),
        ("lapack_dorgqr_ffi", "f64[5,5] f64[5]", 4 / 3 * 5**3),
        ("lapack_zungqr_ffi", "c128[9,4] c128[3]", 4 * (4 * 9 * 4 * 3 - 2 * (9 + 4) * 3**2 + 4 * 3**3 / 3)),
        ("lapack_dorgqr_ffi", "f64[9,4]", 4 * 9 * 4 * 4 - 2 * (9 + 4) * 4**2 + 4 * 4**3 / 3),
        ("lapack_strsm_ffi", "f32[4,4] f32[4,7]", 4 * 4 * 7),
        ("lapack_sgesdd_ffi", "f32[5,5]", 21 * 5**3),
        ("lapack_sgesdd_ffi", "f32[4,9]", 4 * 9**2 * 4 + 8 * 9 * 4**2 + 9 * 4**3),
        ("lapack_cgesvd_ffi", "c64[9,4]", 4 * (4 * 9**2 * 4 + 8 * 9 * 4**2 + 9 * 4**3)),
        ("lapack_sgees_ffi", "f32[2,5,5]", 2 * 25 * 5**3),
        ("lapack_zheevd_ffi", "c128[5,5]", 4 * 9 * 5**3),
        ("lapack_dgeev_ffi", "f64[5,5]", 25 * 5**3),
        ("lapack_dgehrd_ffi", "f64[3,3]", 10 / 3 * 3**3),
        ("lapack_ssytrd_ffi", "f32[3,3]", 4 / 3 * 3**3),
    ],
)
def test_lapack_counts_as_its_working_note_says(target: str, operands: str, wanted: float) -> None:
    shapes = operands.split()
    lines = [f"p{n} = {shape} parameter({n})" for n, shape in enumerate(shapes)]
    arguments = ", ".join(f"p{n}" for n in range(len(shapes)))
    lines.append(f'ROOT r = {shapes[-1]} custom-call({arguments}), custom_call_target="{target}"')
    found = statistics_of(HloModule.from_text("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"))
    agreement.near(found.cost.flops, wanted)
    assert found.breakdown.unknown_calls == 0


# -- by op_name and source line


NAMED = """HloModule m
inside { p = f32[64] parameter(0)
  t = f32[64] multiply(p, p), metadata={op_name="jit(f)/a/(x/y)/mul" source_file="m.py" source_line=3}
  ROOT r = f32[64] add(t, p), metadata={op_name="jit(f)/b/add" source_file="m.py" source_line=4} }
ENTRY e { p = f32[64] parameter(0)
  ROOT f = f32[64] fusion(p), kind=kLoop, calls=inside, \
metadata={op_name="jit(f)/b/add" source_file="m.py" source_line=4} }
"""


def test_costs_by_scope_and_source_line() -> None:
    found = statistics_of(HloModule.from_text(NAMED))
    assert found.by_scope() == {
        "": Cost(),
        "jit(f)/a/(x/y)": Cost(flops=64),
        "jit(f)/b": Cost(flops=64, bytes=512),
    }
    assert found.by_scope(1)["jit(f)"] == found.cost
    assert found.breakdown.by_source["m.py:3"] == Cost(flops=64)
    assert sum(found.breakdown.by_source.values(), Cost()) == found.cost
    text = statistics_text(found, lambda text, role: text)
    assert "  jit(f)/b        64 flop  512 B" in text
    assert "  m.py:3  64 flop" in text


def test_where_trip_counts_come_from() -> None:
    (proved,) = statistics_of(HloModule.from_text(COUNTING)).breakdown.loops
    assert (proved.iterations, proved.proved, proved.hint) == (10, True, 7)
    unknown = COUNTING.replace("n = s32[] constant(10)", "n = s32[] get-tuple-element(s), index=0")
    for text, words in (
        (COUNTING, "w  10 iterations; known_trip_count says 7"),
        (unknown, "w  7 iterations, by known_trip_count alone"),
        (unknown.partition(", backend_config")[0] + "\n}\n", "w  unknown trip count"),
    ):
        assert words in statistics_text(statistics_of(HloModule.from_text(text)), lambda text, role: text)


# -- padding


def test_padding_of_tiled_layouts_is_listed_worst_first() -> None:
    text = """HloModule m
ENTRY e { p = f32[3,5]{1,0:T(8,128)} parameter(0)
  q = bf16[16,128]{1,0:T(8,128)(2,1)} parameter(1)
  n = f32[3,5]{1,0:T(8,128)} negate(p)
  z = f32[] constant(0)
  s = f32[130]{0:T(256)} broadcast(z), dimensions={}
  ROOT t = (f32[3,5]{1,0:T(8,128)}, f32[130]{0:T(256)}) tuple(n, s) }
"""
    found = statistics_of(HloModule.from_text(text))
    wasted = [(array.name, array.padding, array.size) for array in found.padded]
    assert wasted == [("p", 4096 - 60, 4096), ("n", 4096 - 60, 4096), ("s", 1024 - 520, 1024)]
    words = statistics_text(found, lambda text, role: text)
    assert "8.58 kB of 9.22 kB in 3 arrays" in words
    assert "p  4.04 kB, 98.5 % of f32[3,5]{1,0:T(8,128)}" in words


def test_json_has_every_count() -> None:
    found = statistics_of(HloModule.from_text(NAMED))
    values = json.loads(json.dumps(statistics_json(found)))
    assert values["cost"] == {"flops": 128.0, "transcendentals": 0.0, "bytes": 512.0}
    assert values["op_names"]["jit(f)/a/(x/y)/mul"]["flops"] == 64
    assert values["source_lines"]["m.py:4"]["bytes"] == 512
    assert values["opcodes"]["fusion"]["count"] == 1
    assert (values["loops"], values["padded"], values["custom_calls_not_counted"]) == ([], [], 0)
