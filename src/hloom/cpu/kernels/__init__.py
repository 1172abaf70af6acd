"""Kernels of the CPU target, a room for each family."""
