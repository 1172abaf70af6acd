"""Functions that programs call: Python callbacks, C functions, and partitioners of custom calls."""
