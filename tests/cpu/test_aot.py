"""Programs compiled ahead of time: C programs link them, and get the evaluator's results."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hloom
from hloom import HloError, HloModule
from hloom.codegen.target import Target
from hloom.cpu.program import NativeProgram, emit_program
from hloom.debug.inputs import random_arguments
from hloom.tools.cli import main
from hloom.tools.commands.aot import CompiledObject, compile_ahead
from hloom.tools.console.arguments import leaves_of
from tests import agreement
from tests.aarch64.environment import started
from tests.evaluation import parse
from tests.reducers import with_reducers

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang") or ""
needs_compiler = pytest.mark.skipif(not COMPILER, reason="no C compiler")

DENSE = with_reducers("""
HloModule dense-layer

ENTRY main {
  x = f32[20,16] parameter(0)
  w = f32[16,24] parameter(1)
  b = f32[24] constant({0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23})
  d = f32[20,24] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  spread = f32[20,24] broadcast(b), dimensions={1}
  e = f32[20,24] add(d, spread)
  t = f32[20,24] tanh(e)
  zero = f32[] constant(0)
  r = f32[20] reduce(t, zero), dimensions={1}, to_apply=add
  ROOT both = (f32[20], f32[20,24]) tuple(r, t)
}
""")
LOOP = """
HloModule loop

more { s = (s32[], f64[50]) parameter(0)  i = s32[] get-tuple-element(s), index=0
       n = s32[] constant(9)  ROOT c = pred[] compare(i, n), direction=LT }
step { s = (s32[], f64[50]) parameter(0)  i = s32[] get-tuple-element(s), index=0
       x = f64[50] get-tuple-element(s), index=1  one = s32[] constant(1)  j = s32[] add(i, one)
       y = f64[50] sine(x)  ROOT t = (s32[], f64[50]) tuple(j, y) }
double { x = f64[50] parameter(0)  ROOT y = f64[50] add(x, x) }
negate { x = f64[50] parameter(0)  ROOT y = f64[50] negate(x) }

ENTRY main {
  p = ((f64[50], pred[]), s32[]) parameter(0)
  pair = (f64[50], pred[]) get-tuple-element(p), index=0
  x = f64[50] get-tuple-element(pair), index=0
  c = pred[] get-tuple-element(pair), index=1
  i = s32[] get-tuple-element(p), index=1
  s = (s32[], f64[50]) tuple(i, x)
  w = (s32[], f64[50]) while(s), condition=more, body=step
  y = f64[50] get-tuple-element(w), index=1
  ROOT r = f64[50] conditional(c, y, y), true_computation=double, false_computation=negate
}
"""
TABLE = f"""
HloModule table

ENTRY main {{
  i = s32[7] parameter(0)
  table = f32[2048] constant({{{",".join(map(str, range(2048)))}}})
  at = s32[7,1] reshape(i)
  g = f32[7] gather(table, at), offset_dims={{}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
    index_vector_dim=1, slice_sizes={{1}}
  ROOT r = (f32[7], f32[2048]) tuple(g, table)
}}
"""
TYPES = """
HloModule types

order { a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT c = pred[] compare(a, b), direction=GT }

ENTRY main {
  h = f16[33] parameter(0)
  b = bf16[33] parameter(1)
  c = c64[33] parameter(2)
  n = s4[33] parameter(3)
  q = pred[33] parameter(4)
  empty = f32[0,3] parameter(5)
  hh = f16[33] multiply(h, h)
  sorted = bf16[33] sort(b), dimensions={0}, to_apply=order
  cc = c64[33] multiply(c, c)
  nn = s4[33] add(n, n)
  qq = pred[33] not(q)
  gone = f32[0,3] negate(empty)
  inner = (bf16[33], c64[33]) tuple(sorted, cc)
  ROOT r = (f16[33], (bf16[33], c64[33]), s4[33], pred[33], f32[0,3]) tuple(hh, inner, nn, qq, gone)
}
"""
NOTHING = "HloModule nothing\n\nENTRY e {\n  ROOT c = s64[2] constant({-1, 5})\n}\n"
SHARED = """
HloModule shared

ENTRY main {
  x = f32[512,1024] parameter(0)
  y = f32[512,1024] exponential(x)
  z = f32[1024,512] transpose(y), dimensions={1,0}
  d = f32[512,512] dot(y, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[512,1024], f32[512,512]) tuple(y, d)
}
"""

MAIN = """\
#include "program.h"
#include <stdint.h>
#include <stdio.h>

{arrays}
static unsigned char temp[{macro}_TEMP_BYTES + {macro}_TEMP_ALIGNMENT];

void read_file(const char* name, void* to, size_t size) {{
  FILE* file = fopen(name, "rb");
  if (!file || fread(to, 1, size, file) != size) puts(name);
  fclose(file);
}}

int main(void) {{
  const void* arguments[{macro}_ARGUMENTS + 1] = {{{arguments}}};
  void* results[{macro}_RESULTS + 1] = {{{results}}};
  unsigned char* aligned = temp + (-(uintptr_t)temp) % {macro}_TEMP_ALIGNMENT;
{reads}
  for (int run = 0; run < {runs}; run++) {{
    {name}_run(arguments, results, aligned);
    {stop}
  }}
{writes}
  return 0;
}}
"""


class Linked:
    """A C program that runs a compiled program some times on files of arguments."""

    def __init__(self, compiled: CompiledObject, module: HloModule, folder: Path, runs: int = 1) -> None:
        self.module, self.folder = module, folder
        compiled.save(folder / "program.o", folder / "program.h")
        (folder / "main.c").write_text(self.source(compiled, runs))
        options = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-I."]
        command = [COMPILER, *options, "main.c", "program.o", "-o", "main", "-lm", "-pthread"]
        made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr

    def source(self, compiled: CompiledObject, runs: int) -> str:
        macro = compiled.name.upper()
        inputs = range(compiled.header.count(f"#define {macro}_ARGUMENT_"))
        outputs = range(compiled.header.count(f"#define {macro}_RESULT_"))
        arrays = [f"static unsigned char in{n}[{macro}_ARGUMENT_{n}_BYTES + 1];" for n in inputs]
        arrays += [f"static unsigned char out{n}[{macro}_RESULT_{n}_BYTES + 1];" for n in outputs]
        return MAIN.format(
            name=compiled.name,
            macro=macro,
            runs=runs,
            arrays="\n".join(arrays),
            arguments=", ".join([*(f"in{n}" for n in inputs), "0"]),
            results=", ".join([*(f"out{n}" for n in outputs), "0"]),
            reads="\n".join(f'  read_file("in{n}", in{n}, {macro}_ARGUMENT_{n}_BYTES);' for n in inputs),
            writes="\n".join(f"  fwrite(out{n}, 1, {macro}_RESULT_{n}_BYTES, stdout);" for n in outputs),
            stop=f"{compiled.name}_stop();" if "_stop(void);" in compiled.header else "",
        )

    def __call__(self, arguments: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """Return the leaves of the result."""
        for number, array in enumerate(leaves(tuple(arguments))):
            (self.folder / f"in{number}").write_bytes(np.ascontiguousarray(array).tobytes())
        made = subprocess.run(started(self.folder / "main"), cwd=self.folder, capture_output=True, check=True)
        found, at = list[np.ndarray[Any, Any]](), 0
        for _, shape in self.module.entry.root.shape.leaves():
            if shape.is_array:
                dtype = shape.element_type.numpy_dtype
                size = shape.element_count * dtype.itemsize
                data = np.frombuffer(made.stdout[at : at + size], dtype)
                found.append(data.reshape(shape.dimensions))
                at += size
        assert at == len(made.stdout)
        return found


def leaves(value: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(array) for _, array in leaves_of(value)]


def evaluated(module: HloModule, arguments: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    return leaves(hloom.compile(module, backend="evaluator")(*arguments))


@needs_compiler
@pytest.mark.parametrize("text", [DENSE, LOOP, TABLE, TYPES, NOTHING], ids=lambda t: t.split()[1])
def test_a_c_program_links_it_and_gets_the_answer(tmp_path: Path, text: str) -> None:
    module = parse(text)
    arguments = random_arguments(module, seed=1)
    linked = Linked(compile_ahead(module), module, tmp_path)
    agreement.computed(linked(arguments), module, arguments)


@needs_compiler
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="code for another machine")
@pytest.mark.parametrize("text", [DENSE, LOOP, TYPES], ids=lambda t: t.split()[1])
def test_code_for_any_machine_of_the_architecture(tmp_path: Path, text: str) -> None:
    """Functions that x86-64 lacks, such as fused multiply-add, come from the C library."""
    module = parse(text)
    arguments = random_arguments(module, seed=2)
    linked = Linked(compile_ahead(module, Target.named("x86_64-linux-gnu")), module, tmp_path)
    agreement.computed(linked(arguments), module, arguments)


@needs_compiler
def test_threads_change_nothing(tmp_path: Path) -> None:
    """They are stopped after each run, and start again with the next."""
    module = parse(SHARED)
    arguments = random_arguments(module, seed=3)
    results: list[list[np.ndarray[Any, Any]]] = []
    for threads in (1, 3):
        folder = tmp_path / str(threads)
        folder.mkdir()
        compiled = compile_ahead(module, threads=threads)
        assert (b"pthread_create" in compiled.code) == (threads > 1)
        results.append(Linked(compiled, module, folder, runs=3)(arguments))
    agreement.computed(results[0], module, arguments)
    assert all(np.array_equal(one, three) for one, three in zip(*results, strict=True))


def test_programs_without_shared_work_have_a_stop_too() -> None:
    compiled = compile_ahead(parse(NOTHING), threads=2)
    assert b"nothing_stop" in compiled.code
    assert b"pthread_create" not in compiled.code


@pytest.mark.parametrize(
    ("triple", "machine"), [("aarch64-linux-gnu", 183), ("x86_64-linux-gnu", 62)], ids=["aarch64", "x86_64"]
)
@pytest.mark.parametrize("text", [DENSE, LOOP, TABLE, TYPES, SHARED], ids=lambda t: t.split()[1])
def test_objects_for_other_machines(triple: str, machine: int, text: str) -> None:
    compiled = compile_ahead(parse(text), Target.named(triple), threads=2)
    magic, bits, order, kind, found = struct.unpack_from("<4sBB10xHH", compiled.code)
    assert (magic, bits, order) == (b"\x7fELF", 2, 1)  # 64 bits, little-endian
    assert kind == 1  # relocatable
    assert found == machine
    assert triple in compiled.header


def test_the_header_says_what_goes_where() -> None:
    header = compile_ahead(parse(LOOP), name="solver").header
    assert "void solver_run(const void** arguments, void** results, void* temp);" in header
    for line in (
        "arguments[0]  p.0.0: f64[50] of double; 400 bytes",
        "arguments[1]  p.0.1: pred[] of uint8_t, 0 or 1; 1 byte",
        "arguments[2]  p.1: s32[] of int32_t; 4 bytes",
        "results[0]  f64[50] of double; 400 bytes",
        "#define SOLVER_ARGUMENTS 3",
        "#define SOLVER_RESULTS 1",
        "#define SOLVER_ARGUMENT_0_BYTES 400",
        "#define SOLVER_RESULT_0_BYTES 400",
        "#define SOLVER_TEMP_ALIGNMENT 64",
    ):
        assert line in header, line


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_the_header_is_for_cpp_too(tmp_path: Path) -> None:
    (tmp_path / "program.h").write_text(compile_ahead(parse(DENSE), threads=2).header)
    (tmp_path / "main.cc").write_text('#include "program.h"\nint main() { dense_layer_stop(); }\n')
    command = ["g++", "-Wall", "-Wextra", "-pedantic", "-Werror", "-c", "main.cc"]
    subprocess.run(command, cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    ("module_name", "name"),
    [("jit_f", "jit_f"), ("a.b-c", "a_b_c"), ("hloom", "program_hloom")],
)
def test_names_in_c(module_name: str, name: str) -> None:
    assert compile_ahead(parse(NOTHING.replace("nothing", module_name))).name == name


@pytest.mark.parametrize("name", ["a-b", "1st", "ä", "hloom"])
def test_names_that_c_does_not_take(name: str) -> None:
    with pytest.raises(HloError) as caught:
        compile_ahead(parse(NOTHING), name=name)
    assert caught.value.rule == "aot.name"


@pytest.mark.parametrize("threads", [0, -1, 5000])
def test_numbers_of_threads(threads: int) -> None:
    with pytest.raises(HloError) as caught:
        compile_ahead(parse(NOTHING), threads=threads)
    assert caught.value.rule == "aot.threads"


def test_what_needs_python_is_refused() -> None:
    text = """
HloModule m

ENTRY e {
  x = f32[4] parameter(0)
  ROOT y = f32[4] custom-call(x), custom_call_target="anything"
}
"""
    with pytest.raises(HloError, match=r"%y \(custom-call\)") as caught:
        compile_ahead(parse(text))
    assert caught.value.rule == "aot.host-call"


def test_sizes_known_only_at_run_time_are_refused() -> None:
    with pytest.raises(HloError, match="<=4") as caught:
        compile_ahead(parse("HloModule m\n\nENTRY e {\n  ROOT x = f32[<=4] parameter(0)\n}\n"))
    assert caught.value.rule == "aot.dynamic-shape"


def test_calls_that_no_c_library_answers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def emitted(module: HloModule, target: Target, **options: Any) -> NativeProgram:
        program = emit_program(module, target, **options)
        program.module.declare("memcpy", None, [])
        program.module.declare("PyObject_Call", None, [])
        return program

    monkeypatch.setattr("hloom.tools.commands.aot.emit_program", emitted)
    with pytest.raises(HloError, match=r"calls PyObject_Call, which") as caught:
        compile_ahead(parse(NOTHING))
    assert caught.value.rule == "aot.external"


# -- the command


def aot(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["aot", *map(str, arguments)], catch_exceptions=False)


def test_the_command_writes_both_files(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(DENSE)
    result = aot(
        tmp_path / "m.hlo", "-o", tmp_path / "model.o", "--header", tmp_path / "api.h", "--name", "dense"
    )
    assert result.exit_code == 0, result.output
    assert (tmp_path / "model.o").read_bytes()[:4] == b"\x7fELF"
    assert "dense_run" in (tmp_path / "api.h").read_text()


def test_the_command_for_another_machine(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(DENSE)
    result = aot(
        tmp_path / "m.hlo", "-o", tmp_path / "m.o", "--target", "aarch64-linux-gnu", "--cpu", "neoverse-v2"
    )
    assert result.exit_code == 0, result.output
    assert struct.unpack_from("<H", (tmp_path / "m.o").read_bytes(), 18) == (183,)
    assert "neoverse-v2" in (tmp_path / "m.h").read_text()


def test_the_command_says_what_it_cannot_do(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(DENSE)
    result = aot(tmp_path / "m.hlo", "--target", "sparc-linux-gnu")
    assert result.exit_code == 1
    assert "cpu.target-architecture" in result.output
