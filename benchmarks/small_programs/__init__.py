"""Programs of a few lines of jax.numpy, on hloom and on stock: ``python -m benchmarks.small_programs``."""
