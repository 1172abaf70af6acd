"""The C header of a program compiled ahead of time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from hloom.buffers.buffers import ALIGNMENT, leaf_bytes, leaves
from hloom.codegen.target import Target
from hloom.cpu.jit.llvm import names
from hloom.errors import plural
from hloom.ir.module import HloModule
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape

_HEADER: Final = """\
/* {name}: {title}, compiled by hloom for {triple} ({cpu}).
 *
 * {name}_run runs the program. It takes the addresses of the arguments' arrays, of the results' arrays, and
 * of {macro}_TEMP_BYTES bytes for temporaries, at a multiple of {macro}_TEMP_ALIGNMENT.
 * All of this memory is the caller's, before and after; results and temporaries overlap nothing else.
 * Arrays are whole and in rows (the last index runs fastest), whatever layouts the program states; tuples are
 * given element by element. Elements narrower than a byte take one each.
 * {threading}
 *
{arrays}
 */
#ifndef {guard}
#define {guard}

#define {macro}_ARGUMENTS {arguments}
#define {macro}_RESULTS {results}
#define {macro}_TEMP_BYTES {temp_bytes}
#define {macro}_TEMP_ALIGNMENT {alignment}
{sizes}

#ifdef __cplusplus
extern "C" {{
#endif

void {name}_run(const void** arguments, void** results, void* temp);
{stop}
#ifdef __cplusplus
}}
#endif

#endif
"""
_ONE_THREAD: Final = "It may run several times at once, with results and temporaries of their own."
_MANY_THREADS: Final = """\
It may run several times at once, with results and temporaries of their own.
 * Up to {threads} threads compute. They start with the first run that has work for them, and serve one run at
 * a time: one that begins meanwhile computes alone. {name}_stop ends them; call it while nothing runs,
 * before the code is unloaded, and before a fork whose child is to run the program."""
_C_TYPES: Final = {
    "pred": "uint8_t, 0 or 1",
    "f32": "float",
    "f64": "double",
    "f16": "uint16_t, the bits of an IEEE half",
    "bf16": "uint16_t, the upper half of a float",
    "c64": "float[2], real and imaginary part",
    "c128": "double[2], real and imaginary part",
}


def header_text(module: HloModule, target: Target, name: str, *, temp_bytes: int, threads: int) -> str:
    """Return the C header of a program; its names begin with ``name``."""
    parameters = module.entry.parameters
    arguments = [(_place(p.name, index), shape) for p in parameters for index, shape in leaves(p.shape)]
    results = [(_place("", index), shape) for index, shape in leaves(module.entry.root.shape)]
    macro = name.upper()
    return _HEADER.format(
        name=name,
        title=_in_comment(f"the HLO program {module.name}"),
        triple=target.triple,
        cpu=names(target)[0],
        macro=macro,
        guard=f"HLOOM_{macro}_H",
        threading=_MANY_THREADS.format(threads=threads, name=name) if threads > 1 else _ONE_THREAD,
        arrays="\n".join([*_described("arguments", arguments), *_described("results", results)]),
        arguments=len(arguments),
        results=len(results),
        temp_bytes=temp_bytes,
        alignment=ALIGNMENT,
        sizes="\n".join([*_sizes(f"{macro}_ARGUMENT", arguments), *_sizes(f"{macro}_RESULT", results)]),
        stop=f"void {name}_stop(void);\n" if threads > 1 else "",
    )


def _place(name: str, index: tuple[int, ...]) -> str:
    return ".".join([*([name] if name else []), *map(str, index)])


def _described(which: str, arrays: Sequence[tuple[str, Shape]]) -> Iterator[str]:
    """Yield a comment line for each array: type, shape, size in bytes."""
    for number, (path, shape) in enumerate(arrays):
        form = shape.to_string(layout=False)
        what = (
            f"{form} of {c_type(shape.element_type)}; {plural(leaf_bytes(shape), 'byte')}"
            if shape.is_array
            else form
        )
        label = f"{_in_comment(path)}: " if path else ""
        yield f" *   {which}[{number}]  {label}{what}"


def _sizes(prefix: str, arrays: Sequence[tuple[str, Shape]]) -> Iterator[str]:
    for number, (_, shape) in enumerate(arrays):
        yield f"#define {prefix}_{number}_BYTES {leaf_bytes(shape)}"


def _in_comment(text: str) -> str:
    """Replace what could end a C comment or its line by ``_``."""
    return re.sub(r"[^ -~]|\\|\*/|/\*|\?\?", "_", text)


def c_type(element_type: ElementType) -> str:
    """Return the C type of an element type, with a note on its encoding."""
    name = _C_TYPES.get(element_type.name)
    if name is not None:
        return name
    bits = max(8, element_type.bits)
    if element_type.is_integer:
        return f"{'u' if element_type.is_unsigned else ''}int{bits}_t"
    return f"uint{bits}_t, the bits of {element_type.name}"
