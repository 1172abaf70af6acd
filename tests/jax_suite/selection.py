"""The files of JAX's tests that the comparison draws from."""

from __future__ import annotations

from pathlib import Path

PATTERNS = (
    "lax_*test.py", "api_test.py", "array*_test.py", "random*_test.py", "*linalg_test.py", "fft_test.py",
    "nn_test.py", "scipy_*test.py", "sparse*_test.py", "export_test.py", "shape_poly_test.py", "ffi_test.py",
    "checkify_test.py", "python_callback_test.py", "debugging_primitives_test.py", "dtypes_test.py",
    "memories_test.py", "pjit_test.py", "shard_map_test.py", "pmap_test.py", "custom_partitioning*_test.py",
    "profiler*_test.py", "compilation_cache_test.py", "aot_test.py", "cache_key_test.py",
    "buffer_callback_test.py", "colocated_python_test.py", "debug_nans_test.py", "jax_jit_test.py",
    "layout_test.py", "batching_test.py", "custom_*_test.py", "image_test.py", "jet_test.py", "ode_test.py",
    "state_test.py", "mutable_array_test.py", "svd_test.py", "eigh_test.py", "qdwh_test.py",
    "cholesky_update_test.py", "lobpcg_test.py", "multi_device_test.py", "jaxpr_effects_test.py",
    "x64_context_test.py", "stax_test.py", "optimizers_test.py", "polynomial_test.py", "pickle_test.py",
    "xla_bridge_test.py", "xla_metadata_test.py", "device_test.py", "ann_test.py", "error_check_test.py",
    "errors_test.py", "generated_fun_test.py", "control_deps_test.py", "key_reuse_test.py", "stack_test.py",
    "transfer_guard_test.py", "unary_ops_accuracy_test.py", "shard_alike_test.py",
    "ragged_collective_test.py",
    "async_collectives_test.py", "experimental_rnn_test.py", "extend_test.py", "metadata_test.py",
    "name_stack_test.py", "clear_backends_test.py", "hijax_test.py", "host_callback*_test.py",
    "jax_numpy_error_test.py", "multibackend_test.py", "scaled_dot_test.py", "stateful_rng_test.py",
    "string_array_test.py", "sparsify_test.py", "fused_test.py", "debugger_test.py",
)  # fmt: skip
"""Names of files, with wildcards."""


def files_of(checkout: Path, pattern: str = "*") -> list[Path]:
    """Return the files of a checkout of JAX that a further pattern admits, by name."""
    folder = checkout / "tests"
    admitted = set(folder.glob(pattern))
    return sorted({path for each in PATTERNS for path in folder.glob(each)} & admitted)
