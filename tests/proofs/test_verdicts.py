"""Verdicts on pairs of small programs: what must be proved, and what must be refuted."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from hloom import HloError, HloModule
from hloom.proofs import Relation, prove
from tests.proofs.mutants import is_told_apart, mutants

IDENTICAL, REALS, REFUTED = Relation.IDENTICAL, Relation.EQUAL_OVER_REALS, Relation.REFUTED
REDUCERS = """
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
min { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] minimum(a, b) }
later { a = f32[] parameter(0) b = f32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
ROOT r = pred[] compare(a, b), direction=GT, type=TOTALORDER }
before { a = s32[] parameter(0) b = s32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
ROOT r = pred[] compare(a, b), direction=LT }
"""

PAIRS: dict[str, tuple[Relation, str, str]] = {
    "exchanged operands": (
        IDENTICAL,
        "a = f32[4] parameter(0) b = f32[4] parameter(1) ROOT r = f32[4] add(a, b)",
        "a = f32[4] parameter(0) b = f32[4] parameter(1) ROOT r = f32[4] add(b, a)",
    ),
    "exchanged operands of a difference": (
        REFUTED,
        "a = f32[4] parameter(0) b = f32[4] parameter(1) ROOT r = f32[4] subtract(a, b)",
        "a = f32[4] parameter(0) b = f32[4] parameter(1) ROOT r = f32[4] subtract(b, a)",
    ),
    "distributed product of integers": (
        IDENTICAL,
        "a = s32[4] parameter(0) b = s32[4] parameter(1) c = s32[4] add(a, b) ROOT r = s32[4] multiply(c, a)",
        """a = s32[4] parameter(0) b = s32[4] parameter(1) c = s32[4] multiply(a, a)
        d = s32[4] multiply(a, b) ROOT r = s32[4] add(c, d)""",
    ),
    "distributed product of floats": (
        REALS,
        "a = f32[4] parameter(0) b = f32[4] parameter(1) c = f32[4] add(a, b) ROOT r = f32[4] multiply(c, a)",
        """a = f32[4] parameter(0) b = f32[4] parameter(1) c = f32[4] multiply(a, a)
        d = f32[4] multiply(a, b) ROOT r = f32[4] add(c, d)""",
    ),
    "a sum in two steps": (
        REALS,
        """a = f32[4,6] parameter(0) z = f32[] constant(0)
        ROOT r = f32[] reduce(a, z), dimensions={0,1}, to_apply=add""",
        """a = f32[4,6] parameter(0) z = f32[] constant(0)
        s = f32[4] reduce(a, z), dimensions={1}, to_apply=add
        ROOT r = f32[] reduce(s, z), dimensions={0}, to_apply=add""",
    ),
    "a maximum in two steps": (
        IDENTICAL,
        """a = f32[4,6] parameter(0) z = f32[] constant(-inf)
        ROOT r = f32[] reduce(a, z), dimensions={0,1}, to_apply=max""",
        """a = f32[4,6] parameter(0) z = f32[] constant(-inf)
        s = f32[4] reduce(a, z), dimensions={1}, to_apply=max
        ROOT r = f32[] reduce(s, z), dimensions={0}, to_apply=max""",
    ),
    "a maximum of a sum": (
        REFUTED,
        """a = f32[4,6] parameter(0) z = f32[] constant(0)
        s = f32[4] reduce(a, z), dimensions={1}, to_apply=add
        ROOT r = f32[] reduce(s, z), dimensions={0}, to_apply=add""",
        """a = f32[4,6] parameter(0) z = f32[] constant(0)
        s = f32[4] reduce(a, z), dimensions={1}, to_apply=add
        ROOT r = f32[] reduce(s, z), dimensions={0}, to_apply=max""",
    ),
    "a product of narrow floats, rounded twice": (
        Relation.OPEN,
        """a = f16[64] parameter(0) c = f16[] constant(3) b = f16[64] broadcast(c), dimensions={}
        p = f16[64] multiply(a, b) ROOT r = f16[64] add(a, p)""",
        """a = f16[64] parameter(0) c = f16[] constant(4) b = f16[64] broadcast(c), dimensions={}
        ROOT r = f16[64] multiply(a, b)""",
    ),
    "a function of narrow floats": (
        REALS,
        "a = bf16[4] parameter(0) b = bf16[4] tanh(a) ROOT r = bf16[4] exponential(b)",
        """a = bf16[4] parameter(0) c = f32[4] convert(a) d = f32[4] tanh(c) e = bf16[4] convert(d)
        f = f32[4] convert(e) g = f32[4] exponential(f) ROOT r = bf16[4] convert(g)""",
    ),
    "a rounding left out": (
        REFUTED,
        "a = f32[4] parameter(0) c = bf16[4] convert(a) ROOT r = f32[4] convert(c)",
        "ROOT a = f32[4] parameter(0)",
    ),
    "a conversion there and back": (
        IDENTICAL,
        "a = bf16[4] parameter(0) c = f32[4] convert(a) ROOT r = bf16[4] convert(c)",
        "ROOT a = bf16[4] parameter(0)",
    ),
    "an integer conversion there and back": (
        REFUTED,
        "a = s32[4] parameter(0) c = s8[4] convert(a) d = s32[4] convert(c) ROOT r = s32[4] multiply(d, d)",
        "a = s32[4] parameter(0) k = s32[] constant(300) b = s32[4] broadcast(k), dimensions={} "
        "c = s32[4] multiply(a, b) d = s8[4] convert(c) ROOT r = s32[4] convert(d)",
    ),
    "a slice of a pad": (
        IDENTICAL,
        """a = f32[4] parameter(0) z = f32[] constant(0) p = f32[8] pad(a, z), padding=2_2
        ROOT r = f32[4] slice(p), slice={[2:6]}""",
        "ROOT a = f32[4] parameter(0)",
    ),
    "a slice of a pad, one off": (
        REFUTED,
        """a = f32[4] parameter(0) z = f32[] constant(0) p = f32[8] pad(a, z), padding=2_2
        ROOT r = f32[4] slice(p), slice={[1:5]}""",
        "ROOT a = f32[4] parameter(0)",
    ),
    "a dot of transposed operands": (
        IDENTICAL,
        """a = f32[4,3] parameter(0) b = f32[3,5] parameter(1)
        d = f32[4,5] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        ROOT r = f32[5,4] transpose(d), dimensions={1,0}""",
        """a = f32[4,3] parameter(0) b = f32[3,5] parameter(1)
        ROOT d = f32[5,4] dot(b, a), lhs_contracting_dims={0}, rhs_contracting_dims={1}""",
    ),
    "a running maximum by blocks": (
        IDENTICAL,
        """a = f32[6] parameter(0) z = f32[] constant(-inf)
        ROOT r = f32[6] reduce-window(a, z), window={size=6 pad=5_0}, to_apply=max""",
        """a = f32[6] parameter(0) z = f32[] constant(-inf) b = f32[2,3] reshape(a)
        c = f32[2,3] reduce-window(b, z), window={size=1x3 pad=0_0x2_0}, to_apply=max
        l = f32[1,1] slice(c), slice={[0:1], [2:3]} m = f32[] reshape(l)
        n = f32[3] broadcast(m), dimensions={}
        s = f32[1,3] slice(c), slice={[0:1], [0:3]} u = f32[3] reshape(s)
        t = f32[1,3] slice(c), slice={[1:2], [0:3]} v = f32[3] reshape(t)
        o = f32[3] maximum(n, v) ROOT r = f32[6] concatenate(u, o), dimensions={0}""",
    ),
    "a running maximum by blocks, one block too short": (
        REFUTED,
        """a = f32[6] parameter(0) z = f32[] constant(-inf)
        ROOT r = f32[6] reduce-window(a, z), window={size=6 pad=5_0}, to_apply=max""",
        """a = f32[6] parameter(0) z = f32[] constant(-inf)
        ROOT r = f32[6] reduce-window(a, z), window={size=5 pad=4_0}, to_apply=max""",
    ),
    "a maximum of maxima and minima": (
        IDENTICAL,
        """a = f32[4] parameter(0) z = f32[] constant(-inf) y = f32[] constant(inf)
        l = f32[] reduce(a, y), dimensions={0}, to_apply=min
        m = f32[] reduce(a, z), dimensions={0}, to_apply=max
        b = f32[1] reshape(l) c = f32[1] reshape(m) d = f32[2] concatenate(b, c), dimensions={0}
        ROOT r = f32[] reduce(d, z), dimensions={0}, to_apply=max""",
        """a = f32[4] parameter(0) z = f32[] constant(-inf) y = f32[] constant(inf)
        l = f32[] reduce(a, y), dimensions={0}, to_apply=min
        m = f32[] reduce(a, z), dimensions={0}, to_apply=max
        ROOT r = f32[] maximum(l, m)""",
    ),
    "comparisons of predicates": (
        IDENTICAL,
        """a = pred[9] parameter(0) b = pred[9] parameter(1) c = pred[9] compare(a, b), direction=EQ
        d = pred[9] compare(a, b), direction=NE e = pred[9] compare(a, b), direction=LT
        f = pred[9] compare(a, b), direction=LE g = pred[9] compare(a, b), direction=GT
        h = pred[9] compare(a, b), direction=GE
        ROOT t = (pred[9], pred[9], pred[9], pred[9], pred[9], pred[9]) tuple(c, d, e, f, g, h)""",
        """a = pred[9] parameter(0) b = pred[9] parameter(1) d = pred[9] xor(a, b) c = pred[9] not(d)
        n = pred[9] not(a) m = pred[9] not(b) e = pred[9] and(n, b) f = pred[9] or(n, b)
        g = pred[9] and(a, m) h = pred[9] or(a, m)
        ROOT t = (pred[9], pred[9], pred[9], pred[9], pred[9], pred[9]) tuple(c, d, e, f, g, h)""",
    ),
    "a total order by bits": (
        IDENTICAL,
        """a = bf16[4] parameter(0) b = bf16[4] parameter(1)
        ROOT r = pred[4] compare(a, b), direction=LT, type=TOTALORDER""",
        """a = bf16[4] parameter(0) b = bf16[4] parameter(1) c = f32[4] convert(a) d = f32[4] convert(b) """
        + "".join(
            f"""{n} = s32[4] bitcast-convert({x}) {n}z = s32[] constant(0) {n}m = s32[] constant(2147483647)
            {n}y = s32[4] broadcast({n}z), dimensions={{}} {n}l = s32[4] broadcast({n}m), dimensions={{}}
            {n}c = pred[4] compare({n}, {n}y), direction=LT {n}x = s32[4] xor({n}l, {n})
            {n}s = s32[4] select({n}c, {n}x, {n}) """
            for n, x in (("p", "c"), ("q", "d"))
        )
        + "ROOT r = pred[4] compare(ps, qs), direction=LT",
    ),
    "a partial order for a total one": (
        REFUTED,
        """a = f32[64] parameter(0) b = f32[64] parameter(1)
        ROOT r = pred[64] compare(a, b), direction=LT, type=TOTALORDER""",
        "a = f32[64] parameter(0) b = f32[64] parameter(1) ROOT r = pred[64] compare(a, b), direction=LT",
    ),
    "bits by a bitcast": (
        IDENTICAL,
        "a = f32[2,3] parameter(0) ROOT b = s32[2,3] bitcast-convert(a)",
        "a = f32[2,3] parameter(0) b = s32[6] bitcast(a) ROOT r = s32[2,3] reshape(b)",
    ),
    "the first elements of a sort": (
        IDENTICAL,
        "a = f32[2,6] parameter(0) ROOT t = (f32[2,2], s32[2,2]) topk(a), k=2, largest=true",
        """a = f32[2,6] parameter(0) i = s32[2,6] iota(), iota_dimension=1
        s = (f32[2,6], s32[2,6]) sort(a, i), dimensions={1}, is_stable=true, to_apply=later
        v = f32[2,6] get-tuple-element(s), index=0 n = s32[2,6] get-tuple-element(s), index=1
        b = f32[2,2] slice(v), slice={[0:2], [0:2]} c = s32[2,2] slice(n), slice={[0:2], [0:2]}
        ROOT t = (f32[2,2], s32[2,2]) tuple(b, c)""",
    ),
    "the smallest elements for the largest": (
        REFUTED,
        "a = f32[2,6] parameter(0) ROOT t = (f32[2,2], s32[2,2]) topk(a), k=2, largest=true",
        "a = f32[2,6] parameter(0) ROOT t = (f32[2,2], s32[2,2]) topk(a), k=2, largest=false",
    ),
    "an annotation of a sharding": (
        IDENTICAL,
        """a = f32[4] parameter(0)
        s = f32[4] custom-call(a), custom_call_target="Sharding", sharding={replicated}
        ROOT r = f32[4] negate(s)""",
        "a = f32[4] parameter(0) ROOT r = f32[4] negate(a)",
    ),
    "a sort that does not keep the order of equals": (
        Relation.OPEN,
        """a = s32[6] parameter(0) i = s32[6] iota(), iota_dimension=0
        ROOT s = (s32[6], s32[6]) sort(a, i), dimensions={0}, is_stable=true, to_apply=before""",
        """a = s32[6] parameter(0) i = s32[6] iota(), iota_dimension=0
        ROOT s = (s32[6], s32[6]) sort(a, i), dimensions={0}, to_apply=before""",
    ),
    "powers of two of unsigned integers": (
        IDENTICAL,
        """a = u32[4] parameter(0) c = u32[] constant(8) b = u32[4] broadcast(c), dimensions={}
        q = u32[4] divide(a, b) r = u32[4] remainder(a, b) ROOT t = (u32[4], u32[4]) tuple(q, r)""",
        """a = u32[4] parameter(0) c = u32[] constant(3) b = u32[4] broadcast(c), dimensions={}
        d = u32[] constant(7) e = u32[4] broadcast(d), dimensions={} q = u32[4] shift-right-logical(a, b)
        r = u32[4] and(e, a) ROOT t = (u32[4], u32[4]) tuple(q, r)""",
    ),
    "powers of two of signed integers": (
        REFUTED,
        """a = s32[64] parameter(0) c = s32[] constant(8) b = s32[64] broadcast(c), dimensions={}
        ROOT q = s32[64] divide(a, b)""",
        """a = s32[64] parameter(0) c = s32[] constant(3) b = s32[64] broadcast(c), dimensions={}
        ROOT q = s32[64] shift-right-arithmetic(a, b)""",
    ),
    "a product with a rounded reciprocal": (
        REALS,
        """a = f32[5000] parameter(0) c = f32[] constant(1.73205081) b = f32[5000] broadcast(c), dimensions={}
        ROOT r = f32[5000] divide(a, b)""",
        """a = f32[5000] parameter(0) c = f32[] constant(0.57735026) b = f32[5000] broadcast(c), dimensions={}
        ROOT r = f32[5000] multiply(a, b)""",
    ),
    "powers of two of signed integers as shifts of the magnitude": (
        IDENTICAL,
        """a = s32[4] parameter(0) c = s32[] constant(8) b = s32[4] broadcast(c), dimensions={}
        q = s32[4] divide(a, b) r = s32[4] remainder(a, b) ROOT t = (s32[4], s32[4]) tuple(q, r)""",
        """a = s32[4] parameter(0) c = s32[] constant(3) b = s32[4] broadcast(c), dimensions={}
        d = s32[] constant(7) e = s32[4] broadcast(d), dimensions={} z = s32[] constant(0)
        y = s32[4] broadcast(z), dimensions={} l = pred[4] compare(a, y), direction=LT n = s32[4] negate(a)
        m = s32[4] select(l, n, a) f = s32[4] shift-right-logical(m, b) g = s32[4] negate(f)
        q = s32[4] select(l, g, f) h = s32[4] and(m, e) i = s32[4] negate(h) r = s32[4] select(l, i, h)
        ROOT t = (s32[4], s32[4]) tuple(q, r)""",
    ),
    "a scatter to known positions": (
        REALS,
        """a = f32[5] parameter(0) u = f32[2] parameter(1) i = s32[2,1] constant({{3},{1}})
        ROOT s = f32[5] scatter(a, i, u), update_window_dims={}, inserted_window_dims={0},
        scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add""",
        """a = f32[5] parameter(0) u = f32[2] parameter(1) r = f32[2] reverse(u), dimensions={0}
        z = f32[] constant(0) p = f32[5] pad(r, z), padding=1_1_1 ROOT s = f32[5] add(a, p)""",
    ),
    "a scatter to known positions, one twice": (
        REFUTED,
        """a = f32[5] parameter(0) u = f32[2] parameter(1) i = s32[2,1] constant({{3},{3}})
        ROOT s = f32[5] scatter(a, i, u), update_window_dims={}, inserted_window_dims={0},
        scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add""",
        """a = f32[5] parameter(0) u = f32[2] parameter(1) i = s32[1,1] constant({{3}})
        v = f32[1] slice(u), slice={[1:2]}
        ROOT s = f32[5] scatter(a, i, v), update_window_dims={}, inserted_window_dims={0},
        scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add""",
    ),
    "results that different laws prove": (
        REALS,
        """a = f32[4] parameter(0) n = f32[4] negate(a) m = f32[4] multiply(a, n) h = bf16[4] convert(m)
        d = f32[4] add(a, a) s = f32[4] add(d, a) ROOT t = (bf16[4], f32[4]) tuple(h, s)""",
        """a = f32[4] parameter(0) n = f32[4] negate(a) m = f32[4] multiply(n, a) h = bf16[4] convert(m)
        c = f32[] constant(3) b = f32[4] broadcast(c), dimensions={} s = f32[4] multiply(a, b)
        ROOT t = (bf16[4], f32[4]) tuple(h, s)""",
    ),
    "one wrong result of two": (
        REFUTED,
        """a = f32[4] parameter(0) b = f32[4] sine(a) c = f32[4] cosine(a)
        ROOT t = (f32[4], f32[4]) tuple(b, c)""",
        "a = f32[4] parameter(0) b = f32[4] sine(a) ROOT t = (f32[4], f32[4]) tuple(b, b)",
    ),
    "a convolution of size one": (
        REALS,
        """a = f32[2,4,3] parameter(0) k = f32[1,3,5] parameter(1)
        ROOT c = f32[2,4,5] convolution(a, k), window={size=1}, dim_labels=b0f_0io->b0f""",
        """a = f32[2,4,3] parameter(0) k = f32[1,3,5] parameter(1) q = f32[3,5] reshape(k)
        ROOT c = f32[2,4,5] dot(a, q), lhs_contracting_dims={2}, rhs_contracting_dims={0}""",
    ),
    "a gather of one row": (
        IDENTICAL,
        """a = f32[8,3] parameter(0) i = s32[1] parameter(1)
        ROOT g = f32[1,3] gather(a, i), offset_dims={0,1}, collapsed_slice_dims={},
        start_index_map={0}, index_vector_dim=0, slice_sizes={1,3}""",
        """a = f32[8,3] parameter(0) i = s32[1] parameter(1) s = s32[] reshape(i) z = s32[] constant(0)
        ROOT g = f32[1,3] dynamic-slice(a, s, z), dynamic_slice_sizes={1,3}""",
    ),
    "a start that is limited in another place": (
        REFUTED,
        """a = f32[8] parameter(0) i = s32[] parameter(1)
        d = f32[4] dynamic-slice(a, i), dynamic_slice_sizes={4}
        ROOT s = f32[2] slice(d), slice={[1:3]}""",
        """a = f32[8] parameter(0) i = s32[] parameter(1) o = s32[] constant(1) j = s32[] add(i, o)
        ROOT d = f32[2] dynamic-slice(a, j), dynamic_slice_sizes={2}""",
    ),
    "a comparison turned round": (
        IDENTICAL,
        "a = f32[4] parameter(0) b = f32[4] parameter(1) ROOT r = pred[4] compare(a, b), direction=LT",
        "a = f32[4] parameter(0) b = f32[4] parameter(1) ROOT r = pred[4] compare(b, a), direction=GT",
    ),
    "a comparison and its opposite": (
        IDENTICAL,
        "a = s32[4] parameter(0) b = s32[4] parameter(1) ROOT r = pred[4] compare(a, b), direction=LE",
        """a = s32[4] parameter(0) b = s32[4] parameter(1) c = pred[4] compare(b, a), direction=LT
        ROOT r = pred[4] not(c)""",
    ),
    "a complex number that is NaN": (
        REFUTED,
        "a = c64[64] parameter(0) ROOT r = pred[64] compare(a, a), direction=EQ",
        "a = c64[64] parameter(0) t = pred[] constant(true) ROOT r = pred[64] broadcast(t), dimensions={}",
    ),
    "an infinite power": (
        IDENTICAL,
        """a = f32[4] parameter(0) c = f32[] constant(inf) b = f32[4] broadcast(c), dimensions={}
        ROOT r = f32[4] power(a, b)""",
        """a = f32[4] parameter(0) b = f32[4] constant({inf, inf, inf, inf})
        ROOT r = f32[4] power(a, b)""",
    ),
    "the largest integer": (
        REFUTED,
        "ROOT c = s64[] constant(9223372036854775807)",
        "ROOT c = s64[] constant(3)",
    ),
    "a large power of two": (
        REFUTED,
        "a = f32[4] parameter(0) c = f32[] constant(2305843009213693952) "
        "b = f32[4] broadcast(c), dimensions={} ROOT r = f32[4] multiply(a, b)",
        "ROOT a = f32[4] parameter(0)",
    ),
    "two shifts": (
        REFUTED,
        """a = u64[4] parameter(0) c = u64[4] constant({40, 40, 40, 40}) d = u64[4] constant({21, 21, 21, 21})
        e = u64[4] shift-left(a, c) ROOT r = u64[4] shift-left(e, d)""",
        "ROOT a = u64[4] parameter(0)",
    ),
    "bits as another type": (
        REFUTED,
        "a = f32[4] parameter(0) b = f32[4] add(a, a) ROOT r = s32[4] bitcast(b)",
        "a = f32[4] parameter(0) b = s32[4] bitcast(a) ROOT r = s32[4] add(b, b)",
    ),
    "zero in a type without it": (
        REFUTED,
        "a = pred[64] parameter(0) b = f8e8m0fnu[64] convert(a) ROOT r = f32[64] convert(b)",
        "a = pred[64] parameter(0) ROOT r = f32[64] convert(a)",
    ),
    "a quotient by a difference that is zero": (
        REFUTED,
        "a = f32[4] parameter(0) d = f32[4] subtract(a, a) ROOT r = f32[4] divide(a, d)",
        "a = f32[4] parameter(0) ROOT r = f32[4] subtract(a, a)",
    ),
    "a softmax by parts": (
        REALS,
        """a = f32[4] parameter(0) b = f32[4] parameter(1) e = f32[4] exponential(a) q = f32[4] divide(e, b)
        ROOT r = f32[4] add(q, q)""",
        """a = f32[4] parameter(0) b = f32[4] parameter(1) e = f32[4] exponential(a) f = f32[4] add(e, e)
        ROOT r = f32[4] divide(f, b)""",
    ),
    "a predicate converted by way of integers": (
        IDENTICAL,
        "p = pred[4] parameter(0) a = s32[4] convert(p) b = s8[4] convert(a) ROOT r = f32[4] convert(b)",
        "p = pred[4] parameter(0) ROOT r = f32[4] convert(p)",
    ),
    "an integer converted by way of another": (
        REFUTED,
        "p = s32[64] parameter(0) b = s8[64] convert(p) ROOT r = f32[64] convert(b)",
        "p = s32[64] parameter(0) ROOT r = f32[64] convert(p)",
    ),
    "powers of halves": (
        REALS,
        """a = f32[4] parameter(0) c = f32[] constant(1.5) b = f32[4] broadcast(c), dimensions={}
        d = f32[] constant(-1.5) e = f32[4] broadcast(d), dimensions={} p = f32[4] power(a, b)
        q = f32[4] power(a, e) ROOT t = (f32[4], f32[4]) tuple(p, q)""",
        """a = f32[4] parameter(0) s = f32[4] sqrt(a) n = f32[4] multiply(a, s) c = f32[] constant(1)
        b = f32[4] broadcast(c), dimensions={} m = f32[4] divide(b, n) l = f32[] constant(-inf)
        k = f32[4] broadcast(l), dimensions={} e = pred[4] compare(a, k), direction=EQ
        h = f32[4] constant({inf, inf, inf, inf}) z = f32[4] constant({0, 0, 0, 0})
        p = f32[4] select(e, h, n) q = f32[4] select(e, z, m)
        ROOT t = (f32[4], f32[4]) tuple(p, q)""",
    ),
    "a power of a half without its case of -inf": (
        REFUTED,
        """a = f32[64] parameter(0) c = f32[] constant(1.5) b = f32[64] broadcast(c), dimensions={}
        ROOT p = f32[64] power(a, b)""",
        "a = f32[64] parameter(0) s = f32[64] sqrt(a) ROOT p = f32[64] multiply(a, s)",
    ),
    "a number added to itself, and a half of it": (
        IDENTICAL,
        """a = f32[4] parameter(0) s = f32[4] add(a, a) c = f32[] constant(2)
        b = f32[4] broadcast(c), dimensions={} q = f32[4] divide(a, b)
        ROOT t = (f32[4], f32[4]) tuple(s, q)""",
        """a = f32[4] parameter(0) c = f32[] constant(2) b = f32[4] broadcast(c), dimensions={}
        s = f32[4] multiply(b, a) d = f32[] constant(0.5) e = f32[4] broadcast(d), dimensions={}
        q = f32[4] multiply(a, e) ROOT t = (f32[4], f32[4]) tuple(s, q)""",
    ),
    "a product with a reciprocal": (
        REALS,
        """a = f32[4] parameter(0) c = f32[] constant(3) b = f32[4] broadcast(c), dimensions={}
        ROOT r = f32[4] divide(a, b)""",
        """a = f32[4] parameter(0) c = f32[] constant(0.333333343) b = f32[4] broadcast(c), dimensions={}
        ROOT r = f32[4] multiply(a, b)""",
    ),
}

LOOP = """HloModule m
body {{
  s = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  m = s32[] add(n, one)
  y = f32[4] multiply(x, x)
  ROOT t = (s32[], f32[4]) tuple(m, y)
}}
condition {{
  s = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  k = s32[] constant({trips})
  ROOT c = pred[] compare(n, k), direction=LT
}}
ENTRY e {{
  x = f32[4] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[4]) tuple(z, x)
  w = (s32[], f32[4]) while(t), condition=condition, body=body
  ROOT r = f32[4] get-tuple-element(w), index=1
}}
"""


SEARCH = """HloModule m
body {{
  s = ({state}) parameter(0)
  x = s32[] get-tuple-element(s), index={x}
  k = s32[] get-tuple-element(s), index={k}
  {rest}
  one = s32[] constant(1)
  {scale} = s32[] or(k, one)
  y = s32[] add(x, h)
  ROOT t = ({state}) tuple({next})
}}
condition {{
  s = ({state}) parameter(0)
  x = s32[] get-tuple-element(s), index={x}
  limit = s32[] constant({limit})
  ROOT c = pred[] compare(x, limit), direction=LT
}}
ENTRY e {{
  x = s32[] parameter(0)
  k = s32[] parameter(1)
  one = s32[] constant(1)
  g = s32[] or(k, one)
  n = s32[] constant(0)
  t = ({state}) tuple({first})
  w = ({state}) while(t), condition=condition, body=body
  ROOT r = s32[] get-tuple-element(w), index={x}
}}
"""
"""A loop whose iterations depend on an argument: x += k | 1, while x is below a limit."""


def program(body: str) -> HloModule:
    text = re.sub(r"\s+(?=(?:ROOT )?\w+ = )", "\n", f" {REDUCERS}\nENTRY e {{\n {body}\n}}")
    return HloModule.from_text("HloModule m\n" + text.replace(" }", "\n}"))


@pytest.mark.parametrize("name", PAIRS)
def test_pair(name: str) -> None:
    relation, before, after = PAIRS[name]
    verdict = prove(program(before), program(after))
    assert verdict.relation is relation
    assert (verdict.error_bits is None) is not relation.is_proof
    if relation is REFUTED:
        assert verdict.inputs
        assert any(c.wrong for c in verdict.comparisons)


def test_the_same_program_is_certain() -> None:
    verdict = prove(program(PAIRS["a softmax by parts"][1]), program(PAIRS["a softmax by parts"][1]))
    assert verdict.certain
    assert verdict.error_bits is None


def test_a_loop_equals_its_iterations() -> None:
    unrolled = "x = f32[4] parameter(0) a = f32[4] multiply(x, x) ROOT r = f32[4] multiply(a, a)"
    assert prove(HloModule.from_text(LOOP.format(trips=2)), program(unrolled)).relation is IDENTICAL
    verdict = prove(HloModule.from_text(LOOP.format(trips=3)), program(unrolled))
    assert verdict.relation is REFUTED


def search(**words: object) -> HloModule:
    plain = {
        "state": "s32[], s32[]",
        "x": 0,
        "k": 1,
        "rest": "",
        "scale": "h",
        "next": "y, k",
        "first": "x, k",
    }
    return HloModule.from_text(SEARCH.format(**{**plain, "limit": 9, **words}))


def test_loops_are_equal_whatever_their_state_holds_besides() -> None:
    """The state in another order, with a counter that nobody reads, with what does not change moved out."""
    longer = search(
        state="s32[], s32[], s32[]", x=2, k=0, next="k, m, y", first="k, n, x",
        rest="j = s32[] get-tuple-element(s), index=1\n m = s32[] add(j, j)",
    )  # fmt: skip
    hoisted = search(
        state="s32[], s32[], s32[]", next="y, k, h", first="x, k, g", scale="unused",
        rest="h = s32[] get-tuple-element(s), index=2",
    )  # fmt: skip
    for other in (longer, hoisted):
        assert prove(search(), other).relation is IDENTICAL


def test_loops_that_differ_are_not_proved() -> None:
    swapped = search(next="k, y")
    counted = search(
        state="s32[], s32[], s32[]", next="y, k, x", first="x, k, g", scale="unused",
        rest="h = s32[] get-tuple-element(s), index=2",
    )  # fmt: skip
    for other in (search(limit=8), search(first="k, x"), swapped, counted):
        assert not prove(search(), other).relation.is_proof


NESTED = """HloModule m
inner {{
  s = (s32[], s32[]) parameter(0)
  x = s32[] get-tuple-element(s), index=0
  o = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  h = s32[] or({read}, one)
  y = s32[] add(x, h)
  ROOT t = (s32[], s32[]) tuple(y, o)
}}
below {{
  s = (s32[], s32[]) parameter(0)
  x = s32[] get-tuple-element(s), index=0
  l = s32[] constant(9)
  ROOT c = pred[] compare(x, l), direction=LT
}}
outer {{
  s = (s32[], s32[]) parameter(0)
  x = s32[] get-tuple-element(s), index=0
  i = s32[] get-tuple-element(s), index=1
  t = (s32[], s32[]) tuple(i, x)
  w = (s32[], s32[]) while(t), condition=below, body=inner
  y = s32[] get-tuple-element(w), index=0
  z = s32[] add(x, y)
  ROOT u = (s32[], s32[]) tuple(z, i)
}}
ENTRY e {{
  a = s32[] parameter(0)
  t = (s32[], s32[]) tuple(a, a)
  w = (s32[], s32[]) while(t), condition=below, body=outer
  ROOT r = s32[] get-tuple-element(w), index=0
}}
"""
"""The inner loop starts with the value that the outer one starts with, and reads either of them."""


def test_loops_in_loops_do_not_share_unknowns() -> None:
    own, outer = (HloModule.from_text(NESTED.format(read=name)) for name in ("x", "o"))
    assert prove(own, own.clone()).relation is IDENTICAL
    assert not prove(own, outer).relation.is_proof


def test_values_drawn_twice_differ() -> None:
    draws = """z = f32[] constant(0) o = f32[] constant(1)
    a = f32[4] rng(z, o), distribution=rng_uniform b = f32[4] rng(z, o), distribution=rng_uniform """
    twice = program(draws + "ROOT r = f32[4] subtract(a, b)")
    zero = program("z = f32[] constant(0) ROOT r = f32[4] broadcast(z), dimensions={}")
    assert prove(twice, zero).relation is not REALS


def test_fingerprints_of_a_large_degree_prove_nothing() -> None:
    squares = "x = s32[4] parameter(0) " + " ".join(
        f"x{n + 1} = s32[4] multiply(x{n or ''}, x{n or ''})" for n in range(40)
    )
    both = [program(f"{squares} ROOT r = s32[4] add(x40, x{n})") for n in (39, 40)]
    assert prove(both[0], both[1]).relation in (REFUTED, Relation.OPEN)
    exchanged = program(f"{squares} ROOT r = s32[4] add(x39, x40)")
    verdict = prove(both[0], exchanged)
    assert verdict.relation is Relation.OPEN
    assert "degree" in verdict.reason


def test_sums_of_many_fractions_have_a_small_degree() -> None:
    """Sums of fractions with different denominators, of sums of such fractions."""
    layers = "x0 = f32[64,64] parameter(0) z = f32[] constant(0) " + "".join(
        f"""e{n} = f32[64,64] exponential(x{n}) t{n} = f32[64] reduce(e{n}, z), dimensions={{1}}, to_apply=add
        b{n} = f32[64,64] broadcast(t{n}), dimensions={{0}} q{n} = f32[64,64] divide(e{n}, b{n})
        x{n + 1} = f32[64,64] dot(q{n}, q{n}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}} """
        for n in range(6)
    )
    before = program(layers + "twice = f32[64,64] add(x6, x6) ROOT r = f32[64,64] add(twice, x6)")
    three = "c = f32[] constant(3) three = f32[64,64] broadcast(c), dimensions={} "
    after = program(layers + three + "ROOT r = f32[64,64] multiply(x6, three)")
    assert prove(before, after).relation is REALS


def test_what_is_undecided_is_stated() -> None:
    """By the values that both programs compute: the sine is one of them, the results that are equal go."""
    before = """a = f32[4] parameter(0) b = f32[4] sine(a) x = f32[4] exponential(b) y = f32[4] exponential(a)
    p = f32[4] multiply(x, y) ROOT t = (f32[4], f32[4]) tuple(y, p)"""
    after = """a = f32[4] parameter(0) b = f32[4] sine(a) y = f32[4] exponential(a) s = f32[4] add(b, a)
    p = f32[4] exponential(s) ROOT t = (f32[4], f32[4]) tuple(y, p)"""
    verdict = prove(program(before), program(after), samples=0)
    assert verdict.relation is Relation.OPEN
    small = [HloModule.from_text(text) for text in verdict.undecided]
    counts = [Counter(i.opcode for i in module.entry.instructions) for module in small]
    assert counts == [
        {"parameter": 3, "exponential": 1, "multiply": 1},
        {"parameter": 3, "add": 1, "exponential": 1},
    ]
    assert prove(*small, samples=0).relation is Relation.OPEN


def test_the_first_new_value_is_named() -> None:
    before = "a = f32[4] parameter(0) b = f32[4] sine(a) c = f32[4] negate(b) ROOT r = f32[4] tanh(c)"
    after = "a = f32[4] parameter(0) b = f32[4] sine(a) c = f32[4] abs(b) ROOT r = f32[4] tanh(c)"
    assert "abs(" in prove(program(before), program(after)).instruction


def test_other_parameters_are_refused() -> None:
    with pytest.raises(HloError) as caught:
        prove(program("ROOT a = f32[4] parameter(0)"), program("ROOT a = f32[5] parameter(0)"))
    assert caught.value.rule == "prove.form"


@pytest.mark.parametrize("name", [n for n, (relation, _, _) in PAIRS.items() if relation.is_proof])
def test_no_mistake_is_proved(name: str) -> None:
    """Mutants of the second program of a proved pair that the evaluator tells apart are not proved."""
    _, before, after = PAIRS[name]
    original = program(before)
    for kind, mutant in list(mutants(program(after), 7))[:6]:
        try:
            verdict = prove(original, mutant)
        except HloError:
            continue
        if verdict.relation.is_proof:
            assert not is_told_apart(original, mutant, verdict.relation), kind
