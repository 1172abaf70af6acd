"""Every case of `docs/semantics.md` has a test."""

from __future__ import annotations

import re
from pathlib import Path

FILES = ("test_semantics", "test_semantics_of_arrays")
LINES = {
    "`x / 0`": "test_integer_division_by_zero_is_all_ones",
    "`x rem 0`": "test_integer_remainder_by_zero_is_the_dividend",
    "`MIN / -1`, `MIN rem -1`": "test_least_integer_divided_by_minus_one",
    "remainder": "test_remainder_has_the_sign_of_the_dividend",
    "shift by the width or more (the count is read as unsigned)": "test_shifts_by_the_width_and_more",
    "power, negative exponent": "test_integer_power_with_a_negative_exponent",
    "power, large exponent": "test_integer_power_counts_every_bit_of_the_exponent",
    "pred: not, add, multiply, maximum, minimum": "test_arithmetic_of_predicates",
    "negative of unsigned, absolute value of `MIN`": "test_negative_of_unsigned_and_absolute_of_least_wrap",
    "leading zeros of 0": "test_leading_zeros_of_zero_are_the_width",
    "float to signed": "test_float_to_signed",
    "float to unsigned": "test_float_to_unsigned",
    "integer to narrower integer": "test_integer_to_narrower_integer_wraps",
    "float to pred": "test_float_to_predicate",
    "complex to real, real to complex": "test_complex_to_real_and_back",
    "to a narrower float": "test_rounding_is_to_nearest_even_and_only_once",
    "to f8e4m3fn": "test_f8e4m3fn_at_its_end",
    "NaN to another float type": "test_nan_keeps_its_sign_and_the_upper_bits_of_its_payload",
    "signalling NaN of f16 in compiled code": "test_a_signalling_nan_of_f16_stays_where_it_is_only_moved",
    "to types without infinities and NaN (f4e2m1fn, f6e2m3fn, f6e3m2fn)": "test_types_without_infinities",
    "reduce-precision": "test_reduce_precision",
    "bitcast-convert": "test_bitcast_convert_to_other_widths",
    "iota of floats": "test_iota_of_floats_is_the_converted_integers",
    "maximum, minimum": "test_nan_wins_maxima_and_minima",
    "clamp": "test_clamp_keeps_nan",
    "total order": "test_total_order",
    "total order of NaN of one sign": "test_total_order_of_nan_is_that_of_the_payloads",
    "order of complex numbers": "test_ordering_of_complex_numbers_is_refused",
    "sign": "test_sign_of_nan_and_zero",
    "round-nearest-afz, round-nearest-even": "test_rounding_of_halves",
    "top-k": "test_top_k_counts_nan_as_largest_and_takes_the_lower_index_of_equals",
    "sort": "test_sort_is_stable_without_asking",
    "absolute value of an infinite part and NaN": "test_absolute_value_of_infinity_and_nan",
    "`atan2(0, 0)`": "test_atan2_of_zeros",
    "power of complex numbers": "test_complex_power_of_infinite_and_real_numbers",
    "`atan2` of complex numbers": "test_complex_atan2_at_its_cut_and_its_poles",
    "dynamic slices": "test_starts_of_slices_are_clamped_each_for_itself",
    "gather": "test_gather_clamps_the_start_and_then_adds_the_offset",
    "reduce, reduce-window": "test_reductions_that_are_not_plain_go_in_row_major_order",
    "scatter": "test_scatter_drops_a_window_partly_out_of_bounds_in_whole",
    "dynamic-update-slice with a part of the operand": (
        "test_an_update_with_a_shifted_part_of_itself_reads_the_old_values"
    ),
    "conditional, index out of range": "test_a_branch_out_of_range_is_the_last",
    "a loop that does not end": "test_a_loop_without_end_does_not_return",
    "select-and-scatter": "test_select_and_scatter_with_ge_keeps_the_first_of_equals",
    "scatter, select-and-scatter of narrow floats": "test_scatters_round_every_combination",
    "pad": "test_pad_spreads_first_and_crops_then",
    "windows": "test_windows_of_dilated_nothing_and_of_too_little",
    "reduce-window, padding and holes": "test_padding_of_windows_counts_as_the_initial_value",
    "convolution, padding and holes": "test_products_of_convolutions_with_padding_and_holes_are_left_out",
    "collective-permute": "test_a_device_that_nobody_sends_to_gets_zeros",
    "set-dimension-size": "test_reductions_ignore_what_lies_beyond_a_dynamic_size",
    "elementwise operations of static and dynamic sizes": (
        "test_operands_of_static_size_count_up_to_the_actual_size"
    ),
    "a dynamic size stated as static": "test_dynamic_sizes_are_not_stated_as_static",
    "dots that a loop adds to an array, and nothing else": "test_a_loop_sums_dots_in_any_order",
    "cholesky, triangular-solve": "test_the_other_triangle_is_never_read",
}
"""For every case of the page's tables the test that runs it."""


def test_every_line_of_the_page_has_a_test() -> None:
    page = (Path(__file__).parents[1] / "docs" / "semantics.md").read_text().split("\n## Text and protos")[0]
    cases = [line.split(" | ")[0].removeprefix("| ") for line in page.splitlines() if line.startswith("| ")]
    written = [(Path(__file__).parent / f"{name}.py").read_text() for name in FILES]
    tests = {name for text in written for name in re.findall(r"^def (test_\w+)", text, re.M)}
    assert set(cases) - {"case"} == LINES.keys()
    assert set(LINES.values()) <= tests
