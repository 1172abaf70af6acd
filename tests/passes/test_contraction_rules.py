"""Rules for reductions, dots, convolutions, gathers, scatters and sorts, and where they must not be "
"applied."""

from __future__ import annotations

import pytest

from hloom.passes.rules import contraction, convolution, indexing, reduction
from tests.rule_checks import FLOATS, INTEGERS, Example, check, check_refused

ZERO = "z = T[] constant(0); "

ZERO32 = "z = f32[] constant(0); "
PAIRS = (
    "a = f32[4,4,3] broadcast(x), dimensions={0,2}; b = f32[4,4,3] broadcast(x), dimensions={1,2}; "
    "d = f32[4,4,3] subtract(a, b); "
)
"""Differences of all pairs of points."""
EVERY_RANK = [("3", "0"), ("3,2", "0,1"), ("3,2,4", "0,1,2"), ("3,2,4,1", "0,1,2,3")]
"""Sizes of slices and the numbers of their dimensions, up to rank 4."""
NEXT = str.maketrans("012", "123")
ONE_CHOSEN = (
    "n = s32[3,5] iota(), iota_dimension=1; j = s32[3,5] broadcast(k), dimensions={0}; "
    "c = pred[3,5] compare(n, j), direction=EQ; v = f32[3,5] broadcast(u), dimensions={0}; "
)
ONE_OF_EACH = (
    "update_window_dims={}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, "
    "input_batching_dims={0}"
)
SQUARES = "s = f32[4,4,3] multiply(d, d); l = f32[4,4] reduce(s, z), dimensions={2}, to_apply=sum; "

EXAMPLES = {
    "reduce_of_antisymmetric": [
        Example("x: f32[4,3]", ZERO32 + PAIRS + "r = f32[4,3] reduce(d, z), dimensions={0}, to_apply=sum"),
        Example("x: f32[4,3]", ZERO32 + PAIRS + "n = f32[4,4,3] negate(d); "
                "r = f32[4,3] reduce(n, z), dimensions={0}, to_apply=sum"),
        Example("x: f32[4,3]", ZERO32 + PAIRS + SQUARES + "q = f32[4,4,3] broadcast(l), dimensions={0,1}; "
                "f = f32[4,4,3] divide(d, q); r = f32[4,3] reduce(f, z), dimensions={0}, to_apply=sum"),
        Example("x: f32[4,3]", ZERO32 + PAIRS + SQUARES + "i = s32[4,4] iota(), iota_dimension=0; "
                "j = s32[4,4] iota(), iota_dimension=1; e = pred[4,4] compare(i, j), direction=EQ; "
                "y = f32[4,4] broadcast(z), dimensions={}; m = f32[4,4] select(e, y, l); "
                "r = f32[4] reduce(m, z), dimensions={0}, to_apply=sum"),
    ],
    "reduce_of_size_one": [
        Example("x: T[3,1,4], v: T[]", "r = T[3,4] reduce(x, v), dimensions={1}, to_apply=sum",
                (*FLOATS, *INTEGERS)),
        Example("x: f32[3,1,4], v: f32[]", "r = f32[4] reduce(x, v), dimensions={0,1}, to_apply=largest"),
        Example("x: f32[3], v: f32[]", "r = f32[3] reduce(x, v), dimensions={}, to_apply=product"),
    ],
    "convert_of_reduce": [
        Example("x: T[3,4], v: T[]", "w = T[3] reduce(x, v), dimensions={1}, to_apply=sum; "
                "r = u8[3] convert(w)", ("s32", "u64", "u16")),
        Example("x: T[3,4], v: T[]", "w = T[4] reduce(x, v), dimensions={0}, to_apply=product; "
                "r = s8[4] convert(w)", ("u32", "s64", "s16")),
    ],
    "reduce_of_transpose": [
        Example("x: f32[3,4,5]", ZERO + "t = f32[5,3,4] transpose(x), dimensions={2,0,1};"
                "r = f32[3,4] reduce(t, z), dimensions={0}, to_apply=sum"),
        Example("x: f32[3,4,5]", ZERO + "t = f32[5,4,3] transpose(x), dimensions={2,1,0};"
                "r = f32[5,3] reduce(t, z), dimensions={1}, to_apply=sum"),
        Example("x: f32[3,1], v: f32[]", "t = f32[1,3] transpose(x), dimensions={1,0};"
                "r = f32[] reduce(t, v), dimensions={0,1}, to_apply=second"),
    ],
    "reduce_of_reshape": [
        Example("x: f32[3,8]", ZERO + "a = f32[3,2,4] reshape(x); r = f32[3] reduce(a, z), dimensions={1,"
                "2}, to_apply=sum"),
        Example("x: f32[3,8]", ZERO + "a = f32[3,1,8] reshape(x); r = f32[3,1] reduce(a, z), "
                "dimensions={2}, to_apply=sum"),
        Example("x: s32[6,8]", ZERO + "a = s32[2,3,8] reshape(x); r = s32[2,3] reduce(a, z), "
                "dimensions={2}, to_apply=sum", ("s32",)),
    ],
    "reduce_of_broadcast": [
        Example("x: T[3], v: T[]", f"b = T[3,4] broadcast(x), dimensions={{0}}; "
                f"r = T[3] reduce(b, v), dimensions={{1}}, to_apply={f}",
                (*FLOATS, *INTEGERS)) for f in ("largest", "least")
    ] + [Example("x: f32[3], v: f32[]", "b = f32[3,4] broadcast(x), dimensions={0}; "
                 "r = f32[] reduce(b, v), dimensions={0,1}, to_apply=largest")],
    "sum_of_broadcast": [
        Example("x: T[3]", ZERO + "b = T[3,5] broadcast(x), dimensions={0}; "
                "r = T[3] reduce(b, z), dimensions={1}, to_apply=sum", ("f32", "f64", "s8", "u16")),
        Example("x: T[3]", ZERO + "b = T[3,5] broadcast(x), dimensions={0}; "
                "r = T[] reduce(b, z), dimensions={0,1}, to_apply=sum", ("f32", "s32")),
    ],
    "sum_of_one_element_each": [
        Example(f"k: {k}[3], u: T[3]", ZERO + f"n = {k}[3,5] iota(), iota_dimension=1; "
                f"j = {k}[3,5] broadcast(k), dimensions={{0}}; c = pred[3,5] compare(n, j), direction=EQ; "
                "v = T[3,5] broadcast(u), dimensions={0}; o = T[3,5] broadcast(z), dimensions={}; "
                "s = T[3,5] select(c, v, o); m = T[3,5] negate(s); "
                f"r = T[3] reduce({terms}, z), dimensions={{1}}, to_apply=sum",
                ("f32", "bf16", "s32")) for k in ("s32", "u8", "s8") for terms in ("s", "m")
    ] + [
        Example("k: s32[3,4], u: f32[4]", ZERO32 + "n = s32[3,5,4] iota(), iota_dimension=1; "
                "j = s32[3,5,4] broadcast(k), dimensions={0,2}; c = pred[3,5,4] compare(j, n), direction=EQ; "
                "v = f32[3,5,4] broadcast(u), dimensions={2}; o = f32[3,5,4] broadcast(z), dimensions={}; "
                "s = f32[3,5,4] select(c, v, o); r = f32[3,4] reduce(s, z), dimensions={1}, to_apply=sum"),
    ],
    "reduce_twice": [
        Example("x: T[3,4,5]", ZERO + "a = T[3,5] reduce(x, z), dimensions={1}, to_apply=sum; "
                "r = T[5] reduce(a, z), dimensions={0}, to_apply=sum",
                ("f32", "f64", "s8")),
        Example("x: bf16[3,4,5], v: bf16[]", "m = bf16[] constant(-inf); a = bf16[3,5] reduce(x, m), "
                "dimensions={1}, to_apply=largest;"
                "r = bf16[5] reduce(a, v), dimensions={0}, to_apply=largest", ("bf16",)),
    ],
    "reduce_of_stack": [
        Example("x: T[3,1,4], y: T[3,1,4], w: T[3,1,4]", ZERO +
                "c = T[3,3,4] concatenate(x, y, w), dimensions={1}; "
                "r = T[3,4] reduce(c, z), dimensions={1}, to_apply=sum", ("f32", "f64", "s8")),
        Example("x: bf16[1,4], y: bf16[1,4], v: bf16[]", "c = bf16[2,4] concatenate(x, y), dimensions={0}; "
                "r = bf16[4] reduce(c, v), dimensions={0}, to_apply=largest", ("bf16",)),
    ],
    "window_of_one": [
        Example("x: T[3,4], v: T[]", "r = T[3,4] reduce-window(x, v), window={size=1x1}, to_apply=sum",
                ("f32", "s8"))
    ],
    "window_of_everything": [
        Example("x: T[3,4]", ZERO + "r = T[3,1] reduce-window(x, z), window={size=1x4 stride=1x2}, "
                "to_apply=sum", ("f32", "s8"))
    ],
    # dots
    "dot_of_transpose": [
        Example("x: T[5,3], y: T[5,4]", "t = T[3,5] transpose(x), dimensions={1,0};"
                "r = T[3,4] dot(t, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}", ("f32", "s8",
                "c64")),
        Example("x: f32[3,2,5], y: f32[4,1,2,5]", "t = f32[2,1,4,5] transpose(y), dimensions={2,1,0,3};"
                "r = f32[2,3,1,4] dot(x, t), lhs_batch_dims={1}, rhs_batch_dims={0}, "
                "lhs_contracting_dims={2}, rhs_contracting_dims={3}"),
        Example("x: f32[3,5], y: f32[1,4,5]", "t = f32[1,5,4] transpose(y), dimensions={0,2,1};"
                "s = f32[5,4] reshape(t);"
                "r = f32[3,4] dot(x, s), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        Example("x: f32[4,1,3,5], y: f32[5,6,3]", "t = f32[1,5,3,4] transpose(x), dimensions={1,3,2,0};"
                "s = f32[5,1,3,4] reshape(t);"
                "r = f32[5,3,1,4,6] dot(s, y), lhs_batch_dims={0,2}, rhs_batch_dims={0,2}"),
    ],
    "transpose_of_dot": [
        Example("x: f32[3,5], y: f32[5,4]", "d = f32[3,4] dot(x, y), lhs_contracting_dims={1}, "
                "rhs_contracting_dims={0};"
                "r = f32[4,3] transpose(d), dimensions={1,0}"),
        Example("x: f32[2,6,3,5], y: f32[2,6,5,4]", "d = f32[2,6,3,4] dot(x, y), lhs_batch_dims={0,1}, "
                "rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={2};"
                "r = f32[6,2,4,3] transpose(d), dimensions={1,0,3,2}"),
        Example("x: f32[2,6,3,5], y: f32[2,6,5,4]", "d = f32[2,6,3,4] dot(x, y), lhs_batch_dims={0,1}, "
                "rhs_batch_dims={0,1}, lhs_contracting_dims={3}, rhs_contracting_dims={2};"
                "r = f32[6,2,3,4] transpose(d), dimensions={1,0,2,3}"),
    ],
    "transpose_of_rows": [
        Example("x: f32[6,2,5], y: f32[2,4,6]", "d = f32[2,5,4] dot(x, y), lhs_batch_dims={1}, "
                "rhs_batch_dims={0}, lhs_contracting_dims={0}, rhs_contracting_dims={2};"
                "r = f32[4,2,5] transpose(d), dimensions={2,0,1}"),
        Example("x: f32[7,2,5], y: f32[4,2,3,5]", "d = f32[2,7,4,3] dot(x, y), lhs_batch_dims={1}, "
                "rhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_contracting_dims={3};"
                "r = f32[2,3,4,7] transpose(d), dimensions={0,3,2,1}"),
    ],
    "dot_of_repeated_batch": [
        Example("x: f32[2,3,5], y: f32[5,4]", "b = f32[2,5,4] broadcast(y), dimensions={1,2};"
                "r = f32[2,3,4] dot(x, b), lhs_batch_dims={0}, rhs_batch_dims={0}, "
                "lhs_contracting_dims={2}, rhs_contracting_dims={1}"),
        Example("x: f32[2,3,5], y: f32[5,4]", "b = f32[5,2,4] broadcast(y), dimensions={0,2};"
                "r = f32[2,3,4] dot(x, b), lhs_batch_dims={0}, rhs_batch_dims={1}, "
                "lhs_contracting_dims={2}, rhs_contracting_dims={0}"),
    ],
    "dot_of_converts": [
        Example("x: bf16[3,5], y: bf16[5,4]", "a = f32[3,5] convert(x); b = f32[5,4] convert(y);"
                "r = f32[3,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        Example("x: s8[3,5], y: u8[5,4]", "a = s32[3,5] convert(x); b = s32[5,4] convert(y);"
                "r = s32[3,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ],
    "dot_as_product": [
        Example("x: T[3], y: T[4]", "r = T[3,4] dot(x, y)", (*FLOATS, *INTEGERS)),
        Example("x: bf16[1,3,2], y: f16[4,2,1]", "r = f32[2,3,4] dot(x, y), lhs_batch_dims={2}, "
                "rhs_batch_dims={1}, lhs_contracting_dims={0}, rhs_contracting_dims={2}"),
    ],
    "dot_of_nothing": [
        Example("x: T[3,0], y: T[0,4]", "r = T[3,4] dot(x, y), lhs_contracting_dims={1}, "
                "rhs_contracting_dims={0}", ("f32", "s8"))
    ],
    "dot_of_vector": [
        Example("x: f32[5,3], y: f32[5]", "r = f32[3] dot(x, y), lhs_contracting_dims={0}, "
                "rhs_contracting_dims={0}")
    ],
    "dot_of_reshape": [
        Example("x: f32[6,5], y: f32[5,4]", "a = f32[2,3,5] reshape(x); r = f32[2,3,4] dot(a, y), "
                "lhs_contracting_dims={2}, rhs_contracting_dims={0}")
    ],
    "dot_of_short_vectors": [
        Example("x: T[40,3,5], y: T[40,5]", "r = T[40,3] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, "
                "lhs_contracting_dims={2}, rhs_contracting_dims={1}", ("f32", "f64")),
        Example("x: f32[5,40], y: f32[3,40,2,5]", "r = f32[40,3,2] dot(x, y), lhs_batch_dims={1}, "
                "rhs_batch_dims={1}, lhs_contracting_dims={0}, rhs_contracting_dims={3}"),
        Example("x: f32[3,40,5], y: f32[5,3,40]", "r = f32[40] dot(x, y), lhs_batch_dims={1}, "
                "rhs_batch_dims={2}, lhs_contracting_dims={0,2}, rhs_contracting_dims={1,0}"),
        Example("x: f32[2,8,4,6], y: f32[6,8,4]", "r = f32[4,8,2] dot(x, y), lhs_batch_dims={2,1}, "
                "rhs_batch_dims={2,1}, lhs_contracting_dims={3}, rhs_contracting_dims={0}"),
    ],
    "dot_of_several_sums": [
        Example("x: T[2,3,7,8], y: T[7,2,3,4]", "r = T[2,8,4] dot(x, y), lhs_batch_dims={0}, "
                "rhs_batch_dims={1}, lhs_contracting_dims={1,2}, rhs_contracting_dims={2,0}",
                ("f32", "s32", "bf16"))
    ],
    "dot_in_canonical_order": [
        Example("x: f32[5,3,2], y: f32[4,5,2]", "r = f32[2,3,4] dot(x, y), lhs_batch_dims={2}, "
                "rhs_batch_dims={2}, lhs_contracting_dims={0}, rhs_contracting_dims={1}"),
        Example("x: T[5,3,2], y: T[3,2,4]", "r = T[5,4] dot(x, y), lhs_contracting_dims={2,1}, "
                "rhs_contracting_dims={1,0}", ("f32", "s32", "bf16")),
        Example("x: f32[2,5,3], y: f32[6,3,5,2]", "r = f32[2,6] dot(x, y), lhs_batch_dims={0}, "
                "rhs_batch_dims={3}, lhs_contracting_dims={1,2}, rhs_contracting_dims={2,1}"),
    ],
    # convolutions
    "window_in_plain_words": [
        Example("x: f32[2,4,1,3], k: f32[1,2,3,5]", "r = f32[2,4,1,5] convolution(x, k), "
                "window={size=1x2 stride=1x3 pad=0_0x1_0 lhs_dilate=1x3 rhs_dilate=2x1 rhs_reversal=1x0}, "
                "dim_labels=b01f_01io->b01f")
    ],
    "convolution_of_transpose": [
        Example("x: f32[3,2,6], k: f32[3,3,4]", "t = f32[2,6,3] transpose(x), dimensions={1,2,0};"
                "r = f32[2,4,4] convolution(t, k), window={size=3}, dim_labels=b0f_0io->b0f"),
        Example("x: f32[2,6,3], k: f32[4,3,3]", "t = f32[3,3,4] transpose(k), dimensions={1,2,0};"
                "r = f32[2,4,4] convolution(x, t), window={size=3}, dim_labels=b0f_0io->b0f"),
    ],
    "transpose_of_convolution": [
        Example("x: f32[2,6,3], k: f32[3,3,4]", "c = f32[2,4,4] convolution(x, k), window={size=3}, "
                "dim_labels=b0f_0io->b0f;"
                "r = f32[4,2,4] transpose(c), dimensions={2,0,1}")
    ],
    "convolution_of_reversed_kernel": [
        Example("x: f32[2,6,3], k: f32[3,3,4]", "t = f32[3,3,4] reverse(k), dimensions={0};"
                "r = f32[2,4,4] convolution(x, t), window={size=3 rhs_reversal=1}, dim_labels=b0f_0io->b0f")
    ],
    "convolution_of_pad": [
        Example("x: s32[2,4,3], k: s32[3,3,4]", ZERO + "p = s32[2,9,3] pad(x, z), padding=0_0_0x1_1_1x0_0_0;"
                "r = s32[2,9,4] convolution(p, k), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f",
                ("s32",)),
        Example("x: f32[2,4,3]", ZERO + "p = f32[2,6,3] pad(x, z), padding=0_0x1_1x0_0; "
                "c = f32[3] constant({1, -2, 3}); k = f32[3,3,4] broadcast(c), dimensions={0};"
                "r = f32[2,4,4] convolution(p, k), window={size=3}, dim_labels=b0f_0io->b0f"),
    ],
    "spatial_dimensions_of_one": [
        Example("x: f32[2,1,6,3], k: f32[1,3,3,4]", "r = f32[2,4,1,4] convolution(x, k), window={size=1x3}, "
                "dim_labels=b01f_01io->b10f")
    ],
    "convolution_of_nothing": [
        Example("x: f32[2,6,0], k: f32[3,0,4]", "r = f32[2,4,4] convolution(x, k), window={size=3}, "
                "dim_labels=b0f_0io->b0f"),
    ],
    "convolution_of_spaced_elements": [
        Example("x: f32[2,7,3], k: f32[1,3,4]", "r = f32[2,3,4] convolution(x, k), window={size=1 stride=2 "
                "pad=-1_0}, dim_labels=b0f_0io->b0f"),
        Example("x: f32[2,7,6,3], k: f32[3,1,3,4]", "r = f32[2,1,3,4] convolution(x, k), window={size=3x1 "
                "stride=1x2 pad=0_-2x0_0 rhs_dilate=2x1}, dim_labels=b01f_01io->b01f"),
    ],
    "convolution_as_dot": [
        Example("x: f32[2,6,3], k: f32[1,3,4]", "r = f32[2,6,4] convolution(x, k), window={size=1}, "
                "dim_labels=b0f_0io->b0f"),
        Example("x: f32[3,2,6,5], k: f32[4,3,6,1]", "r = f32[4,1,5,2] convolution(x, k), window={size=6x1}, "
                "dim_labels=fb01_oi01->f01b"),
    ],
    # gather, scatter, sort
    "gather_of_one_slice": [
        Example("x: T[6,7], i: s32[2]", "r = T[3,2] gather(x, i), offset_dims={0,1}, "
                "collapsed_slice_dims={}, start_index_map={1,0}, index_vector_dim=0, slice_sizes={3,2}",
                (*FLOATS, "s8", "c64")),
        Example("x: f32[6,7], i: u8[1,1]", "r = f32[1,7] gather(x, i), offset_dims={1}, "
                "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,7}"),
        Example("x: f32[6,7]", "i = s32[0] constant({}); r = f32[3,7] gather(x, i), offset_dims={0,1}, "
                "collapsed_slice_dims={}, start_index_map={}, index_vector_dim=0, slice_sizes={3,7}"),
        Example("x: f32[1,7], i: s32[1,1]", "r = f32[1,2] gather(x, i), offset_dims={1}, "
                "collapsed_slice_dims={}, start_index_map={1}, operand_batching_dims={0}, "
                "start_indices_batching_dims={0}, index_vector_dim=1, slice_sizes={1,2}"),
        *(
            Example(f"x: f32[{sizes.replace('3', '6')}], i: s32[{len(numbers[::2])}]",
                    f"r = f32[{sizes}] gather(x, i), offset_dims={{{numbers}}}, collapsed_slice_dims={{}}, "
                    f"start_index_map={{{numbers[::-1]}}}, index_vector_dim=0, slice_sizes={{{sizes}}}")
            for sizes, numbers in EVERY_RANK
        ),
    ],
    "gather_of_empty_slices": [
        Example("x: f32[6,2], i: s32[5,1]", "r = f32[5,2] gather(x, i), offset_dims={1}, "
                "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={0,2}"),
        *(
            Example(f"x: f32[6,{sizes}], i: s32[1]",
                    f"r = f32[0,{sizes}] gather(x, i), offset_dims={{0,{numbers.translate(NEXT)}}}, "
                    "collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=0, "
                    f"slice_sizes={{0,{sizes}}}")
            for sizes, numbers in EVERY_RANK[:3]
        ),
    ],
    "gather_of_everything": [
        Example("x: f32[6,1], i: s32[5,2]", "r = f32[6,5] gather(x, i), offset_dims={0}, "
                "collapsed_slice_dims={1}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={6,1}"),
        *(
            Example(f"x: f32[{sizes}], i: s32[{len(numbers[::2])}]",
                    f"r = f32[{sizes}] gather(x, i), offset_dims={{{numbers}}}, collapsed_slice_dims={{}}, "
                    f"start_index_map={{{numbers}}}, index_vector_dim=0, slice_sizes={{{sizes}}}")
            for sizes, numbers in EVERY_RANK
        ),
    ],
    "scatter_of_nothing": [
        Example("x: f32[6], i: s32[0,1], u: f32[0]", "r = f32[6] scatter(x, i, u), update_window_dims={}, "
                "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
                "to_apply=sum"),
        *(
            Example(f"x: f32[6,{sizes}], i: s32[0,1], u: f32[0,{sizes}]",
                    f"r = f32[6,{sizes}] scatter(x, i, u), update_window_dims={{{numbers.translate(NEXT)}}}, "
                    "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
                    "to_apply=sum")
            for sizes, numbers in EVERY_RANK[:3]
        ),
    ],
    "scatter_of_one_window": [
        Example("x: T[6,3], i: K[1], u: T[3]".replace("K", k), f"r = T[6,3] scatter(x, i, u), "
                f"update_window_dims={{0}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, "
                f"index_vector_dim=0, to_apply={f}",
                ("f32", "bf16", "s32")) for k in ("s32", "u8", "s8") for f in ("sum", "second")
    ] + [
        Example("x: f32[9], i: s32[1], u: f32[3]", "r = f32[9] scatter(x, i, u), update_window_dims={0}, "
                "inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=0, "
                "to_apply=sum"),
        Example("x: f32[9], i: s32[1], u: f32[3]", "r = f32[9] scatter(x, i, u), update_window_dims={0}, "
                "inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=0, "
                "to_apply=thrice"),
        Example("x: f32[4,3], i: s32[1,2], u: f32[1]", "r = f32[4,3] scatter(x, i, u), "
                "update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={1,0}, "
                "index_vector_dim=1, to_apply=second"),
        Example("x: f32[9], u: f32[3]", "i = s32[1] constant({5}); r = f32[9] scatter(x, i, u), "
                "update_window_dims={0}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, "
                "index_vector_dim=0, to_apply=sum"),
        Example("x: f32[0,3], i: s32[1], u: f32[3]", "r = f32[0,3] scatter(x, i, u), "
                "update_window_dims={0}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
                "index_vector_dim=0, to_apply=sum"),
        Example("x: f32[5,3], u: f32[4,3]", "i = s32[0] constant({}); r = f32[5,3] scatter(x, i, u), "
                "update_window_dims={0,1}, inserted_window_dims={}, scatter_dims_to_operand_dims={}, "
                "index_vector_dim=0, to_apply=sum"),
        Example("x: f32[300], i: u8[1], u: f32[]", "r = f32[300] scatter(x, i, u), update_window_dims={}, "
                "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=0, "
                "to_apply=second"),
    ],
    "scatter_of_one_element_each": [
        Example("c: T[], i: K[3,1], u: T[3]".replace("K", k), "x = T[3,5] broadcast(c), dimensions={}; "
                f"r = T[3,5] scatter(x, i, u), {ONE_OF_EACH}, scatter_indices_batching_dims={{0}}, "
                f"index_vector_dim=1, to_apply={f}",
                ("f32", "bf16", "s32")) for k in ("s32", "u8", "s8") for f in ("sum", "second")
    ] + [
        Example("c: f32[], i: s32[3,1,1], u: f32[3,1]", "x = f32[3,5] broadcast(c), dimensions={}; "
                f"r = f32[3,5] scatter(x, i, u), {ONE_OF_EACH}, scatter_indices_batching_dims={{0}}, "
                "index_vector_dim=2, to_apply=thrice"),
        Example("c: f32[], i: s32[4,3], u: f32[4,3]", "x = f32[3,5,4] broadcast(c), dimensions={}; "
                "r = f32[3,5,4] scatter(x, i, u), update_window_dims={}, inserted_window_dims={1}, "
                "scatter_dims_to_operand_dims={1}, input_batching_dims={0,2}, "
                "scatter_indices_batching_dims={1,0}, index_vector_dim=2, to_apply=sum"),
    ],
    "sort_of_one": [
        Example("x: f32[4,1], y: f32[4,1]", "r = (f32[4,1], f32[4,1]) sort(x, y), dimensions={1}, "
                "to_apply=order"),
    ],
    "sort_of_unused": [
        Example("x: f32[9], y: f32[9]", "s = (f32[9], f32[9]) sort(x, y), dimensions={0}, to_apply=order; "
                "r = f32[9] get-tuple-element(s), index=0"),
    ],
}  # fmt: skip

REFUSED = {
    "convert_of_reduce": [
        # the high bits decide
        Example("x: T[3,4], v: T[]", "w = T[3] reduce(x, v), dimensions={1}, to_apply=largest; "
                "r = u8[3] convert(w)", ("s32",)),
        # the wide sum is needed
        Example("x: T[3,4], v: T[]", "w = T[3] reduce(x, v), dimensions={1}, to_apply=sum; "
                "n = u8[3] convert(w); r = (T[3], u8[3]) tuple(w, n)", ("s32",)),
    ],
    "sum_of_one_element_each": [
        # the other terms are not zeros
        Example("k: s32[3], u: f32[3]", ZERO32 + ONE_CHOSEN + "w = f32[] constant(1); "
                "o = f32[3,5] broadcast(w), dimensions={}; s = f32[3,5] select(c, v, o); "
                "r = f32[3] reduce(s, z), dimensions={1}, to_apply=sum"),
        # along the rows
        Example("k: s32[3], u: f32[3]", ZERO32 + ONE_CHOSEN + "o = f32[3,5] broadcast(z), dimensions={}; "
                "s = f32[3,5] select(c, v, o); r = f32[5] reduce(s, z), dimensions={0}, to_apply=sum"),
        # numbers of elements beyond the type
        Example("k: s8[3], u: f32[3]", ZERO32 + ONE_CHOSEN.replace("s32", "s8").replace("5", "200")
                + "o = f32[3,200] broadcast(z), dimensions={}; s = f32[3,200] select(c, v, o); "
                "r = f32[3] reduce(s, z), dimensions={1}, to_apply=sum"),
    ],
    "scatter_of_one_element_each": [
        # two elements of each row
        Example("c: f32[], i: s32[3,2,1], u: f32[3,2]", "x = f32[3,5] broadcast(c), dimensions={}; "
                f"r = f32[3,5] scatter(x, i, u), {ONE_OF_EACH}, scatter_indices_batching_dims={{0}}, "
                "index_vector_dim=2, to_apply=sum"),
        # windows
        Example("c: f32[], i: s32[3,1], u: f32[3,1]", "x = f32[3,5] broadcast(c), dimensions={}; "
                "r = f32[3,5] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={}, "
                "scatter_dims_to_operand_dims={1}, input_batching_dims={0}, "
                "scatter_indices_batching_dims={0}, index_vector_dim=1, to_apply=sum"),
        # indices that do not count the elements of a row
        Example("c: f32[], i: s8[3,1], u: f32[3]", "x = f32[3,200] broadcast(c), dimensions={}; "
                f"r = f32[3,200] scatter(x, i, u), {ONE_OF_EACH}, scatter_indices_batching_dims={{0}}, "
                "index_vector_dim=1, to_apply=sum"),
    ],
    "reduce_of_antisymmetric": [
        # the exchange does not turn 1 into -1
        Example("x: f32[4,3]", ZERO32 + PAIRS + "o = f32[] constant(1); c = f32[4,4,3] broadcast(o), "
                "dimensions={}; f = f32[4,4,3] add(d, c); "
                "r = f32[4,3] reduce(f, z), dimensions={0}, to_apply=sum"),
        # 1 / (a - b) is +inf where a = b, in both orders
        Example("x: f32[4,3]", ZERO32 + PAIRS + "o = f32[] constant(1); c = f32[4,4,3] broadcast(o), "
                "dimensions={}; f = f32[4,4,3] divide(c, d); "
                "r = f32[4,3] reduce(f, z), dimensions={0}, to_apply=sum"),
        Example("x: f32[4,3], m: f32[4]", ZERO32 + PAIRS + "w = f32[4,4,3] broadcast(m), dimensions={0}; "
                "f = f32[4,4,3] multiply(w, d); r = f32[4,3] reduce(f, z), dimensions={0}, to_apply=sum"),
        Example("x: f32[4,3]", "z = f32[] constant(-0); " + PAIRS +
                "r = f32[4,3] reduce(d, z), dimensions={0}, to_apply=sum"),
        Example("x: f32[4,4]", ZERO32 + "r = f32[4,4] reduce(x, z), dimensions={}, to_apply=sum"),
    ],
    "reduce_of_broadcast": [
        Example("x: f32[3], v: f32[]", "b = f32[3,4] broadcast(x), dimensions={0}; "
                "r = f32[4] reduce(b, v), dimensions={0}, to_apply=largest")
    ],
    "sum_of_broadcast": [
        Example("x: T[3]", ZERO + "b = T[3,5] broadcast(x), dimensions={0}; "
                "r = T[3] reduce(b, z), dimensions={1}, to_apply=sum", ("bf16", "f16")),
        Example("x: f32[3], v: f32[]", "b = f32[3,5] broadcast(x), dimensions={0}; "
                "r = f32[3] reduce(b, v), dimensions={1}, to_apply=sum"),
    ],
    "reduce_twice": [
        Example("x: T[3,4]", ZERO + "a = T[4] reduce(x, z), dimensions={0}, to_apply=sum; "
                "r = T[] reduce(a, z), dimensions={0}, to_apply=sum", ("bf16", "f16")),
        Example("x: f32[3,4]", "o = f32[] constant(1); a = f32[4] reduce(x, o), dimensions={0}, "
                "to_apply=sum; r = f32[] reduce(a, o), dimensions={0}, to_apply=sum"),
    ],
    "reduce_of_stack": [
        Example("x: T[1,4], y: T[1,4]", ZERO + "c = T[2,4] concatenate(x, y), dimensions={0}; "
                "r = T[4] reduce(c, z), dimensions={0}, to_apply=sum", ("bf16", "f16")),
        Example("x: f32[1,4], y: f32[2,4]", ZERO + "c = f32[3,4] concatenate(x, y), dimensions={0}; "
                "r = f32[4] reduce(c, z), dimensions={0}, to_apply=sum"),
        Example("x: f32[1,4], y: f32[1,4]", ZERO + "c = f32[2,4] concatenate(x, y), dimensions={0}; "
                "r = f32[2] reduce(c, z), dimensions={1}, to_apply=sum"),
        Example("x: f32[1,4], y: f32[1,4]", ZERO + "c = f32[2,4] concatenate(x, y), dimensions={0}; "
                "a = f32[4] reduce(c, z), dimensions={0}, to_apply=sum; b = f32[2,4] sine(c); "
                "r = (f32[4], f32[2,4]) tuple(a, b)"),
    ],
    "reduce_of_reshape": [
        Example("x: f32[6]", ZERO + "a = f32[2,3] reshape(x); r = f32[2] reduce(a, z), dimensions={1}, "
                "to_apply=sum")
    ],
    "dot_of_transpose": [
        Example("x: f32[5,3,2], y: f32[5,4]", "t = f32[2,3,5] transpose(x), dimensions={2,1,0}; "
                "r = f32[2,3,4] dot(t, y), lhs_contracting_dims={2}, rhs_contracting_dims={0}"),
        Example("x: f32[6,5], y: f32[5,4]", "t = f32[5,6] transpose(x), dimensions={1,0}; "
                "s = f32[6,5] reshape(t); "
                "r = f32[6,4] dot(s, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        Example("x: f32[6,5], y: f32[4]", "t = f32[5,6] transpose(x), dimensions={1,0}; "
                "s = f32[30] reshape(t); r = f32[30,4] dot(s, y)"),
        Example("x: f32[3,1,5], y: f32[1,4]", "t = f32[1,3,5] transpose(x), dimensions={1,0,2}; "
                "s = f32[3,5,1] reshape(t); "
                "r = f32[3,5,4] dot(s, y), lhs_contracting_dims={2}, rhs_contracting_dims={0}"),
    ],
    "transpose_of_dot": [
        Example("x: f32[2,3,5], y: f32[2,5,4]", "d = f32[2,3,4] dot(x, y), lhs_batch_dims={0}, "
                "rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}; "
                "r = f32[3,2,4] transpose(d), dimensions={1,0,2}")
    ],
    "transpose_of_rows": [
        Example("x: f32[2,3,5], y: f32[2,5,4]", "d = f32[2,3,4] dot(x, y), lhs_batch_dims={0}, "
                "rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}; "
                "r = f32[3,2,4] transpose(d), dimensions={1,0,2}"),
        Example("x: f32[2,3,5], y: f32[2,5]", "d = f32[2,3] dot(x, y), lhs_batch_dims={0}, "
                "rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}; "
                "r = f32[2,3] transpose(d), dimensions={0,1}"),
    ],
    "dot_of_short_vectors": [
        Example("x: f32[40,3,5], y: f32[40,5,2]", "r = f32[40,3,2] dot(x, y), lhs_batch_dims={0}, "
                "rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"),
        Example("x: f32[3,5], y: f32[5]", "r = f32[3] dot(x, y), lhs_contracting_dims={1}, "
                "rhs_contracting_dims={0}"),
        Example("x: bf16[40,3,5], y: bf16[40,5]", "r = bf16[40,3] dot(x, y), lhs_batch_dims={0}, "
                "rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"),
        Example("x: f32[40,3,50], y: f32[40,50]", "r = f32[40,3] dot(x, y), lhs_batch_dims={0}, "
                "rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"),
    ],
    "dot_of_several_sums": [
        Example("x: f32[61,16,16], y: f32[16,16,16]", "r = f32[61,16] dot(x, y), "
                "lhs_contracting_dims={1,2}, rhs_contracting_dims={1,0}"),
        Example("x: f32[9,2,3], y: f32[3,2,9]", "r = f32[9,9] dot(x, y), lhs_contracting_dims={1,2}, "
                "rhs_contracting_dims={1,0}"),
        Example("x: f32[9,3], y: f32[3,2]", "r = f32[9,2] dot(x, y), lhs_contracting_dims={1}, "
                "rhs_contracting_dims={0}"),
    ],
    "dot_of_converts": [
        Example("x: f32[3,5], y: f32[5,4]", "a = bf16[3,5] convert(x); "
                "r = f32[3,4] dot(a, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        Example("x: s8[3,5], y: s8[5,4]", "a = f32[3,5] convert(x); b = f32[5,4] convert(y); "
                "r = f32[3,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ],
    "dot_as_product": [Example("x: c64[3], y: c64[4]", "r = c64[3,4] dot(x, y)")],
    "convolution_of_pad": [
        Example("x: s32[2,4,3], k: s32[3,3,4], v: s32[]", "p = s32[2,6,3] pad(x, v), padding=0_0x1_1x0_0; "
                "r = s32[2,4,4] convolution(p, k), window={size=3}, dim_labels=b0f_0io->b0f"),
        Example("x: f32[2,4,3], k: f32[3,3,4]", "z = f32[] constant(0); p = f32[2,6,3] pad(x, z), "
                "padding=0_0x1_1x0_0; "
                "r = f32[2,4,4] convolution(p, k), window={size=3}, dim_labels=b0f_0io->b0f"),
        Example("x: f32[2,4,3]", "z = f32[] constant(0); p = f32[2,6,3] pad(x, z), padding=0_0x1_1x0_0; "
                "c = f32[] constant(inf); k = f32[3,3,4] broadcast(c), dimensions={}; "
                "r = f32[2,4,4] convolution(p, k), window={size=3}, dim_labels=b0f_0io->b0f"),
    ],
    "scatter_of_one_window": [
        Example("x: f32[9], i: s32[2,1], u: f32[2]", "r = f32[9] scatter(x, i, u), update_window_dims={}, "
                "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
                "to_apply=sum"),
    ],
    "gather_of_one_slice": [
        Example("x: f32[6], i: s32[2,1]", "r = f32[2] gather(x, i), offset_dims={}, "
                "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}")
    ],
    "sort_of_unused": [Example("x: f32[9], y: f32[9]", "r = (f32[9], f32[9]) sort(x, y), dimensions={0}, "
                               "to_apply=order")],
}  # fmt: skip

FAMILIES = (
    reduction.RULES, contraction.FOLDS, contraction.REPAIRS, convolution.RULES, convolution.DOTS,
    indexing.GATHERS, indexing.SCATTERS, indexing.SORTS,
)  # fmt: skip
RULES = {rule.name: rule for family in FAMILIES for rule in family}


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
