"""Dumps of a program's compilation, under the names of XLA:CPU's dumps.

``XLA_FLAGS=--xla_dump_to=DIR`` makes every compilation write, for the program NAME::

    module_0000.NAME.before_optimizations.txt
    module_0000.NAME.0003.simplification.after_algsimp.before_dce.txt       --xla_dump_hlo_pass_re=EXPRESSION
    module_0000.NAME.cpu_after_optimizations.txt
    module_0000.NAME.cpu_after_optimizations-buffer-assignment.txt
        module_0000.NAME.ir-no-opt.ll, .ir-with-opt.ll                          equal: the IR is not optimized
    module_0000.NAME.s, .obj-file.part0.o
    module_0000.NAME.execution_0000.hlo_snapshot.pb                         --xla_dump_hlo_snapshots
    module_0000.NAME.debug_options

The flags are those of `hloom.cpu.dump_options`. A program that is dumped is always compiled, even if the
cache has an entry for it.
"""

from __future__ import annotations

import gzip
import itertools
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from hloom.buffers.report import buffer_report
from hloom.codegen.target import Target
from hloom.cpu.dump_options import STANDARD_OUTPUT, DumpOptions, dump_options
from hloom.cpu.jit.cache import Entry
from hloom.cpu.jit.llvm import generate_module
from hloom.cpu.kernel_report import kernel_report
from hloom.cpu.program import KERNELS, NativeProgram, assign_program
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.ir.value import Value
from hloom.passes.pipeline import Pass, Pipeline
from hloom.plan.kernel import plan_program
from hloom.shape.literal import Literal

_MOST_CHARACTERS: Final = 255
_numbers: Final = itertools.count()


def begin_dump(module: HloModule, pipeline: Pipeline, flags: str = "") -> Dump | None:
    """Return the writer of a module's dump files; None if the dump flags do not select the module.

    The flags are those in the environment variable ``XLA_FLAGS``, then ``flags``, which override them. The
    writer has already written the module before ``pipeline``, the passes that will run. Raises HloError for
    malformed flags, and if the directory cannot be written (rule ``dump.directory``).
    """
    options = dump_options(os.environ.get("XLA_FLAGS", ""), flags)
    if not options.directory or not re.search(options.dump_hlo_module_re, module.name):
        return None
    number = next(_numbers)
    if 0 <= options.dump_max_hlo_modules <= number:
        return None
    return Dump(options, module, pipeline, number)


class Dump:
    """Writes the dump files of one module: HLO before, between and after passes, LLVM IR, machine code.

    Args:
        options: the dump flags.
        module: the module before compilation, which is written at once.
        pipeline: the passes that will run.
        number: the index of the module among the dumped ones, part of its file names.
    """

    def __init__(self, options: DumpOptions, module: HloModule, pipeline: Pipeline, number: int) -> None:
        self._options = options
        self._given = module
        self._name = re.sub(r"[/\\\[\] \0]", "_", module.name)
        self._number = number
        self._prefix = f"{time.time_ns() // 1000}." if options.dump_include_timestamp else ""
        self._places = {id(item): (title, before) for title, item, before in _places(pipeline)}
        self._passes = itertools.count()
        self._executions = itertools.count()
        self._write_module("before_optimizations", module)
        self._write("debug_options", options.text_form())
        self._write_between(pipeline.title, "pipeline-start", _title(pipeline.passes[0]), module)

    @property
    def snapshots(self) -> bool:
        """Return whether the arguments and the result of every run are written to a snapshot file."""
        return self._options.dump_hlo_snapshots

    def after_pass(self, item: Pass, module: HloModule) -> None:
        """Write ``module`` if the flags ask for it; called when the pass ``item`` has changed the module."""
        title, before = self._places[id(item)]
        self._write_between(title, item.name, before, module)

    def compiled(self, module: HloModule, program: NativeProgram, entry: Entry, target: Target) -> None:
        """Write the optimized module, its kernel plans and buffers, LLVM IR, assembly and object files."""
        self._write_module("cpu_after_optimizations", module)
        plans = plan_program(module, KERNELS, target)
        self._write("cpu_after_optimizations-kernel-plans.txt", kernel_report(plans.values(), program))
        report = buffer_report(module, assign_program(module, plans))
        self._write("cpu_after_optimizations-buffer-assignment.txt", report)
        text = program.text
        self._write("ir-no-opt.ll", text)
        self._write("ir-with-opt.ll", text)
        self._write("s", generate_module(program.module, assembly=True))
        for number, code in enumerate(entry.parts[: len(entry.parts) - len(program.module.data)]):
            self._write(f"obj-file.part{number}.o", code)

    def executed(self, arguments: Sequence[Value], result: Value) -> None:
        """Write a snapshot of a run: the module before compilation, the arguments and the result."""
        from hloom.proto.snapshot import snapshot_message

        module = self._given
        shapes = [p.shape for p in module.entry.parameters]
        literals = [Literal(a, s) for a, s in zip(arguments, shapes, strict=True)]
        message = snapshot_message(module, (tuple(literals),), Literal(result, module.entry.root.shape))
        name = f"execution_{next(self._executions):04d}.hlo_snapshot.pb"
        self._write(name, message.SerializeToString(deterministic=True))

    # -- files

    def _write_between(self, pipeline: str, after: str, before: str, module: HloModule) -> None:
        if self._options.wants_pass(pipeline, after, before):
            name = f"{next(self._passes):04d}.{pipeline}.after_{after}.before_{before}"
            self._write_module(name.replace(" ", "_"), module)

    def _write_module(self, name: str, module: HloModule) -> None:
        """Write a module as text, as a serialized proto, or as both, as the flags say.

        ``name``: the end of the file names, without extension.
        """
        options = self._options
        if options.as_text:
            form = PrintOptions() if options.dump_hlo_as_long_text else PrintOptions.short_parsable()
            form = form.replace(
                print_large_constants=options.dump_large_constants,
                print_metadata=form.print_metadata and not options.dump_disable_metadata,
            )
            self._write(f"{name}.txt", module.to_text(form))
        if options.dump_hlo_as_proto:
            from hloom.proto.text_form import container_bytes

            data = container_bytes(module)
            if options.dump_compress_protos:
                self._write(f"{name}.hlo.pb.gz", gzip.compress(data, mtime=0))
            else:
                self._write(f"{name}.hlo.pb", data)

    def _write(self, suffix: str, content: str | bytes) -> None:
        """Write a file whose name ends in ``suffix``, or print it if the flags name standard output.

        Only text is printed: bytes are not.
        """
        head = f"{self._prefix}module_{self._number:04d}"
        name = f"{head}.{self._name}.{suffix}"
        if len(name) > _MOST_CHARACTERS:
            name = f"{head}.{suffix}"
        if self._options.directory == STANDARD_OUTPUT:
            if isinstance(content, str):
                sys.stdout.write(f"*** Begin {name} ***\n{content}\n*** End {name} ***\n")
            return
        data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
        folder = Path(self._options.directory)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        except OSError as error:
            message = f"cannot write {folder / name}: {error.strerror}"
            raise HloError(message, rule="dump.directory") from None


def _places(pipeline: Pipeline) -> Iterator[tuple[str, Pass, str]]:
    """Yield (pipeline title, pass, what follows) for each pass of a pipeline and of pipelines nested in it.

    What follows is the name of the next pass, or the title of the next pipeline, in the same pipeline; after
    the last one it is ``pipeline-end``.
    """
    for number, item in enumerate(pipeline.passes):
        following = pipeline.passes[number + 1 :][:1]
        before = next((_title(other) for other in following), "pipeline-end")
        if isinstance(item, Pipeline):
            yield from _places(item)
        else:
            yield pipeline.title, item, before


def _title(item: Pass) -> str:
    return item.title if isinstance(item, Pipeline) else item.name
