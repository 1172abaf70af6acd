"""Cholesky decompositions, triangular solves, Fourier transforms."""
