"""Dots: matrix products, inner products, and what does not fit either."""
