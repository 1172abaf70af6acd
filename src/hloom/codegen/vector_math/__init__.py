"""Vector math: elementary functions of floats and complex numbers as code without branches and calls.

Every function takes f32 or f64 values, scalars or vectors of any length, appends instructions to their
function, and returns the result: at most 2 units in the last place off for real numbers, and right at zeros,
infinities, NaNs and subnormal numbers. Polynomials are minimax polynomials found by Remez' algorithm in high
precision, with coefficients rounded one by one. `docs/vector-math.md` has the measured errors and speeds.
"""
