"""Element rules: one element of each operation at a symbolic index."""
