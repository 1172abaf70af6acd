"""Emitters of kernels for the CPU, a package for each family of operations."""
