"""Passes that choose the layouts in which kernels read and write."""
