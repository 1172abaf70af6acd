"""Reductions: element by element, along rows, and fused with elementwise operations on rows."""
