"""Convolutions: direct, along depth, in groups, as matrix products."""
