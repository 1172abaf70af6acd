"""LLVM: code on several threads, and errors where it would end the process."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from hloom.codegen.llvm import F32, Module
from hloom.codegen.target import Target, host
from hloom.cpu.jit import llvm
from hloom.cpu.jit.llvm import CodeQueue, CompilerError, generate, generate_all, generate_module
from hloom.cpu.jit.parts import PartStream

X86_64 = Target.named("x86_64-linux-gnu")
AARCH64 = Target.named("aarch64-linux-gnu", "neoverse-v2")


def adder(name: str, lanes: int = 4) -> str:
    vector = f"<{lanes} x float>"
    return f"""
define void @{name}(ptr %p) {{
  %x = load {vector}, ptr %p, align 4
  %y = fadd {vector} %x, %x
  store {vector} %y, ptr %p, align 4
  ret void
}}
"""


def caller(intrinsic: str, target: Target) -> Module:
    module, vector = Module(target), F32.vector(4)
    f = module.function("f", [vector], vector, internal=False)
    f.finish(f.call(vector, intrinsic, f.parameters[0], f.parameters[0]))
    return module


def refusal(text: str, target: Target) -> str:
    with pytest.raises(CompilerError) as caught:
        generate(text, target)
    return caught.value.rule


def test_assembly_shows_the_target() -> None:
    assert b"addps" in generate(adder("f"), X86_64, assembly=True)
    assert b"fadd\tv" in generate(adder("f"), AARCH64, assembly=True)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("define void @f() { nonsense }", "cpu.llvm-parse"),
        ("define i32 @f() {\n ret i32 %unknown\n}\n", "cpu.llvm-parse"),
        ("define void @f() {\nentry:\n br label %entry\n}\n", "cpu.llvm-verify"),
    ],
)
def test_what_llvm_refuses_is_an_error(text: str, rule: str) -> None:
    assert refusal(text, X86_64) == rule


def test_modules_that_define_a_function_twice_are_not_linked() -> None:
    with pytest.raises(CompilerError) as caught:
        generate(adder("f"), X86_64, linked=adder("f"))
    assert caught.value.rule == "cpu.llvm-link"


@pytest.mark.parametrize(
    "intrinsic",
    [
        "llvm.aarch64.neon.fmax.v4f32",
        "llvm.x86.avx512.mask.scalef.ps.128",
        "llvm.x86.nonsense",
        "llvm.nvvm.fmax",
    ],
)
def test_intrinsics_that_would_end_the_process_are_errors(intrinsic: str) -> None:
    with pytest.raises(CompilerError) as caught:
        generate_module(caller(intrinsic, X86_64))
    assert caught.value.rule == "cpu.llvm-intrinsic"
    stream = PartStream(CodeQueue(X86_64, 1))
    with pytest.raises(CompilerError) as caught:
        stream.finish(caller(intrinsic, X86_64))
    assert caught.value.rule == "cpu.llvm-intrinsic"


def test_errors_say_what_llvm_says() -> None:
    with pytest.raises(CompilerError, match="expected instruction opcode"):
        generate("define void @f() { nonsense }", host())


def test_an_unknown_triple_is_an_error() -> None:
    assert refusal(adder("f"), Target("x86_64x-nowhere", "generic", frozenset())) == "cpu.target"


def test_intrinsics_of_the_target_are_allowed() -> None:
    assert b"fmax" in generate_module(caller("llvm.aarch64.neon.fmax.v4f32", AARCH64), assembly=True)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_modules_are_compiled_in_order_on_any_number_of_threads(threads: int) -> None:
    texts = [adder(f"f{n}", 4 << n % 3) for n in range(7)]
    assert generate_all(texts, host(), threads) == [generate(text, host()) for text in texts]


def test_an_error_on_another_thread_is_raised_here() -> None:
    texts = [adder("f"), "nonsense", adder("g"), "more nonsense that is longer than the rest of them" * 9]
    with pytest.raises(CompilerError):
        generate_all(texts, host(), 3)


def test_the_last_module_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counted)
    queue = CodeQueue(host(), 4)
    queue.add(adder("f"), last=True)
    assert queue.finish() == [generate(adder("f"), host())] and not started
    queue = CodeQueue(host(), 4)
    queue.add(adder("f"))
    queue.add(adder("g"), last=True)
    assert queue.finish() == [generate(adder(name), host()) for name in "fg"] and len(started) == 1


def test_target_machines_are_made_once_for_the_threads_that_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Target] = []
    create = llvm._new_machine

    def counted(lib: Any, target: Target, level: int) -> Any:
        made.append(target)
        return create(lib, target, level)

    monkeypatch.setattr(llvm, "_machines", {})
    monkeypatch.setattr(llvm, "_new_machine", counted)
    refusal("nonsense", X86_64)
    assert generate(adder("f"), X86_64) == generate(adder("f"), X86_64)
    assert made == [X86_64]
    assert b"fadd\tv" in generate(adder("f"), AARCH64, assembly=True)
    assert made == [X86_64, AARCH64]
    generate(adder("f"), X86_64, level=0)
    assert made == [X86_64, AARCH64, X86_64]
    generate_all([adder(f"f{n}") for n in range(9)], X86_64, 3)
    assert len(made) <= 5


DESCENDING = """
define void @f(ptr %p) {
  %array = alloca [16 x double], align 64
  %x0 = load <4 x double>, ptr %p, align 8
  %end = getelementptr i8, ptr %array, i64 96
  store <4 x double> %x0, ptr %end, align 8
  %x1 = fadd <4 x double> %x0, %x0
  %third = getelementptr i8, ptr %array, i64 64
  store <4 x double> %x1, ptr %third, align 8
  %x2 = fadd <4 x double> %x1, %x1
  %second = getelementptr i8, ptr %array, i64 32
  store <4 x double> %x2, ptr %second, align 8
  %x3 = fadd <4 x double> %x2, %x2
  store <4 x double> %x3, ptr %array, align 8
  %all = load <16 x double>, ptr %array, align 64
  store <16 x double> %all, ptr %p, align 8
  ret void
}
"""


def test_vectors_stored_in_descending_order_do_not_end_the_process() -> None:
    """SROA of LLVM 22.1 makes invalid IR of it (llvm/llvm-project#189680)."""
    code = subprocess.run(
        [sys.executable, "-c", COMPILE_SIMPLIFIED],
        input=DESCENDING,
        text=True,
        capture_output=True,
        check=False,
    )
    assert (code.returncode, code.stdout) == (0, "3\n"), code.stderr


COMPILE_SIMPLIFIED = """
import sys
from hloom.codegen.target import Target
from hloom.cpu.jit.llvm import generate
target = Target.named("x86_64-linux-gnu", "x86-64-v3")
text = generate(sys.stdin.read(), target, assembly=True, simplified=["f"]).decode()
print(text.count("vaddpd"))
"""
