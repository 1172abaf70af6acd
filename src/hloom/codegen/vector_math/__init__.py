"""Vector math: elementary functions of floats and complex numbers without calls and with few branches.

Every function takes f32 or f64 values, scalars or vectors of any length, appends instructions to their
function, and returns the result. Errors are at most 2 ulp for real numbers; zeros, infinities, NaNs and
subnormal numbers give exact special values. Polynomials are minimax polynomials by Remez' algorithm in high
precision, with coefficients rounded one by one. `docs/vector-math.md` lists measured errors and speeds.
"""
