"""Known differences from XLA:CPU, as data: the operations concerned, and the reason for hloom's value.

A known difference explains some elements of some results, and limits XLA's values there.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch

import numpy as np

from hloom.error_bounds.floating import wide
from hloom.fuzzing import explanations
from hloom.fuzzing.explanations import Difference
from hloom.fuzzing.generators.case import Case
from hloom.fuzzing.generators.draw import Array
from hloom.fuzzing.generators.opcodes import choices
from hloom.ir.xla_version import V0_12, XlaVersion
from hloom.records import dataclass


@dataclass(frozen=True)
class KnownDifference:
    """A known reason for which values of hloom and XLA differ.

    Attributes:
        name: a short name.
        operations: patterns (`fnmatch`) of the operations of cases that may show it.
        reason: the cause, and the definition that hloom follows.
        explains: selects the elements to which the reason applies.
        limit: selects the elements in which XLA's value is one that the reason explains; None if `explains`
            tests XLA's values itself.
        until: the first version of XLA without the difference; None if all versions have it.
        defect: whether it is a defect of XLA, which contradicts its documentation or its own results, and is
            worth a report; otherwise it is a choice.
    """

    name: str
    operations: tuple[str, ...]
    reason: str
    explains: Callable[[Difference], Array]
    limit: Callable[[Difference], Array] | None = None
    until: XlaVersion | None = None
    defect: bool = False

    def is_of(self, version: XlaVersion) -> bool:
        """Return whether a version of XLA has the difference."""
        return self.until is None or version < self.until

    def of(self, difference: Difference) -> Array:
        """Return a mask of the elements that it explains."""
        explained = self.explains(difference)
        return explained if self.limit is None else explained & self.limit(difference)

    def about(self, case: Case) -> bool:
        """Return whether the operation of a case may show it."""
        return any(fnmatch(case.operation, pattern) for pattern in self.operations)


DIFFERENCES: tuple[KnownDifference, ...] = (
    KnownDifference(
        "subnormals",
        ("*",),
        "XLA:CPU runs with flush-to-zero, of arguments and results; hloom keeps subnormal numbers.",
        explanations.flushes,
    ),
    KnownDifference(
        "overflow of complex products",
        ("multiply c*",),
        "Both products of a part overflow: hloom gives inf - inf, NaN, as XLA does for constants; XLA:CPU "
        "fuses one of them with the addition and gives infinity.",
        explanations.overflowing_products,
        explanations.infinity_for_no_number,
    ),
    KnownDifference(
        "fused and reordered roundings",
        ("module", "expression", "multiply c*"),
        "XLA fuses a product with a sum, multiplies by the inverse of a constant, combines constants, and "
        "rounds partial sums to the type of the result.",
        explanations.rounded_once_more,
    ),
    KnownDifference(
        "roundings without bound",
        ("module",),
        "An operation has no error bound, such as a scatter of floats that combines by selections.",
        explanations.without_bound,
    ),
    KnownDifference(
        "accuracy of functions",
        tuple(f"{opcode} [fb]*" for n in (1, 2) for opcode in choices(n, exact=False)),
        "XLA:CPU's functions are accurate to some units in the last place, in narrow types rounded twice.",
        explanations.rounded_once_more,
    ),
    KnownDifference(
        "condition of complex logistic",
        ("logistic c*",),
        "1 / (1 + exp(-x)) has poles, near which the rounding of the divisor counts.",
        explanations.within_the_square,
    ),
    KnownDifference(
        "integer division by zero",
        ("divide [su]*", "remainder [su]*"),
        "The page leaves the result to the implementation: hloom has all ones, XLA may simplify x / x.",
        lambda difference: difference.case.arguments[-1] == 0,
        lambda difference: np.isin(difference.theirs, (0, 1)),
    ),
    KnownDifference(
        "roundings of narrow sums",
        (
            "reduce* add f8*",
            "reduce* add f4*",
            "reduce* add *f16",
            "scatter add *f16*",
            "scatter add f8*",
            "scatter add f4*",
        ),
        "XLA:CPU rounds every partial sum to the narrow type; hloom rounds the result.",
        explanations.within_the_roundings_of_a_sum,
    ),
    KnownDifference(
        "subnormals of f16",
        ("sort f8e5m2fnuz*",),
        "XLA:CPU compares these numbers in f16, and takes those that are subnormal there for equal.",
        explanations.subnormal_keys_in_f16,
        explanations.in_another_order,
    ),
    KnownDifference(
        "which of equals is selected",
        ("select-and-scatter * tied",),
        "hloom goes through a window in the order of the indices, XLA:CPU in that of a layout of its own.",
        explanations.everywhere,
        explanations.same_total,
    ),
    KnownDifference(
        "scatter without index",
        ("scatter * without index",),
        "Every update lands on the same window; XLA:CPU applies one of them.",
        explanations.everywhere,
        explanations.of_one_update,
        until=V0_12,
        defect=True,
    ),
    KnownDifference(
        "slices of what is not there",
        ("dynamic * slice",),
        "A slice of fixed size out of nothing: hloom gives zero, XLA:CPU what lies beyond the actual size.",
        explanations.beyond_the_actual_size,
        explanations.no_larger_than_computed,
    ),
    KnownDifference(
        "signs of sums that are zero",
        ("dot *", "convolution *", "reduce* add *", "dynamic *dot"),
        "A sum of negative zeros is -0, but +0 if it starts with 0; the order of a sum is free.",
        explanations.zeros,
    ),
    KnownDifference(
        "maxima of constant zeros",
        ("maximum *", "minimum *", "clamp *", "fusion", "call *", "map *"),
        "XLA's folding of constants takes zeros for equal; hloom has +0 above -0, as compiled code has.",
        explanations.of_constants,
        explanations.zeros,
        defect=True,
    ),
    KnownDifference(
        "zeros in place of NaN",
        ("* f4*", "* f6*"),
        "Types without NaN have a zero for it. XLA:CPU keeps the sign of NaN, which IEEE 754 leaves open.",
        explanations.no_number_in_f32,
        explanations.zeros,
    ),
    KnownDifference(
        "integer power",
        ("power [su]*",),
        "XLA:CPU reads six bits of the exponent and takes -1 to a negative power for 0; hloom wraps exactly.",
        explanations.six_bits_of_the_exponent,
        explanations.six_bit_power,
        defect=True,
    ),
    KnownDifference(
        "bits of narrow integers",
        ("popcnt s2", "popcnt s4"),
        "XLA:CPU counts the bits of the byte that holds the number, copies of the sign included.",
        explanations.everywhere,
        explanations.bits_of_the_byte,
        defect=True,
    ),
    KnownDifference(
        "the largest f4e2m1fn as an integer",
        ("convert f4e2m1fn *",),
        "XLA:CPU takes 6, the largest number, for infinite.",
        explanations.largest_number,
        explanations.as_infinity,
        defect=True,
    ),
    KnownDifference(
        "negative numbers as f8e8m0fnu",
        ("convert * f8e8m0fnu",),
        "The type has no sign. XLA:CPU drops it; ml_dtypes and hloom give NaN.",
        explanations.below_zero,
        explanations.without_sign,
        defect=True,
    ),
    KnownDifference(
        "total order of constants",
        ("compare total *",),
        "XLA's folding of constants compares in partial order: NaN is unordered, -0 equals +0.",
        explanations.of_constants,
        explanations.nan_or_zeros,
        defect=True,
    ),
    KnownDifference(
        "leading zeros of constants",
        ("count-leading-zeros s*",),
        "XLA's folding of constants counts the bits of negative numbers in a wider type.",
        explanations.of_constants,
        explanations.in_a_wider_type,
        until=V0_12,
        defect=True,
    ),
    KnownDifference(
        "rounding of constants in f8e3m4",
        ("round-nearest-* f8e3m4",),
        "XLA's folding of constants rounds finite numbers of this type to NaN, unlike the code it compiles.",
        explanations.of_constants,
        explanations.not_a_number,
        defect=True,
    ),
    KnownDifference(
        "integer convolutions of constants",
        ("convolution s*", "convolution u*"),
        "XLA's folding of constants saturates; hloom wraps, as compiled code does.",
        explanations.of_constants,
        explanations.saturated,
        defect=True,
    ),
    KnownDifference(
        "unsigned indices that are constants",
        ("gather u*", "scatter * u[0-9]*", "dynamic-slice u*", "dynamic-update-slice u*"),
        "XLA's folding of constants takes large unsigned indices for negative ones.",
        explanations.of_constants,
        explanations.among_the_arguments,
        defect=True,
    ),
    KnownDifference(
        "subnormal constants of reduced precision",
        ("reduce-precision f16", "reduce-precision bf16"),
        "XLA's folding of constants makes subnormal numbers 0, also where no exponent bit is taken away.",
        explanations.of_constants,
        explanations.vanished,
        defect=True,
    ),
    KnownDifference(
        "NaN without mantissa",
        ("reduce-precision *",),
        "XLA's folding of constants makes NaN infinite where no mantissa bit is left; the page retains NaN.",
        explanations.of_constants,
        lambda difference: np.isnan(wide(difference.ours)) & np.isinf(wide(difference.theirs)),
        defect=True,
    ),
    KnownDifference(
        "variance",
        ("batch-norm-training *", "batch-norm-grad *"),
        "XLA computes the variance as a difference of the means of squares and of the mean's square.",
        explanations.within_64_units_of_the_largest_square,
    ),
    KnownDifference(
        "terms of normalizations",
        ("batch-norm-inference f32", "batch-norm-inference f64"),
        "XLA computes x s + (offset - mean s), whose terms may cancel; hloom (x - mean) s + offset.",
        explanations.everywhere,
        explanations.within_the_terms_of_a_scaled_sum,
        until=V0_12,
    ),
    KnownDifference(
        "narrow normalizations",
        ("batch-norm-* f16", "batch-norm-* bf16"),
        "XLA:CPU rounds every step to the operands' own type; hloom rounds the results.",
        explanations.rounded_at_every_step,
    ),
    KnownDifference(
        "branch cut of square roots",
        ("sqrt c*",),
        "The square root of a negative number with the imaginary part -0 lies below the cut, by C's Annex G; "
        "XLA:CPU takes -0 for +0.",
        explanations.on_the_branch_cut,
        explanations.conjugate,
    ),
    KnownDifference(
        "condition of complex powers",
        ("power c*",),
        "XLA:CPU computes y log x in the operands' precision, hloom in c128.",
        lambda d: explanations.ill_conditioned_power(d.case, d.ours, d.theirs),
    ),
    KnownDifference(
        "range of complex powers",
        ("power c*",),
        "XLA:CPU multiplies |x|^(re y) by exp(-im y arg x), of which one may overflow or be subnormal.",
        explanations.factors_out_of_range,
        explanations.zero_or_not_finite,
    ),
    KnownDifference(
        "range of complex atan2",
        ("atan2 c*",),
        "XLA:CPU squares in the operands' precision, hloom computes c64 in c128.",
        explanations.squares_out_of_range,
        explanations.neither_finite_nor_far,
    ),
    KnownDifference(
        "rounding in complex atan2",
        ("atan2 c*",),
        "-i log((x + iy) / sqrt(x² + y²)) is right to some units of 1: small results and the side of the "
        "branch are at the mercy of rounding.",
        explanations.near_the_poles,
    ),
    KnownDifference(
        "range of logistic in f16",
        ("logistic f16",),
        "XLA:CPU computes 1 / (1 + exp(-x)) in f16, where exp(-x) overflows; hloom rounds the result once.",
        explanations.overflowing_exponential,
        lambda difference: difference.theirs == 0,
    ),
    KnownDifference(
        "infinite complex quotients",
        ("divide c*",),
        "hloom follows C's Annex G, in which an infinite number has an infinite quotient; XLA gives NaN for "
        "some.",
        explanations.infinite_arguments,
        explanations.no_number,
    ),
    KnownDifference(
        "range of complex quotients",
        ("divide c*",),
        "XLA:CPU squares the divisor in the operands' precision.",
        explanations.squares_out_of_range,
        explanations.zero_or_not_finite,
    ),
    KnownDifference(
        "overflow of complex circular functions",
        ("sine c*", "cosine c*", "tan c*"),
        "sinh and cosh of the imaginary part are half of exponentials that overflow; XLA:CPU multiplies "
        "infinity by small numbers or 0.",
        explanations.overflowing_hyperbolic_functions,
        explanations.not_finite,
    ),
    KnownDifference(
        "small parts of complex circular functions",
        ("sine c*", "cosine c*", "tan c*"),
        "XLA:CPU computes sinh as a difference of exponentials, which for small numbers cancel each other.",
        explanations.within_64_units_of_one,
    ),
    KnownDifference(
        "range of complex logarithms",
        ("log c*", "log-plus-one c*"),
        "XLA:CPU squares in the operands' precision.",
        explanations.squares_out_of_range,
        explanations.neither_finite_nor_far,
    ),
    KnownDifference(
        "complex numbers with NaN",
        ("* c64", "* c128"),
        "Where one part is NaN the other one may be, too: hloom goes by C's Annex G, XLA by its formulas.",
        lambda difference: np.isnan(difference.ours) & np.isnan(difference.theirs),
    ),
    KnownDifference(
        "overflow of narrow sums",
        ("reduce* add f8*", "reduce* add f4*", "scatter add f8*", "scatter add f4*"),
        "XLA:CPU rounds every partial sum to the narrow type, and what has overflowed stays so.",
        lambda difference: ~np.isfinite(wide(difference.theirs)),
    ),
    KnownDifference(
        "subnormal parts",
        ("log c*", "log-plus-one c*", "power c*", "sqrt c*", "rsqrt c*", "divide c*", "atan2 *"),
        "Flushed to zero, a part loses its sign now and then, and with it the side of the branch.",
        explanations.subnormal_parts,
        explanations.on_the_other_side,
    ),
)
