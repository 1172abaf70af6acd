"""JAX's own tests, run on hloom as JAX's cpu and on JAX's own CPU client with the same selection.

``python -m tests.jax_suite DIR`` takes a checkout of JAX at the tag of the installed version. `sampling` is a
plug-in of pytest that draws tests and records what becomes of them; `processes` runs a file's tests in
processes of their own; `selection` lists the files. A test that crashes or hangs counts as failed, and the
tests behind it run in the next process.
"""
