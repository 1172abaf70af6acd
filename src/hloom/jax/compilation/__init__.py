"""Compilation of JAX's programs, and executables as bytes."""
