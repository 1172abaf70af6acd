"""Pairs of small programs: what must be proved, and what must be refuted."""

from __future__ import annotations

import re

from hloom import HloModule
from hloom.proofs import Relation

IDENTICAL, REALS, REFUTED = Relation.IDENTICAL, Relation.EQUAL_OVER_REALS, Relation.REFUTED
REDUCERS = """
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
add_integers { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = s32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
min { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] minimum(a, b) }
least { a = f32[] parameter(0) b = s32[] parameter(1) c = f32[] parameter(2) d = s32[] parameter(3)
x = f32[] minimum(a, c) y = s32[] minimum(b, d) ROOT r = (f32[], s32[]) tuple(x, y) }
later { a = f32[] parameter(0) b = f32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
ROOT r = pred[] compare(a, b), direction=GT, type=TOTALORDER }
before { a = s32[] parameter(0) b = s32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
ROOT r = pred[] compare(a, b), direction=LT }
"""
QUOTIENT = """x = f32[4] parameter(0) c = f32[] constant({shift}) b = f32[4] broadcast(c), dimensions={{}}
d = f32[4] subtract(x, b) e = f32[4] exponential(d) ROOT r = f32[4] divide(e, e)"""

PAIRS: dict[str, tuple[Relation, str, str]] = {
    "a maximum compared with its bound": (
        IDENTICAL,
        """a = f32[4] parameter(0) b = f32[4] parameter(1) m = f32[4] maximum(a, b)
        ROOT r = pred[4] compare(m, b), direction=GT""",
        "a = f32[4] parameter(0) b = f32[4] parameter(1) ROOT r = pred[4] compare(b, a), direction=LT",
    ),
    "a bound that is at least a minimum": (
        REFUTED,
        """a = f32[4] parameter(0) b = f32[4] parameter(1) m = f32[4] minimum(a, b)
        ROOT r = pred[4] compare(b, m), direction=GE""",
        "a = f32[4] parameter(0) b = f32[4] parameter(1) ROOT r = pred[4] compare(b, a), direction=GE",
    ),
    "a minimum that is not below its bound": (
        IDENTICAL,
        """a = f32[4] parameter(0) b = f32[4] parameter(1) m = f32[4] minimum(b, a)
        ROOT r = pred[4] compare(m, b), direction=GE""",
        "a = f32[4] parameter(0) b = f32[4] parameter(1) ROOT r = pred[4] compare(a, b), direction=GE",
    ),
    "a maximum compared with another number": (
        REFUTED,
        """a = s32[4] parameter(0) b = s32[4] parameter(1) c = s32[4] parameter(2) m = s32[4] maximum(a, b)
        ROOT r = pred[4] compare(m, c), direction=GT""",
        """a = s32[4] parameter(0) b = s32[4] parameter(1) c = s32[4] parameter(2)
        ROOT r = pred[4] compare(a, c), direction=GT""",
    ),
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
    "elements of an array of equal ones": (
        IDENTICAL,
        """n = s32[] parameter(0) i = s32[2] parameter(1) a = f32[] parameter(2)
        b = f32[9] broadcast(a), dimensions={} s = f32[3] dynamic-slice(b, n), dynamic_slice_sizes={3}
        g = f32[2] gather(b, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
        index_vector_dim=1, slice_sizes={1}
        ROOT t = (f32[3], f32[2]) tuple(s, g)""",
        """n = s32[] parameter(0) i = s32[2] parameter(1) a = f32[] parameter(2)
        s = f32[3] broadcast(a), dimensions={} g = f32[2] broadcast(a), dimensions={}
        ROOT t = (f32[3], f32[2]) tuple(s, g)""",
    ),
    "windows of an empty array": (
        IDENTICAL,
        """a = f32[0,3] parameter(0) z = f32[] constant(-inf)
        ROOT r = f32[2,3] reduce-window(a, z), window={size=1x1 pad=0_2x0_0}, to_apply=max""",
        "a = f32[0,3] parameter(0) z = f32[] constant(-inf) ROOT r = f32[2,3] broadcast(z), dimensions={}",
    ),
    "windows of an empty array, of several results": (
        REFUTED,
        """a = f32[0] parameter(0) b = s32[0] parameter(1) x = f32[] parameter(2) y = s32[] parameter(3)
        w = (f32[2], s32[2]) reduce-window(a, b, x, y), window={size=1 pad=0_2}, to_apply=least
        ROOT r = f32[2] get-tuple-element(w), index=0""",
        """a = f32[0] parameter(0) b = s32[0] parameter(1) x = f32[] parameter(2) y = s32[] parameter(3)
        n = f32[] negate(x) ROOT r = f32[2] broadcast(n), dimensions={}""",
    ),
    "a quotient that is 1": (REALS, QUOTIENT.format(shift="2"), QUOTIENT.format(shift="3")),
    **{
        f"a quotient that is 1 over the reals, less {shift}": (
            REFUTED,
            QUOTIENT.format(shift="2"),
            QUOTIENT.format(shift=shift),
        )
        for shift in ("inf", "nan", "65504")
    },
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
    "an update of an updated row": (
        IDENTICAL,
        """x = f32[3,8] parameter(0) u = f32[1,2] parameter(1) n = s32[] parameter(2) z = s32[] constant(0)
        s = f32[1,8] slice(x), slice={[1:2], [0:8]} v = f32[1,8] dynamic-update-slice(s, u, n, n)
        o = s32[] constant(1) ROOT r = f32[3,8] dynamic-update-slice(x, v, o, z)""",
        """x = f32[3,8] parameter(0) u = f32[1,2] parameter(1) n = s32[] parameter(2) o = s32[] constant(1)
        ROOT r = f32[3,8] dynamic-update-slice(x, u, o, n)""",
    ),
    "an update of another row": (
        REFUTED,
        """x = f32[3,8] parameter(0) u = f32[1,2] parameter(1) n = s32[] parameter(2) z = s32[] constant(0)
        s = f32[1,8] slice(x), slice={[1:2], [0:8]} v = f32[1,8] dynamic-update-slice(s, u, n, n)
        o = s32[] constant(1) ROOT r = f32[3,8] dynamic-update-slice(x, v, o, z)""",
        """x = f32[3,8] parameter(0) u = f32[1,2] parameter(1) n = s32[] parameter(2) o = s32[] constant(2)
        ROOT r = f32[3,8] dynamic-update-slice(x, u, o, n)""",
    ),
    "updates in another order, of which one may cover the other": (
        REFUTED,
        """x = f32[8] parameter(0) u = f32[2] parameter(1) v = f32[2] parameter(2) m = s32[] parameter(3)
        n = s32[] parameter(4) y = f32[8] dynamic-update-slice(x, u, m)
        ROOT r = f32[8] dynamic-update-slice(y, v, n)""",
        """x = f32[8] parameter(0) u = f32[2] parameter(1) v = f32[2] parameter(2) m = s32[] parameter(3)
        n = s32[] parameter(4) y = f32[8] dynamic-update-slice(x, v, n)
        ROOT r = f32[8] dynamic-update-slice(y, u, m)""",
    ),
    "a solve by a call of LAPACK, and one in a wider type": (
        REALS,
        """a = f32[3,3] parameter(0) b = f32[3,1] parameter(1)
        ROOT r = f32[3,1] custom-call(a, b), custom_call_target="lapack_strsm_ffi",
        api_version=API_VERSION_TYPED_FFI,
        backend_config={diag = 78 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 76 : ui8}""",
        """a = f32[3,3] parameter(0) b = f32[3,1] parameter(1) c = f64[3,3] convert(a) d = f64[3,1] convert(b)
        s = f64[3,1] triangular-solve(c, d), left_side=true, lower=true, transpose_a=NO_TRANSPOSE
        ROOT r = f32[3,1] convert(s)""",
    ),
    "a solve with the other triangle": (
        REFUTED,
        """a = f32[3,3] parameter(0) b = f32[3,1] parameter(1)
        ROOT r = f32[3,1] triangular-solve(a, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE""",
        """a = f32[3,3] parameter(0) b = f32[3,1] parameter(1) c = f64[3,3] convert(a) d = f64[3,1] convert(b)
        s = f64[3,1] triangular-solve(c, d), left_side=true, lower=false, transpose_a=NO_TRANSPOSE
        ROOT r = f32[3,1] convert(s)""",
    ),
}


def program(body: str) -> HloModule:
    """Return the program whose entry computation has a body; its instructions are separated by blanks."""
    text = re.sub(r"\s+(?=(?:ROOT )?\w+ = )", "\n", f" {REDUCERS}\nENTRY e {{\n {body}\n}}")
    return HloModule.from_text("HloModule m\n" + text.replace(" }", "\n}"))
