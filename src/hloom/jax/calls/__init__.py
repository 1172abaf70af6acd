"""Functions of the user that programs call: Python callbacks, C functions, partitioners of custom calls."""
