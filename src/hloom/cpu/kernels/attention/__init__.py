"""Attention: two products with row operations between them, by blocks of rows."""
