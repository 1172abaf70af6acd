"""Pairs of small programs about indices: scatters, and comparisons of integers with known numbers."""

from __future__ import annotations

from hloom.proofs import Relation
from tests.proofs.pairs import IDENTICAL, REALS, REFUTED

INDEX_PAIRS: dict[str, tuple[Relation, str, str]] = {
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
    "a scatter of one element of each row": (
        IDENTICAL,
        """a = f32[2,3] parameter(0) k = s32[2,1] parameter(1) u = f32[2] parameter(2)
        ROOT s = f32[2,3] scatter(a, k, u), update_window_dims={}, inserted_window_dims={1},
        input_batching_dims={0}, scatter_indices_batching_dims={0}, scatter_dims_to_operand_dims={1},
        index_vector_dim=1, to_apply=add""",
        """a = f32[2,3] parameter(0) k = s32[2,1] parameter(1) u = f32[2] parameter(2) r = s32[2] reshape(k)
        b = s32[2,3] broadcast(r), dimensions={0} n = s32[2,3] iota(), iota_dimension=1
        c = pred[2,3] compare(b, n), direction=EQ v = f32[2,3] broadcast(u), dimensions={0}
        d = f32[2,3] add(a, v) ROOT s = f32[2,3] select(c, d, a)""",
    ),
    "a scatter of one element of each row to the nearest index": (
        REFUTED,
        """a = f32[2,3] parameter(0) k = s32[2,1] parameter(1) u = f32[2] parameter(2)
        ROOT s = f32[2,3] scatter(a, k, u), update_window_dims={}, inserted_window_dims={1},
        input_batching_dims={0}, scatter_indices_batching_dims={0}, scatter_dims_to_operand_dims={1},
        index_vector_dim=1, to_apply=add""",
        """a = f32[2,3] parameter(0) k = s32[2,1] parameter(1) u = f32[2] parameter(2) r = s32[2] reshape(k)
        z = s32[] constant(0) o = s32[] constant(2) m = s32[2] clamp(z, r, o)
        b = s32[2,3] broadcast(m), dimensions={0} n = s32[2,3] iota(), iota_dimension=1
        c = pred[2,3] compare(b, n), direction=EQ v = f32[2,3] broadcast(u), dimensions={0}
        d = f32[2,3] add(a, v) ROOT s = f32[2,3] select(c, d, a)""",
    ),
    "a sum of one element of each row": (
        REALS,
        """k = s32[2] parameter(0) u = f32[2] parameter(1) b = s32[2,3] broadcast(k), dimensions={0}
        n = s32[2,3] iota(), iota_dimension=1 c = pred[2,3] compare(b, n), direction=EQ
        v = f32[2,3] broadcast(u), dimensions={0} z = f32[] constant(0)
        w = f32[2,3] broadcast(z), dimensions={}
        s = f32[2,3] select(c, v, w) ROOT r = f32[2] reduce(s, z), dimensions={1}, to_apply=add""",
        """k = s32[2] parameter(0) u = f32[2] parameter(1) i = s32[] constant(0) j = s32[] constant(2)
        low = s32[2] broadcast(i), dimensions={} high = s32[2] broadcast(j), dimensions={}
        c = pred[2] compare(k, low), direction=GE d = pred[2] compare(high, k), direction=GE
        e = pred[2] and(d, c) z = f32[] constant(0) w = f32[2] broadcast(z), dimensions={}
        ROOT r = f32[2] select(e, u, w)""",
    ),
    "a sum of one element of each row, by a range that lacks the last index": (
        REFUTED,
        """k = s32[2] parameter(0) u = f32[2] parameter(1) b = s32[2,3] broadcast(k), dimensions={0}
        n = s32[2,3] iota(), iota_dimension=1 c = pred[2,3] compare(b, n), direction=EQ
        v = f32[2,3] broadcast(u), dimensions={0} z = f32[] constant(0)
        w = f32[2,3] broadcast(z), dimensions={}
        s = f32[2,3] select(c, v, w) ROOT r = f32[2] reduce(s, z), dimensions={1}, to_apply=add""",
        """k = s32[2] parameter(0) u = f32[2] parameter(1) i = s32[] constant(0) j = s32[] constant(2)
        low = s32[2] broadcast(i), dimensions={} high = s32[2] broadcast(j), dimensions={}
        c = pred[2] compare(k, low), direction=GE d = pred[2] compare(high, k), direction=GT
        e = pred[2] and(d, c) z = f32[] constant(0) w = f32[2] broadcast(z), dimensions={}
        ROOT r = f32[2] select(e, u, w)""",
    ),
    "comparisons with the next number": (
        IDENTICAL,
        """k = s32[4] parameter(0) o = s32[] constant(7) b = s32[4] broadcast(o), dimensions={}
        c = pred[4] compare(k, b), direction=LE d = pred[4] compare(b, k), direction=LT
        ROOT t = (pred[4], pred[4]) tuple(c, d)""",
        """k = s32[4] parameter(0) o = s32[] constant(8) b = s32[4] broadcast(o), dimensions={}
        c = pred[4] compare(k, b), direction=LT d = pred[4] not(c) ROOT t = (pred[4], pred[4]) tuple(c, d)""",
    ),
    "comparisons with the number after the largest": (
        REFUTED,
        """k = s8[4] parameter(0) o = s8[] constant(127) b = s8[4] broadcast(o), dimensions={}
        ROOT c = pred[4] compare(k, b), direction=LE""",
        """k = s8[4] parameter(0) o = s8[] constant(127) p = s8[] constant(1) q = s8[] add(o, p)
        b = s8[4] broadcast(q), dimensions={} ROOT c = pred[4] compare(k, b), direction=LT""",
    ),
    "a range without numbers": (
        IDENTICAL,
        """k = s32[4] parameter(0) i = s32[] constant(-3) j = s32[] constant(5)
        low = s32[4] broadcast(j), dimensions={} high = s32[4] broadcast(i), dimensions={}
        c = pred[4] compare(k, low), direction=GE d = pred[4] compare(k, high), direction=LT
        ROOT e = pred[4] and(d, c)""",
        """k = s32[4] parameter(0) f = pred[] constant(false) ROOT e = pred[4] broadcast(f), dimensions={}""",
    ),
    "comparisons that ranges decide": (
        IDENTICAL,
        """a = u8[4] parameter(0) k = s32[4] convert(a) o = s32[] constant(3)
        three = s32[4] broadcast(o), dimensions={} x = s32[4] remainder(k, three) y = s32[4] add(x, three)
        c = pred[4] compare(y, three), direction=LT
        d = pred[4] compare(x, y), direction=NE e = s32[4] maximum(x, three) f = s32[4] remainder(x, three)
        z = s32[] constant(0) g = s32[4] clamp(z, k, o) h = s32[4] clamp(z, g, o)
        ROOT t = (pred[4], pred[4], s32[4], s32[4], s32[4]) tuple(c, d, e, f, h)""",
        """a = u8[4] parameter(0) k = s32[4] convert(a) o = s32[] constant(3)
        three = s32[4] broadcast(o), dimensions={} x = s32[4] remainder(k, three) y = s32[4] add(x, three)
        n = pred[] constant(false)
        c = pred[4] broadcast(n), dimensions={} p = pred[] constant(true) z = s32[] constant(0)
        d = pred[4] compare(x, y), direction=LT e = pred[4] broadcast(p), dimensions={}
        g = s32[4] clamp(z, k, o)
        ROOT t = (pred[4], pred[4], s32[4], s32[4], s32[4]) tuple(c, e, three, x, g)""",
    ),
    "comparisons of sums that may wrap around": (
        REFUTED,
        """a = u8[4] parameter(0) o = u8[] constant(3) three = u8[4] broadcast(o), dimensions={}
        b = u8[4] add(a, three) ROOT c = pred[4] compare(b, three), direction=LT""",
        """a = u8[4] parameter(0) n = pred[] constant(false) ROOT c = pred[4] broadcast(n), dimensions={}""",
    ),
    "the same predicate twice": (
        IDENTICAL,
        """a = f32[4] parameter(0) b = f32[4] parameter(1) c = pred[4] compare(a, b), direction=LT
        d = pred[4] compare(b, a), direction=GT e = pred[4] and(c, d) f = pred[4] or(e, d)
        ROOT t = pred[4] and(f, f)""",
        """a = f32[4] parameter(0) b = f32[4] parameter(1) ROOT c = pred[4] compare(a, b), direction=LT""",
    ),
    "a scatter of rows as a product": (
        REALS,
        """a = f32[5,3] parameter(0) k = s32[4,1] parameter(1) u = f32[4,3] parameter(2)
        ROOT s = f32[5,3] scatter(a, k, u), update_window_dims={1}, inserted_window_dims={0},
        scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add""",
        """a = f32[5,3] parameter(0) k = s32[4,1] parameter(1) u = f32[4,3] parameter(2) r = s32[4] reshape(k)
        b = s32[5,4] broadcast(r), dimensions={1} n = s32[5,4] iota(), iota_dimension=0
        c = pred[5,4] compare(n, b), direction=EQ h = f32[5,4] convert(c)
        d = f32[5,3] dot(h, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        ROOT s = f32[5,3] add(d, a)""",
    ),
    "a scatter of one window as an update": (
        IDENTICAL,
        """a = f32[5] parameter(0) k = s32[1] parameter(1) u = f32[2] parameter(2)
        ROOT s = f32[5] scatter(a, k, u), update_window_dims={0}, inserted_window_dims={},
        scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=add""",
        """a = f32[5] parameter(0) k = s32[1] parameter(1) u = f32[2] parameter(2) r = s32[] reshape(k)
        t = f32[2] dynamic-slice(a, r), dynamic_slice_sizes={2} v = f32[2] add(t, u)
        z = s32[] constant(0) n = s32[] constant(3) c = pred[] compare(r, z), direction=GE
        d = pred[] compare(r, n), direction=LE e = pred[] and(c, d) f = pred[2] broadcast(e), dimensions={}
        w = f32[2] select(f, v, t) ROOT s = f32[5] dynamic-update-slice(a, w, r)""",
    ),
    "a scatter of one window as an update of the nearest place": (
        REFUTED,
        """a = f32[5] parameter(0) k = s32[1] parameter(1) u = f32[2] parameter(2)
        ROOT s = f32[5] scatter(a, k, u), update_window_dims={0}, inserted_window_dims={},
        scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=add""",
        """a = f32[5] parameter(0) k = s32[1] parameter(1) u = f32[2] parameter(2) r = s32[] reshape(k)
        t = f32[2] dynamic-slice(a, r), dynamic_slice_sizes={2} v = f32[2] add(t, u)
        ROOT s = f32[5] dynamic-update-slice(a, v, r)""",
    ),
}
