"""Executables of the cpu backend: inspection, several devices, and threads."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from typing import Any, cast

import numpy as np
import pytest

import hloom
from hloom.codegen.target import Target
from hloom.cpu import caller
from hloom.cpu.jit.compilation import compile_module, optimize
from hloom.cpu.jit.llvm import generate
from hloom.cpu.jit.loader import Image
from hloom.cpu.native import compile_or_load
from hloom.cpu.runtime.entry import Signature
from hloom.cpu.runtime.support_code import support_code
from hloom.errors import HloError
from hloom.runtime.executable import Executable
from tests.arrays import f32
from tests.devices import program
from tests.evaluation import parse
from tests.reducers import ADD

TWO_STEPS = program(
    """
  p = f32[64,32] parameter(0)
  q = f32[32,48] parameter(1)
  d = f32[64,48] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[] constant(0)
  ROOT r = f32[48] reduce(d, z), dimensions={0}, to_apply=add""",
    ADD,
)
COUNTING = """
HloModule counting

condition {
  s = (s32[], f32[100]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(7)
  ROOT go = pred[] compare(i, n), direction=LT
}

body {
  s = (s32[], f32[100]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[100] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[100] reverse(x), dimensions={0}
  ROOT t = (s32[], f32[100]) tuple(j, y)
}

ENTRY entry {
  x = f32[100] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[100]) tuple(zero, x)
  w = (s32[], f32[100]) while(s), condition=condition, body=body
  ROOT r = f32[100] get-tuple-element(w), index=1
}
"""


def compiled(text: str, **options: Any) -> Executable:
    return hloom.compile(parse(text), backend="cpu", **options)


# -- inspection


def test_memory() -> None:
    memory = compiled(TWO_STEPS).memory
    assert (memory.argument, memory.output) == (4 * (64 * 32 + 32 * 48), 4 * 48)
    assert memory.temp >= 4 * 64 * 48
    assert memory.peak == memory.argument + memory.output + memory.temp


def test_cost() -> None:
    cost = compiled(TWO_STEPS).cost
    assert cost.flops == 2 * 64 * 48 * 32 + (64 * 48 - 48)
    assert cost.bytes >= 4 * (64 * 32 + 32 * 48 + 48)


def test_texts() -> None:
    exe = compiled(TWO_STEPS)
    optimized = exe.to_hlo()
    assert "dot" in optimized
    parse(optimized).verify()
    assert "define i32 @hloom_run(ptr" in exe.to_llvm()
    assert "hloom_run:" in exe.to_asm()


def test_the_evaluator_has_nothing_to_tell() -> None:
    exe = hloom.compile(parse(TWO_STEPS), backend="evaluator")
    for ask in (lambda: exe.memory, lambda: exe.cost, exe.to_hlo, exe.to_llvm, exe.to_asm):
        with pytest.raises(HloError) as caught:
            ask()
        assert caught.value.rule == "compile.not-offered"


def test_a_profile_names_what_takes_time() -> None:
    exe = compiled(TWO_STEPS)
    profile = exe.profile(np.ones((64, 32), np.float32), np.ones((32, 48), np.float32))
    assert {line.name for line in profile.lines} <= {
        i.name for i in cast("Any", exe._programs[0]).native.inspection.optimized.instructions()
    }
    assert any("dot(" in line.text or "fusion(" in line.text for line in profile.lines)
    assert all(line.seconds > 0 and line.runs == 1 for line in profile.lines)
    assert sum(line.seconds for line in profile.lines) <= profile.seconds
    assert [line.seconds for line in profile.lines] == sorted(
        (x.seconds for x in profile.lines), reverse=True
    )
    assert len(str(profile).splitlines()) == len(profile.lines) + 1


def test_a_profile_counts_the_rounds_of_loops() -> None:
    profile = compiled(COUNTING).profile(np.ones(100, np.float32))
    assert {7, 8} >= {line.runs for line in profile.lines}
    assert 7 in {line.runs for line in profile.lines}


def test_long_programs_of_one_thread_run_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second run on: the first one shows how long they take."""
    monkeypatch.setattr("hloom.runtime.executable.available_cores", lambda: 2)
    text = COUNTING.replace("constant(7)", "constant(2000000)")
    exe = hloom.compile(parse(text), num_replicas=2)
    x = np.linspace(0, 1, 100, dtype=np.float32)
    sequential = exe.run([[x], [x * 2]])
    assert not exe._one_by_one
    for _ in range(2):
        for a, b in zip(exe.run([[x], [x * 2]]), sequential, strict=True):
            assert a.tobytes() == b.tobytes()
    short = hloom.compile(parse(COUNTING), num_replicas=2)
    short.run([[x], [x]])
    assert short._one_by_one


UNBOUNDED_LOOP = """
below { x = f32[] parameter(0)
  limit = f32[] constant(100)
  ROOT b = pred[] compare(x, limit), direction=LT }
twice { x = f32[] parameter(0)
  ROOT y = f32[] add(x, x) }
"""


@pytest.mark.parametrize(
    ("body", "long"),
    [
        ("x = f32[1000] parameter(0)\n ROOT r = f32[1000] add(x, x)", False),
        ("x = f32[1000000] parameter(0)\n ROOT r = f32[1000000] add(x, x)", True),
        ("x = f32[20,20] parameter(0)\n y = f32[20,20] dot(x, x), lhs_contracting_dims={1}, "
         "rhs_contracting_dims={0}\n ROOT r = f32[20,20] dot(y, y), lhs_contracting_dims={1}, "
         "rhs_contracting_dims={0}", True),
        ("x = f32[] parameter(0)\n ROOT r = f32[] while(x), condition=below, body=twice", True),
    ],
    ids=["short", "much work", "temporaries", "a loop without a known end"],
)  # fmt: skip
def test_programs_that_may_take_long_run_without_the_interpreters_lock(
    monkeypatch: pytest.MonkeyPatch, body: str, long: bool
) -> None:
    seen: list[bool] = []
    original = caller.builtin_for

    def noted(signature: Signature, *more: Any) -> Any:
        seen.append(signature.long)
        return original(signature, *more)

    monkeypatch.setattr(caller, "builtin_for", noted)
    module = parse(program(body, UNBOUNDED_LOOP))
    hloom.compile(module)(np.ones(module.entry.parameters[0].shape.dimensions, np.float32))
    assert seen == [long]


def test_a_profile_of_dynamic_and_unbounded_sizes() -> None:
    for size in ("<=4", "?"):
        exe = compiled(program(f"p = f32[{size}] parameter(0)\n ROOT r = f32[{size}] exponential(p)"))
        (line,) = exe.profile(np.ones(3, np.float32)).lines
        assert "exponential" in line.text


def test_a_profile_of_a_program_that_calls_the_host() -> None:
    text = program("""
      t = token[] after-all()
      i = (f32[2], token[]) infeed(t)
      v = f32[2] get-tuple-element(i), index=0
      ROOT r = f32[2] add(v, v)""")
    exe = compiled(text)
    for _ in range(2):
        exe.devices[0].transfer_to_infeed(np.ones(2, np.float32))
    assert any("infeed" in line.text for line in exe.profile().lines)


# -- compiling


def test_a_program_that_breaks_a_rule_is_refused() -> None:
    module = parse(program("p = f32[2] parameter(0)\n ROOT r = f32[2] add(p, p)"))
    module.entry.root.shape = module.entry.parameters[0].shape.with_element_type(
        hloom.Shape.parse("s32[2]").element_type
    )
    with pytest.raises(HloError):
        hloom.compile(module, backend="cpu")


def test_the_second_time_the_program_comes_from_the_cache() -> None:
    text = program("p = f32[3] parameter(0)\n c = f32[3] constant({7, 8, 9.5})\n ROOT r = f32[3] add(p, c)")
    compile_or_load(parse(text))
    again = compile_or_load(
        parse(text.replace("r =", "other =").replace("HloModule test", "HloModule other"))
    )
    same = compile_or_load(parse(text))
    assert same.from_cache
    assert [r.tolist() for r in again.caller.run([np.zeros(3, np.float32)])] == [[7, 8, 9.5]]


# -- devices and threads


def test_replicas_run_the_same_program() -> None:
    exe = compiled(program("p = f32[2] parameter(0)\n ROOT r = f32[2] add(p, p)"), num_replicas=3)
    results = exe.run([[f32([n, 1])] for n in range(3)])
    assert [r.tolist() for r in results] == [[0, 2], [2, 2], [4, 2]]
    with pytest.raises(HloError) as caught:
        exe(f32([1, 2]))
    assert caught.value.rule == "run.one-device"


LARGE = program(
    """
  p = f32[700,300] parameter(0)
  q = f32[300,500] parameter(1)
  d = f32[700,500] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[700,500] add(d, d)
  t = f32[500,700] transpose(s), dimensions={1,0}
  z = f32[] constant(0)
  r = f32[500] reduce(t, z), dimensions={1}, to_apply=add
  ROOT u = (f32[500,700], f32[500]) tuple(t, r)""",
    ADD,
)


def test_large_kernels_are_shared() -> None:
    text = compiled(LARGE).to_llvm()
    assert len(re.findall(r"call i32 @hloom_parallel\(ptr %3", text)) >= 2


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    code = f"""
import hashlib, numpy as np, hloom
exe = hloom.compile(hloom.HloModule.from_text({LARGE!r}), backend="cpu")
g = np.random.default_rng(1)
out = exe(g.normal(size=(700, 300)).astype("f4"), g.normal(size=(300, 500)).astype("f4"))
print(hashlib.sha256(b"".join(o.tobytes() for o in out)).hexdigest())
"""
    answers: set[str] = set()
    for threads in ("1", "2", "5"):
        environment = {**os.environ, "HLOOM_NUM_THREADS": threads}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        answers.add(done.stdout)
    assert len(answers) == 1


def test_long_constants_are_not_part_of_the_text() -> None:
    numbers = ", ".join(str(n % 97) for n in range(5000))
    exe = compiled(
        program(
            f"p = s32[5000] parameter(0)\n c = s32[5000] constant({{{numbers}}})\n"
            "ROOT r = s32[5000] add(p, c)"
        )
    )
    assert exe(np.zeros(5000, np.int32)).tolist() == [n % 97 for n in range(5000)]
    assert len(exe.to_llvm()) < 20_000


# -- the garbage collector


def test_the_garbage_collector_pauses_while_programs_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CACHE", "0")
    module, collections, thresholds = parse(TWO_STEPS), [0], gc.get_threshold()

    def counted(phase: str, info: dict[str, int]) -> None:
        collections[0] += phase == "start"

    gc.collect()
    gc.callbacks.append(counted)
    gc.set_threshold(10)
    try:
        compile_or_load(module)
        during = collections[0]
        kept = [[number] for number in range(10_000)]
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(counted)
    assert gc.isenabled()
    assert during < 100, "the compiler allocates several thousand objects"
    assert collections[0] - during >= len(kept) // 20


# -- other machines


@pytest.mark.parametrize("text", [TWO_STEPS, COUNTING, LARGE])
@pytest.mark.parametrize("name", [("aarch64-linux-gnu", "neoverse-v2"), ("x86_64-linux-gnu", "x86-64-v3")])
def test_code_for_other_machines(text: str, name: tuple[str, str]) -> None:
    target = Target.named(*name)
    _, entry = compile_module(optimize(parse(text)), target)
    support = [
        generate(text, target, inline_and_promote=True, level=level) for text, level in support_code(target)
    ]
    image = Image([*entry.parts, *support], {})
    memory = bytearray(image.size)
    symbols = image.write(memory, 0x1000_0000, lambda name: 0x2000_0000)
    assert image.machine == {"aarch64": 183, "x86_64": 62}[target.architecture]
    assert {"hloom_run", "hloom_parallel"} <= symbols.keys()
