"""Rules that move, repeat, cut and join elements, and where they must not be applied."""

from __future__ import annotations

import pytest

from hloom.passes.rules import broadcasting, joining, reshaping, slicing, updates
from tests.rule_checks import ANYTHING, Example, check, check_refused

SCATTER = (
    "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
    "to_apply=sum"
)
NIBBLES = (
    "four = {0}[] constant(4); n4 = {0}[3,2] broadcast(four), dimensions={{}}; "
    "mask = {0}[] constant(15); n15 = {0}[3,2] broadcast(mask), dimensions={{}}; "
)


def nibbles(kind: str, halves: str, result: str = "") -> Example:
    """Return bytes p of a type whose halves ``low`` and ``high``, by default of this type, are joined."""
    result = result or kind
    joined = f"a = {result}[3,2,1] reshape(low); b = {result}[3,2,1] reshape(high); "
    root = f"r = {result}[3,2,2] concatenate(a, b), dimensions={{2}}"
    return Example(f"p: {kind}[3,2]", f"{NIBBLES.format(kind)}{halves}; {joined}{root}")


EXAMPLES = {
    "reshape_to_the_same": [Example("x: T[4,6]", "r = T[4,6] reshape(x)", ANYTHING)],
    "reshape_twice": [Example("x: T[4,6]", "a = T[24] reshape(x); r = T[2,12] reshape(a)", ANYTHING)],
    "reshape_of_broadcast": [
        Example("x: f32[]", "b = f32[4,6] broadcast(x), dimensions={}; r = f32[24] reshape(b)"),
        Example("x: f32[4]", "b = f32[4,6] broadcast(x), dimensions={0}; r = f32[2,2,6,1] reshape(b)"),
        Example("x: f32[4,1]", "b = f32[4,6,1] broadcast(x), dimensions={0,2}; r = f32[4,2,3] reshape(b)"),
        Example("x: f32[3,4]", "b = f32[4,2,3] broadcast(x), dimensions={2,0}; r = f32[4,1,2,3] reshape(b)"),
        Example("x: f32[3,4]", "b = f32[2,3,4,2] broadcast(x), dimensions={1,2}; r = f32[2,12,2] reshape(b)"),
    ],
    "reshape_of_iota": [
        Example("x: f32[4]", "i = T[4,6] iota(), iota_dimension=1; r = T[2,2,6] reshape(i)", ("s32", "f32"))
    ],
    "dynamic_reshape_of_static": [
        Example("x: f32[4,6], a: s32[]", "n = s32[] constant(24); r = f32[24] dynamic-reshape(x, n)")
    ],
    "transpose_of_nothing": [
        Example("x: T[4,1,6]", "r = T[1,4,6] transpose(x), dimensions={1,0,2}", ANYTHING),
        Example("x: f32[4,6]", "r = f32[4,6] transpose(x), dimensions={0,1}"),
    ],
    "transpose_twice": [
        Example("x: T[2,3,4]", "a = T[3,4,2] transpose(x), dimensions={1,2,0};"
                "r = T[4,3,2] transpose(a), dimensions={1,0,2}", ANYTHING)
    ],
    "transpose_of_broadcast": [
        Example("x: f32[3,4]", "b = f32[3,2,4] broadcast(x), dimensions={0,2};"
                "r = f32[4,3,2] transpose(b), dimensions={2,0,1}")
    ],
    "transpose_of_iota": [
        Example("x: f32[]", "i = s32[4,6] iota(), iota_dimension=1; r = s32[6,4] transpose(i), "
                "dimensions={1,0}")
    ],
    "transpose_of_reshape": [
        Example("x: f32[4,6]", "a = f32[4,1,6] reshape(x); r = f32[6,4,1] transpose(a), dimensions={2,0,1}"),
        Example("x: f32[1,4,6,1]", "a = f32[4,6] reshape(x); r = f32[6,4] transpose(a), dimensions={1,0}"),
    ],
    "reverse_of_few": [
        Example("x: f32[4,1]", "r = f32[4,1] reverse(x), dimensions={1}"),
        Example("x: f32[4,1]", "r = f32[4,1] reverse(x), dimensions={0,1}"),
        Example("x: f32[4,1]", "r = f32[4,1] reverse(x), dimensions={}"),
    ],
    "reverse_twice": [
        Example("x: f32[3,4]", f"a = f32[3,4] reverse(x), dimensions={{{d}}}; "
                f"r = f32[3,4] reverse(a), dimensions={{0}}")
        for d in ("0", "0,1", "1")
    ],
    "reverse_of_broadcast": [
        Example("x: f32[3]", f"b = f32[3,4] broadcast(x), dimensions={{0}}; "
                f"r = f32[3,4] reverse(b), dimensions={{{d}}}")
        for d in ("0", "0,1", "1")
    ],
    # broadcast
    "broadcast_to_the_same": [
        Example("x: T[3,4]", "r = T[3,4] broadcast(x), dimensions={0,1}", ANYTHING),
        Example("x: f32[3,4]", "r = f32[4,3] broadcast(x), dimensions={1,0}"),
        Example("x: f32[3,4]", "r = f32[3,1,4] broadcast(x), dimensions={0,2}"),
    ],
    "broadcast_twice": [
        Example("x: f32[3]", "a = f32[2,3] broadcast(x), dimensions={1}; r = f32[3,4,2] broadcast(a), "
                "dimensions={2,0}")
    ],
    "broadcast_of_reshape": [
        Example("x: f32[3]", "a = f32[3,1] reshape(x); r = f32[3,1,4] broadcast(a), dimensions={0,1}"),
        Example("x: f32[1,3]", "a = f32[3,1] reshape(x); r = f32[3,1,4] broadcast(a), dimensions={0,1}"),
        Example("x: f32[6]", "a = f32[3,1,2] reshape(x); r = f32[3,1,4,2] broadcast(a), dimensions={0,1,3}"),
    ],
    "broadcast_of_iota": [
        Example("x: f32[]", "i = s32[3] iota(), iota_dimension=0; r = s32[2,3] broadcast(i), dimensions={1}")
    ],
    "iota_of_one": [Example("x: f32[]", "r = T[4,1] iota(), iota_dimension=1", ("s32", "f32", "u8"))],
    "elementwise_of_broadcasts": [
        Example("x: T[3], y: T[3]", "a = T[3,4] broadcast(x), dimensions={0}; "
                "b = T[3,4] broadcast(y), dimensions={0};"
                "r = T[3,4] multiply(a, b)", ANYTHING),
        Example("x: f32[3]", "a = f32[3,4] broadcast(x), dimensions={0}; r = f32[3,4] exponential(a)"),
        Example("x: f32[3], y: f32[]", "a = f32[3,4] broadcast(x), dimensions={0}; "
                "b = f32[3,4] broadcast(y), dimensions={};"
                "r = f32[3,4] atan2(b, a)"),
        Example("x: f32[], y: f32[]", "a = f32[4] broadcast(x), dimensions={}; "
                "b = f32[4] broadcast(y), dimensions={};"
                "r = pred[4] compare(a, b), direction=LT"),
        Example("p: pred[], x: f32[3], y: f32[3]", "a = f32[3,4] broadcast(x), dimensions={0};"
                "b = f32[3,4] broadcast(y), dimensions={0}; r = f32[3,4] select(p, a, b)"),
        Example("x: f32[1]", "a = f32[1,1] broadcast(x), dimensions={0}; c = f32[1,1] constant({{2}}); "
                "r = f32[1,1] add(a, c)"),
    ],
    "elementwise_of_reshapes": [
        Example("x: T[6], y: T[6]", "a = T[2,3] reshape(x); b = T[2,3] reshape(y); r = T[2,3] add(a, b)",
                ANYTHING),
        Example("x: f32[6], y: f32[]", "a = f32[6,1] reshape(x); b = f32[6,1] broadcast(y), dimensions={};"
                "r = f32[6,1] divide(a, b)"),
        Example("x: f32[6,4], y: f32[4]", "a = f32[2,3,4] reshape(x); b = f32[2,3,4] broadcast(y), "
                "dimensions={2};"
                "r = f32[2,3,4] maximum(a, b)"),
    ],
    # slices
    "slice_of_everything": [
        Example("x: T[3,4]", "r = T[3,4] slice(x), slice={[0:3], [0:4]}", ANYTHING),
        Example("x: f32[9]", "r = f32[1] slice(x), slice={[2:9:8]}"),
    ],
    "slice_twice": [
        Example("x: T[20]", "a = T[7] slice(x), slice={[1:20:3]}; r = T[3] slice(a), slice={[1:6:2]}",
                ANYTHING)
    ],
    "slice_of_broadcast": [
        Example("x: f32[5]", "b = f32[5,6] broadcast(x), dimensions={0}; "
                "r = f32[5,2] slice(b), slice={[0:5], [1:3]}"),
        Example("x: f32[5]", "b = f32[5,6] broadcast(x), dimensions={0}; "
                "r = f32[2,6] slice(b), slice={[1:5:2], [0:6]}"),
    ],
    "slice_of_iota": [
        Example("x: f32[]", "i = s32[5,6] iota(), iota_dimension=1; r = s32[2,4] slice(i), slice={[1:5:2], "
                "[0:4]}")
    ],
    "slice_of_concatenate": [
        Example("x: T[3], y: T[4]", "c = T[7] concatenate(x, y), dimensions={0}; "
                "r = T[2] slice(c), slice={[4:7:2]}", ANYTHING)
    ],
    "slice_of_pad": [
        Example("x: f32[3,2], v: f32[]", "p = f32[7,2] pad(x, v), padding=2_2x0_0; "
                "r = f32[2,2] slice(p), slice={[3:5], [0:2]}"),
        Example("x: f32[3,2], v: f32[]", "p = f32[7,2] pad(x, v), padding=2_2x0_0; "
                "r = f32[2,2] slice(p), slice={[5:7], [0:2]}"),
        Example("x: f32[3], v: f32[]", "p = f32[9] pad(x, v), padding=2_2_1; "
                "r = f32[2] slice(p), slice={[0:2]}"),
    ],
    "slice_of_elementwise": [
        Example("x: T[2], y: T[3]", "c = T[5] concatenate(x, y), dimensions={0}; m = T[5] multiply(c, c); "
                "r = T[3] slice(m), slice={[1:4]}", ("f32", "s8", "c64")),
        Example("x: f32[1,3], y: f32[1,3], p: pred[], z: f32[3,2]",
                "c = f32[2,3] concatenate(x, y), dimensions={0}; "
                "t = f32[3,2] transpose(c), dimensions={1,0}; w = f32[3,2] select(p, t, z); "
                "r = f32[3,1] slice(w), slice={[0:3], [1:2]}"),
    ],
    "slice_of_transpose": [
        Example("x: f32[3,4]", "t = f32[4,3] transpose(x), dimensions={1,0}; "
                "r = f32[2,2] slice(t), slice={[0:4:2], [1:3]}")
    ],
    "slice_of_reverse": [
        Example("x: f32[9,2]", "t = f32[9,2] reverse(x), dimensions={0}; "
                "r = f32[3,2] slice(t), slice={[1:8:3], [0:2]}")
    ],
    "slice_of_reshape": [
        Example("x: f32[9,2]", "t = f32[9,1,2] reshape(x); r = f32[3,1,1] slice(t), slice={[1:8:3], [0:1], "
                "[1:2]}")
    ],
    "element_of_reshape": [
        Example("x: f32[4,6]", "t = f32[3,8] reshape(x); r = f32[1,1] slice(t), slice={[1:2], [5:6]}"),
        Example("x: f32[9,1]", "t = f32[1,3,3] reshape(x); r = f32[1,1,1] slice(t), slice={[0:1], [2:3], "
                "[1:2]}"),
    ],
    "slice_of_update": [
        Example("x: f32[6,8], u: f32[3,4]", f"i = s32[] constant(2); j = s32[] constant({j}); "
                f"t = f32[6,8] dynamic-update-slice(x, u, i, j); "
                f"r = f32[2,2] slice(t), slice={{[3:5], [{first}:{first + 4}:2]}}")
        for j, first in ((1, 1), (9, 4), (-3, 0))
    ],
    "start_indices_one_by_one": [
        Example("x: f32[5,6], i: s32[2]", "r = f32[2,2] dynamic-slice(x, i), dynamic_slice_sizes={2,2}"),
        Example("x: f32[5,6], u: f32[2,2], i: u8[2]", "r = f32[5,6] dynamic-update-slice(x, u, i)"),
    ],
    "dynamic_slice_at_constant": [
        Example("x: T[9]", f"i = s32[] constant({i}); r = T[3] dynamic-slice(x, i), "
                f"dynamic_slice_sizes={{3}}", ANYTHING)
        for i in (-5, 2, 8)
    ] + [Example("x: f32[9], i: s32[]", "r = f32[9] dynamic-slice(x, i), dynamic_slice_sizes={9}")],
    "dynamic_slice_of_broadcast": [
        Example("x: f32[5], i: s32[], j: s32[]", "b = f32[5,6] broadcast(x), dimensions={0};"
                "r = f32[2,2] dynamic-slice(b, i, j), dynamic_slice_sizes={2,2}")
    ],
    "update_of_everything": [
        Example("x: T[3,4], u: T[3,4], i: s32[]", "r = T[3,4] dynamic-update-slice(x, u, i, i)", ANYTHING),
        Example("x: f32[3,4], u: f32[0,4], i: s32[]", "r = f32[3,4] dynamic-update-slice(x, u, i, i)"),
    ],
    "update_with_what_is_there": [
        Example("x: T[9], i: s32[]", "u = T[3] dynamic-slice(x, i), dynamic_slice_sizes={3};"
                "r = T[9] dynamic-update-slice(x, u, i)", ANYTHING)
    ],
    "update_at_constant_of_one_number": [
        Example("v: T[], u: T[3]", "x = T[9] broadcast(v), dimensions={}; i = s32[] constant(7);"
                "r = T[9] dynamic-update-slice(x, u, i)", ANYTHING)
    ],
    "select_of_updates": [
        Example("x: T[9], u: T[2], i: s32[], p: pred[]", "a = T[9] dynamic-update-slice(x, u, i);"
                "r = T[9] select(p, a, x)", ANYTHING),
        Example("x: f32[9], u: f32[2], i: s32[], p: pred[9]", "a = f32[9] dynamic-update-slice(x, u, i);"
                "r = f32[9] select(p, x, a)"),
        Example("x: f32[9], u: f32[2], v: f32[2], i: s32[], p: pred[]",
                "a = f32[9] dynamic-update-slice(x, u, i); j = s32[] add(i, i);"
                "b = f32[9] dynamic-update-slice(a, v, j); c = f32[9] dynamic-update-slice(x, v, i);"
                "r = f32[9] select(p, b, c)"),
        *(
            Example(f"x: f32[12], u: f32[3], i: {kind}[3], q: pred[]",
                    f"a = f32[12] scatter(x, i, u), {SCATTER};"
                    f"p = {p}; r = f32[12] select(p, {pair})")
            for kind, p, pair in (
                ("s32", "pred[12] broadcast(q), dimensions={}", "a, x"), ("u8", "pred[] not(q)", "x, a")
            )
        ),
    ],
    # pad, concatenate
    "pad_of_nothing": [
        Example("x: T[3,1], v: T[]", "r = T[3,1] pad(x, v), padding=0_0x0_0_2", ANYTHING),
        Example("x: f32[0,1], v: f32[]", "r = f32[3,1] pad(x, v), padding=1_2x0_0"),
    ],
    "pad_that_cuts": [
        Example("x: T[5], v: T[]", "r = T[2] pad(x, v), padding=-1_-2", ANYTHING),
        Example("x: f32[5], v: f32[]", "r = f32[6] pad(x, v), padding=-1_2"),
    ],
    "pad_twice": [
        Example("x: f32[5], v: f32[]", "p = f32[13] pad(x, v), padding=1_3_1; "
                "r = f32[16] pad(p, v), padding=2_1"),
        Example("x: f32[5]", "v = f32[] constant(1); u = f32[] constant(1); "
                "p = f32[6] pad(x, v), padding=1_0;"
                "r = f32[8] pad(p, u), padding=2_0"),
    ],
    "pad_of_same_number": [
        Example("v: T[]", "x = T[4] broadcast(v), dimensions={}; r = T[9] pad(x, v), padding=1_1_1", ANYTHING)
    ],
    "concatenate_of_few": [
        Example("x: T[3]", "r = T[3] concatenate(x), dimensions={0}", ANYTHING),
        Example("x: f32[3], e: f32[0], y: f32[2]", "r = f32[5] concatenate(x, e, y), dimensions={0}"),
    ],
    "concatenate_flattened": [
        Example("x: f32[3], y: f32[2], z: f32[4]", "a = f32[5] concatenate(x, y), dimensions={0};"
                "r = f32[9] concatenate(z, a), dimensions={0}")
    ],
    "concatenate_of_neighbours": [
        Example("x: f32[9,2]", "a = f32[3,2] slice(x), slice={[1:4], [0:2]}; "
                "b = f32[2,2] slice(x), slice={[4:6], [0:2]};"
                "r = f32[5,2] concatenate(a, b), dimensions={0}"),
        Example("x: f32[9], y: f32[1]", "a = f32[3] slice(x), slice={[1:4]}; "
                "b = f32[2] slice(x), slice={[4:6]};"
                "r = f32[6] concatenate(a, b, y), dimensions={0}"),
    ],
    "elementwise_of_concatenates": [
        Example("x: T[3,2], y: T[1,2], u: T[3,2], v: T[1,2]",
                "a = T[4,2] concatenate(x, y), dimensions={0}; b = T[4,2] concatenate(u, v), dimensions={0}; "
                f"r = T[4,2] {opcode}(a, b)", ("f32", "s8", "c64"))
        for opcode in ("add", "subtract", "multiply")
    ],
    "elementwise_of_stack": [
        *(Example("x: T[2,40], y: T[3,40], z: T[5,40]",
                  f"a = T[5,40] concatenate(x, y), dimensions={{0}}; "
                  f"r = T[5,40] {opcode}(a, z)", ("f32", "s8"))
          for opcode in ("add", "subtract", "divide", "maximum")),
        Example("x: T[1,64], y: T[1,64], u: T[1,64], v: T[1,64]",
                "a = T[2,64] concatenate(x, y), dimensions={0}; "
                "b = T[2,64] concatenate(u, v), dimensions={0}; "
                "r = T[2,64] multiply(a, b)", ("f32", "s8")),
        Example("x: T[1,64], y: T[1,64], v: T[64], n: T[]",
                "a = T[2,64] concatenate(x, y), dimensions={0}; c = T[2,64] broadcast(v), dimensions={1}; "
                "d = T[2,64] broadcast(n), dimensions={}; e = T[2,64] minimum(c, d); "
                "r = T[2,64] subtract(e, a)",
                ("f32", "s8")),
        *(Example("x: T[9,64], y: T[5,64]", f"a = T[14,64] concatenate(x, y), dimensions={{0}}; "
                  f"r = T[14,64] {opcode}(a)", ("f32", "s8")) for opcode in ("negate", "abs")),
    ],
    "concatenate_of_one_number": [
        Example("x: T[3,2], v: T[]", "b = T[4,2] broadcast(v), dimensions={}; r = T[7,2] concatenate(b, x), "
                "dimensions={0}", ANYTHING),
        Example("x: f32[3,2], v: f32[]", "b = f32[3,4] broadcast(v), dimensions={}; "
                "r = f32[3,6] concatenate(x, b), dimensions={1}"),
    ],
    "concatenate_of_nibbles": [
        nibbles("u8", "low = u8[3,2] and(p, n15); high = u8[3,2] shift-right-logical(p, n4)"),
        nibbles("s8", "up = s8[3,2] shift-left(p, n4); low = s8[3,2] shift-right-arithmetic(up, n4); "
                "high = s8[3,2] shift-right-arithmetic(p, n4)"),
        nibbles("s8", "low = s8[3,2] and(p, n15); shifted = s8[3,2] shift-right-arithmetic(p, n4); "
                "high = s8[3,2] and(shifted, n15)"),
        nibbles("u8", "l = u8[3,2] and(p, n15); h = u8[3,2] shift-right-logical(p, n4); "
                "l8 = s8[3,2] convert(l); h8 = s8[3,2] convert(h); eight = s8[] constant(8); "
                "eights = s8[3,2] broadcast(eight), dimensions={}; "
                "low = s8[3,2] subtract(l8, eights); high = s8[3,2] subtract(h8, eights)", "s8"),
    ],
}  # fmt: skip

REFUSED = {
    "concatenate_of_nibbles": [
        nibbles("u8", "high = u8[3,2] and(p, n15); low = u8[3,2] shift-right-logical(p, n4)"),
        nibbles("u8", "q = u8[3,2] add(p, n4); low = u8[3,2] and(q, n15); "
                "high = u8[3,2] shift-right-logical(p, n4)"),
        nibbles("s8", "low = s8[3,2] and(p, n15); high = s8[3,2] shift-right-arithmetic(p, n4)"),
        nibbles("u8", "low = u8[3,2] and(p, n4); high = u8[3,2] shift-right-logical(p, n4)"),
    ],
    "reshape_of_broadcast": [
        Example("x: f32[4]", "b = f32[4,6] broadcast(x), dimensions={0}; r = f32[24] reshape(b)"),
        Example("x: f32[4,3]", "b = f32[3,4] broadcast(x), dimensions={1,0}; r = f32[12] reshape(b)"),
    ],
    "transpose_of_nothing": [Example("x: f32[4,6]", "r = f32[6,4] transpose(x), dimensions={1,0}")],
    "broadcast_of_reshape": [
        Example("x: f32[6]", "a = f32[2,3] reshape(x); r = f32[2,4,3] broadcast(a), dimensions={0,2}")
    ],
    "elementwise_of_broadcasts": [
        Example("x: f32[3], y: f32[3]", "a = f32[3,3] broadcast(x), dimensions={0}; "
                "b = f32[3,3] broadcast(y), dimensions={1};"
                "r = f32[3,3] add(a, b)"),
        Example("x: f32[3], y: f32[3,4]", "a = f32[3,4] broadcast(x), dimensions={0}; "
                "r = f32[3,4] add(a, y)"),
    ],
    "elementwise_of_reshapes": [
        Example("x: f32[6], y: f32[3,2]", "a = f32[2,3] reshape(x); b = f32[2,3] reshape(y); "
                "r = f32[2,3] add(a, b)"),
        Example("x: f32[12], y: f32[6]", "a = f32[2,6] reshape(x); b = f32[2,6] broadcast(y), dimensions={1};"
                "r = f32[2,6] add(a, b)"),
    ],
    "slice_of_iota": [Example("x: f32[]", "i = s32[6] iota(), iota_dimension=0; "
                              "r = s32[3] slice(i), slice={[1:4]}")],
    "slice_of_concatenate": [
        Example("x: f32[3], y: f32[4]", "c = f32[7] concatenate(x, y), dimensions={0}; "
                "r = f32[3] slice(c), slice={[2:5]}")
    ],
    "slice_of_pad": [
        Example("x: f32[3], v: f32[]", "p = f32[7] pad(x, v), padding=2_2; "
                "r = f32[3] slice(p), slice={[1:4]}")
    ],
    "dynamic_slice_at_constant": [
        Example("x: f32[9,9], i: s32[]", "z = s32[] constant(0); r = f32[3,3] dynamic-slice(x, i, z), "
                "dynamic_slice_sizes={3,3}")
    ],
    "update_with_what_is_there": [
        Example("x: f32[9], i: s32[], j: s32[]", "u = f32[3] dynamic-slice(x, i), dynamic_slice_sizes={3};"
                "r = f32[9] dynamic-update-slice(x, u, j)")
    ],
    "pad_twice": [
        Example("x: f32[5], v: f32[], u: f32[]", "p = f32[6] pad(x, v), padding=1_0; "
                "r = f32[8] pad(p, u), padding=2_0")
    ],
    "slice_of_elementwise": [
        Example("x: f32[5]", "n = f32[5] negate(x); r = f32[3] slice(n), slice={[1:4]}"),
    ],
    "elementwise_of_concatenates": [
        Example("x: f32[3], y: f32[1]", "a = f32[4] concatenate(x, y), dimensions={0}; "
                "b = f32[4] concatenate(y, x), dimensions={0}; r = f32[4] add(a, b)"),
        Example("x: f32[3], y: f32[1], v: f32[]", "a = f32[4] concatenate(x, y), dimensions={0}; "
                "b = f32[4] broadcast(v), dimensions={}; r = f32[4] multiply(a, b)"),
        Example("x: f32[4]", "s = f32[3] slice(x), slice={[1:4]}; t = f32[1] slice(x), slice={[0:1]}; "
                "a = f32[4] concatenate(s, t), dimensions={0}; r = f32[4] multiply(a, a)"),
    ],
    "elementwise_of_stack": [
        Example("x: f32[2,64], y: f32[2,64], z: f32[2,128]",
                "a = f32[2,128] concatenate(x, y), dimensions={1}; r = f32[2,128] add(a, z)"),
        Example("x: f32[1,8], y: f32[1,8], z: f32[2,8]",
                "a = f32[2,8] concatenate(x, y), dimensions={0}; r = f32[2,8] add(a, z)"),
        Example("x: f32[9,64], z: f32[9,64]",
                "b = f32[7,64] slice(x), slice={[2:9], [0:64]}; "
                "c = f32[2,64] slice(x), slice={[0:2], [0:64]}; "
                "a = f32[9,64] concatenate(b, c), dimensions={0}; r = f32[9,64] add(a, z)"),
        Example("x: f32[1,64], y: f32[1,64], p: f32[2,8], q: f32[8,64]",
                "a = f32[2,64] concatenate(x, y), dimensions={0}; "
                "d = f32[2,64] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}; "
                "r = f32[2,64] add(a, d)"),
    ],
    "concatenate_of_neighbours": [
        Example("x: f32[9]", "a = f32[3] slice(x), slice={[1:4]}; b = f32[2] slice(x), slice={[5:7]};"
                "r = f32[5] concatenate(a, b), dimensions={0}")
    ],
}  # fmt: skip

RULES = {r.name: r for m in (reshaping, broadcasting, slicing, joining, updates) for r in m.RULES}


def test_every_rule_has_examples() -> None:
    assert RULES.keys() == EXAMPLES.keys()


@pytest.mark.parametrize("name", RULES)
def test_both_sides_are_the_same(name: str) -> None:
    for example in EXAMPLES[name]:
        check(RULES[name], example)


@pytest.mark.parametrize("name", REFUSED)
def test_the_rule_is_not_applied_where_sides_differ(name: str) -> None:
    for example in REFUSED[name]:
        check_refused(RULES[name], example)
