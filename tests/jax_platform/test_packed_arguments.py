"""Weights that programs read again and again: their packed form is kept, and the results keep their bits."""

from __future__ import annotations

import os

import pytest

from hloom.codegen.target import host, multiplies_pairs
from hloom.errors import HloError
from hloom.jax.pjrt.native import packed_limit
from tests.jax_platform.process import run_program

PREAMBLE = """
import gc, jax, jax.numpy as jnp, numpy as np
from jax import lax
from hloom.jax.pjrt.native import native
kept = lambda: native().packed_bytes
rng = np.random.default_rng(1)
array = lambda *sizes: jnp.asarray(rng.normal(size=sizes).astype("f4"))
def runs(function, *arguments, count=7):
    return [[np.asarray(a).tobytes() for a in jax.tree.leaves(function(*arguments))] for _ in range(count)]
"""
"""``kept()`` are the bytes of packed forms, and ``runs`` the bytes of results."""

PROGRAMS = """
step = lambda c, part: (jnp.tanh(jnp.pad(c @ part, ((0, 0), (0, 64)))), None)
layers = lambda x, w: lax.scan(step, x, w)[0]
labels = ("NHWC", "HWIO", "NHWC")
conv = lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=labels)
programs = {
    "product": (jnp.matmul, (96, 640), (640, 448)),
    "product in blocks": (jnp.matmul, (49, 2304), (2304, 272)),
    "product of a transpose": (lambda x, w: x @ w.T, (40, 512), (640, 512)),
    "product with an odd number of columns": (jnp.matmul, (64, 512), (512, 533)),
    "product that ends in more": (lambda x, w: jnp.exp(x @ w) + 1, (96, 1664), (1664, 256)),
    "many rows": (jnp.matmul, (700, 256), (256, 640)),
    "layers of a loop": (layers, (48, 576), (3, 576, 512)),
    "convolution": (conv, (1, 7, 7, 64), (3, 3, 64, 520)),
}
for name, (function, *sizes) in programs.items():
    function, arguments = jax.jit(function), [array(*s) for s in sizes]
    before, results = kept(), runs(function, *arguments)
    again = runs(function, arguments[0], arguments[1] + 0, count=1)
    print(name, kept() - before >= arguments[1].nbytes, len(set(map(str, results + again))))
"""


def test_results_have_the_same_bits_before_and_after_a_weight_is_packed() -> None:
    lines = run_program(PREAMBLE + PROGRAMS, "cpu").splitlines()
    assert len(lines) == 8
    assert [line for line in lines if not line.endswith(" True 1")] == []


def test_so_they_have_without_room_for_packed_weights() -> None:
    no_room = 'native().call("pjrt_set_packed_limit", 0)\n'
    lines = run_program(PREAMBLE + no_room + PROGRAMS, "cpu").splitlines()
    assert [line for line in lines if not line.endswith(" False 1")] == []


NARROW = """
bf16 = lambda *sizes: jnp.asarray(rng.normal(size=sizes), jnp.bfloat16)
tiny = lambda *sizes: bf16(*sizes) * jnp.bfloat16(1e-19 if sizes[0] == 96 else 1e-38)
s8 = lambda *sizes: jnp.asarray(rng.integers(-127, 128, sizes), jnp.int8)
sums = lambda x, w: lax.dot(x, w, preferred_element_type=jnp.int32)
step = lambda c, part: (jnp.tanh(jnp.pad(c @ part, ((0, 0), (0, 64)))), None)
programs = {
    "product": (jnp.matmul, bf16, (96, 640), (640, 448)),
    "product of a transpose": (lambda x, w: x @ w.T, bf16, (40, 512), (640, 512)),
    "few rows": (jnp.matmul, bf16, (7, 512), (512, 533)),
    "layers of a loop": (lambda x, w: lax.scan(step, x, w)[0], bf16, (48, 576), (3, 576, 512)),
    "numbers near 1e-38": (jnp.matmul, tiny, (96, 640), (640, 448)),
    "integers": (sums, s8, (96, 640), (640, 448)),
}
for name, (function, create, *sizes) in programs.items():
    function, arguments = jax.jit(function), [create(*s) for s in sizes]
    before, results = kept(), runs(function, *arguments)
    again = runs(function, arguments[0], arguments[1] + 0, count=1)
    print(name, kept() - before >= arguments[1].nbytes, len(set(map(str, results + again))))
"""


@pytest.mark.skipif(not multiplies_pairs(host()), reason="this machine multiplies no pairs of bf16 numbers")
def test_so_they_have_as_narrow_numbers() -> None:
    *lines, integers = run_program(PREAMBLE + NARROW, "cpu").splitlines()
    assert len(lines) == 5
    assert [line for line in lines if not line.endswith(" True 1")] == []
    assert integers == f"integers {host().has('amx-int8')} 1"


LIVES = """
function = jax.jit(lambda x, w: x @ w)
x, w = array(96, 640), array(640, 448)
runs(function, x, w, count=3)
print("three uses", kept())
runs(function, x, w, count=1)
print("four", kept() >= w.nbytes)
other = jax.jit(lambda x, w: jnp.sin(x @ w))
size = kept()
runs(other, x, w)
print("shared by programs", kept() == size)
del w
gc.collect()
print("deleted", kept())

update = jax.jit(lambda w: w + 1, donate_argnums=0)
w = array(640, 448)
runs(function, x, w)
new = update(w)
print("donated", w.is_deleted(), kept())
wanted = np.asarray(x) @ np.asarray(new)
print("its memory", all(np.allclose(np.asarray(function(x, new)), wanted, atol=1e-2) for _ in range(7)))

step = jax.jit(lambda x, w: (x @ w, w + 1), donate_argnums=1)
new = array(640, 448)
before = kept()
for _ in range(7):
    product, new = step(x, new)
print("weights of every step", kept() - before)

w = array(640, 448)
w.unsafe_buffer_pointer()
before = kept()
runs(function, x, w)
print("data that may change", kept() - before)
"""


def test_the_packed_form_lives_as_long_as_its_array() -> None:
    assert run_program(PREAMBLE + LIVES, "cpu").splitlines() == [
        "three uses 0",
        "four True",
        "shared by programs True",
        "deleted 0",
        "donated True 0",
        "its memory True",
        "weights of every step 0",
        "data that may change 0",
    ]


EQUAL_PRODUCTS = """
def function(x, y, w):
    return (x * 2) @ w, x @ jnp.sin(y), x @ w
function, arguments = jax.jit(function), (array(96, 640), array(640, 448), array(640, 448))
print(len(set(map(str, runs(function, *arguments)))), kept() > 0)
"""


def test_equal_products_of_which_one_reads_no_argument() -> None:
    assert run_program(PREAMBLE + EQUAL_PRODUCTS, "cpu") == "1 True\n"


THREADS = """
from threading import Thread
function = jax.jit(lambda x, w: x @ w)
x, weights = array(96, 640), [array(640, 448) for _ in range(4)]
wanted = [np.asarray(x) @ np.asarray(w) for w in weights]
wrong = []
def work():
    for _ in range(20):
        for w, y in zip(weights, wanted):
            wrong.extend([] if np.allclose(np.asarray(function(x, w)), y, atol=1e-2) else [w])
threads = [Thread(target=work) for _ in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
print(len(wrong), kept() >= 4 * weights[0].nbytes)
"""


def test_threads_share_packed_weights() -> None:
    assert run_program(PREAMBLE + THREADS, "cpu") == "0 True\n"


def test_the_limit_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_PACKED_LIMIT", "1 GB")
    with pytest.raises(HloError, match="a number of MiB is wanted") as caught:
        packed_limit()
    assert caught.value.rule == "jax.packed-limit"
    monkeypatch.setenv("HLOOM_PACKED_LIMIT", "3")
    assert packed_limit() == 3 << 20
    monkeypatch.delenv("HLOOM_PACKED_LIMIT")
    assert packed_limit() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
