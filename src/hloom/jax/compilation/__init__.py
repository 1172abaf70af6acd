"""Compilation of JAX's programs, and serialization of executables."""
