"""Lowering, compilation, export: what programs are before they run."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from tests.jax_platform.programs.program import message_of, program

X = np.arange(16, dtype=np.float32).reshape(4, 4)


@program
def lowered_and_compiled() -> Any:
    traced = jax.jit(lambda x, n: {"y": x * n, "z": x[0]}).trace(X, 3)
    compiled = traced.lower().compile()
    return (
        compiled(X, 3),
        str(compiled.in_tree),
        str(compiled.out_tree),
        [str(s) for s in compiled.in_avals[0]],
    )


@program
def texts_of_compiled_programs() -> Any:
    lowered = jax.jit(lambda x: jnp.tanh(x) @ x).lower(X)
    text = lowered.compile().as_text()
    assert text is not None
    return lowered.as_text(), ["HloModule" in text, "ENTRY" in text, "dot" in text, "tanh" in text]


@program
def costs() -> Any:
    compiled = jax.jit(lambda x: x @ x).lower(X).compile()
    cost: Any = compiled.cost_analysis()
    return cost["flops"], cost["bytes accessed"] >= 128


@program
def sizes_of_memory() -> Any:
    compiled = jax.jit(lambda x, y: (x @ x + y, y[0])).lower(X, X).compile()
    memory: Any = compiled.memory_analysis()
    # XLA counts the table of pointers to two results.
    return memory.argument_size_in_bytes, memory.output_size_in_bytes in (80, 96), memory.alias_size_in_bytes


@program
def donation_in_compiled_programs() -> Any:
    compiled = jax.jit(lambda x: x + 1, donate_argnums=0).lower(X).compile()
    memory: Any = compiled.memory_analysis()
    return memory.alias_size_in_bytes, compiled(X)


@program
def executables_at_run_time() -> Any:
    executable: Any = jax.jit(lambda x: x + 1).lower(X).compile().runtime_executable()
    modules = executable.hlo_modules()
    devices = executable.local_devices()
    return (
        len(modules),
        "ROOT" in modules[0].to_string(),
        [d.id for d in devices],
        [str(d.platform) for d in devices],
    )


@program
def abstract_arguments() -> Any:
    shape = jax.ShapeDtypeStruct((4, 4), jnp.float32)
    compiled = jax.jit(lambda x, *, k: x * k, static_argnames="k").lower(shape, k=3).compile()
    return compiled(X)


@program
def options_of_the_compiler() -> Any:
    lowered = jax.jit(lambda x: x + 1).lower(X)
    fine = lowered.compile({"xla_embed_ir_in_executable": True})(X)
    unknown = message_of(lambda: lowered.compile({"xla_no_such_option": True}))
    return fine, "xla_no_such_option" in unknown


@program
def exported_programs() -> Any:
    exported = export.export(jax.jit(lambda x: jnp.cumsum(x * 2, 0)))(X)
    again = jax.jit(lambda x: exported.call(x) + 1)
    return exported.call(X), again(X), [str(a) for a in exported.in_avals], list(exported.platforms)


@program
def exported_gradients() -> Any:
    exported = export.export(jax.jit(lambda x: (x * x).sum()))(X)
    gradient = export.export(jax.jit(jax.grad(lambda x: (x * x).sum())))(X)
    return exported.call(X), gradient.call(X)


@program
def symbolic_shapes() -> Any:
    b, n = export.symbolic_shape("b, n")
    f = jax.jit(lambda x: (x.sum(0), x.reshape(-1), x.shape[0] * jnp.ones_like(x[0])))
    exported = export.export(f)(jax.ShapeDtypeStruct((b, n), jnp.int32))
    found = [
        exported.call(np.arange(r * c, dtype=np.int32).reshape(r, c)) for r, c in ((2, 3), (5, 1), (1, 7))
    ]
    return found, [str(a) for a in exported.out_avals]


@program
def symbolic_shapes_with_constraints() -> Any:
    scope = export.SymbolicScope(["a >= 4", "mod(a, 2) == 0"])
    (a,) = export.symbolic_shape("a", scope=scope)
    exported = export.export(jax.jit(lambda x: x[2:] + x[: x.shape[0] - 2]))(
        jax.ShapeDtypeStruct((a,), jnp.int32)
    )
    refused = message_of(lambda: exported.call(np.arange(3, dtype=np.int32)))
    return exported.call(np.arange(8, dtype=np.int32)), "constraint" in refused


@program
def layouts_of_arguments() -> Any:
    compiled = jax.jit(lambda x: x.T).lower(X).compile()
    formats: Any = compiled.input_formats
    return str(formats[0][0].layout.major_to_minor), compiled(X)


@program
def shardings_of_compiled_programs() -> Any:
    compiled = jax.jit(lambda x: (x, x.sum())).lower(X).compile()
    return [type(s).__name__ for s in jax.tree.leaves(compiled.output_shardings)], [
        s.memory_kind for s in jax.tree.leaves(compiled.output_shardings)
    ]


@program
def the_same_program_twice() -> Any:
    made = [jax.jit(lambda x, n=n: x * 2 + n) for n in (1, 1, 2)]
    return [f(X) for f in made], [f.lower(X).compile()(X) for f in made]


@program
def caches_are_cleared() -> Any:
    f = jax.jit(lambda x: x - 3)
    before = f(X)
    jax.clear_caches()
    return before, f(X), cast("Any", f)._cache_size()
