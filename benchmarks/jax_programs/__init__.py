"""Programs that users of JAX run, on hloom and on stock: ``python -m benchmarks.jax_programs``."""
