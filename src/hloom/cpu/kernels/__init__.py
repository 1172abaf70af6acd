"""Kernels of the CPU target, a package for each family."""
