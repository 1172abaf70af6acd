"""Reductions: as elements, along rows, and with what is made of rows."""
