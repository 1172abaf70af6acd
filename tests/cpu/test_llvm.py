"""LLVM: code on several threads, and errors where it would end the process."""

from __future__ import annotations

import pytest

from hloom.codegen.target import Target, host
from hloom.cpu.jit.llvm import MOST_LANES, CompilerError, generate, generate_all

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


def caller(intrinsic: str) -> str:
    return f"""
declare <4 x float> @{intrinsic}(<4 x float>, <4 x float>)
define <4 x float> @f(<4 x float> %x) {{
  %y = call <4 x float> @{intrinsic}(<4 x float> %x, <4 x float> %x)
  ret <4 x float> %y
}}
"""


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
        (adder("f", MOST_LANES * 2), "cpu.llvm-lanes"),
        ("define void @f(<vscale x 4 x float> %x) {\n ret void\n}\n", "cpu.llvm-scalable"),
        ('define void @f() {\n call void asm sideeffect "nop", ""()\n ret void\n}\n', "cpu.llvm-assembly"),
        ('module asm "nop"\n', "cpu.llvm-assembly"),
        (caller("llvm.aarch64.neon.fmax.v4f32"), "cpu.llvm-intrinsic"),
        (caller("llvm.x86.avx512.mask.scalef.ps.128"), "cpu.llvm-intrinsic"),
        (caller("llvm.x86.nonsense"), "cpu.llvm-intrinsic"),
        (caller("llvm.nvvm.fmax"), "cpu.llvm-intrinsic"),
    ],
)
def test_what_would_end_the_process_is_an_error(text: str, rule: str) -> None:
    assert refusal(text, X86_64) == rule


def test_errors_say_what_llvm_says() -> None:
    with pytest.raises(CompilerError, match="expected instruction opcode"):
        generate("define void @f() { nonsense }", host())


def test_an_unknown_triple_is_an_error() -> None:
    assert refusal(adder("f"), Target("x86_64x-nowhere", "generic", frozenset())) == "cpu.target"


def test_intrinsics_of_the_target_are_allowed() -> None:
    assert b"fmax" in generate(caller("llvm.aarch64.neon.fmax.v4f32"), AARCH64, assembly=True)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_modules_are_compiled_in_order_on_any_number_of_threads(threads: int) -> None:
    texts = [adder(f"f{n}", 4 << n % 3) for n in range(7)]
    assert generate_all(texts, host(), threads) == [generate(text, host()) for text in texts]


def test_an_error_on_another_thread_is_raised_here() -> None:
    texts = [adder("f"), "nonsense", adder("g"), "more nonsense that is longer than the rest of them" * 9]
    with pytest.raises(CompilerError):
        generate_all(texts, host(), 3)
