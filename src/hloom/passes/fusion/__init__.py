"""Passes that group instructions into kernels."""
