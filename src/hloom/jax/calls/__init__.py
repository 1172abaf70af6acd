"""User functions that programs call: Python callbacks, C functions, partitioners of custom calls."""
