"""Dots: matrix products, inner products, and loops over elements for all others."""
