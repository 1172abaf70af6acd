"""Cholesky decompositions and triangular solves."""
