"""Packed forms of arguments, kept beside arrays that executions read again and again.

Weights that are arguments are packed by every execution, unless the array keeps its packed form
(`hloom.cpu.packed_arguments`). An array gets one when it is used for the `USES`-th time: that execution fills
it. It lives as long as the array's storage; a storage that a result takes over loses it.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I32, I64, PTR, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import load_element, store_element
from hloom.codegen.llvm.routines import routine
from hloom.codegen.llvm.structured import is_null, is_zero
from hloom.jax.pjrt.routines.buffers import PACKED_MEMORY, forget_packed_form, pjrt_take
from hloom.jax.pjrt.structs import EXECUTABLE, PACKED, PACKED_FORM, STORAGE

USES: Final = 4
"""Executions that read an array before its packed form is kept: weights in training are read by fewer."""


@routine(exported=True, bytes=I64)
def pjrt_set_packed_limit(f: Function, bytes: Value) -> None:
    """Emit a native function that sets the limit, in bytes, of the memory of all packed forms together.

    Packed forms are copies of arrays in the order that kernels read.
    """
    PACKED_MEMORY(f)["limit"] = bytes


@routine(I64, exported=True)
def pjrt_packed_bytes(f: Function) -> Value:
    """Emit a native function that returns how many bytes of memory all packed forms take.

    Packed forms are copies of arrays in the order that kernels read.
    """
    return PACKED_MEMORY(f).atomic("bytes").load("monotonic")


@routine(I64, storage=STORAGE, packed=PACKED)
def packed_form_word(f: Function, storage: Fields, packed: Fields) -> Value:
    """Emit a native function that returns the word that tells a program about an argument's packed form.

    The packed form is a copy of the argument in the order that the program's kernels read. The word is 0 if
    there is no copy in this order, else the address of the copy. The lowest bit of the address is 1 if the
    copy is only allocated, so that the program has to write it.
    """
    head = PACKED_FORM.size
    kept = storage.atomic("packed").load("acquire")
    with f.when(~is_zero(kept)):
        is_same = Fields(PACKED_FORM, f.convert("inttoptr", kept, PTR))["form"].compare("eq", packed["form"])
        f.return_value(is_same.select(kept + head, 0))
    uses = storage.atomic("uses").add(1, "monotonic")
    f.return_if(uses.compare("ne", USES - 1), 0)
    bytes = packed["bytes"] + head
    total = PACKED_MEMORY(f).atomic("bytes").add(bytes, "monotonic") + bytes
    with f.when(total.compare("ugt", PACKED_MEMORY(f)["limit"])):
        PACKED_MEMORY(f).atomic("bytes").subtract(bytes, "monotonic")
        storage.atomic("uses").store(0, "monotonic")
        f.return_value(0)
    memory = pjrt_take(f, bytes)
    with f.when(is_null(memory)):
        PACKED_MEMORY(f).atomic("bytes").subtract(bytes, "monotonic")
        f.return_value(0)
    form = Fields(PACKED_FORM, memory)
    form["bytes"], form["form"] = bytes, packed["form"]
    return f.convert("ptrtoint", memory, I64) + (head + 1)


@routine(executable=EXECUTABLE, sources=PTR, storages=PTR)
def find_packed_forms(f: Function, executable: Fields, sources: Value, storages: Value) -> None:
    """Emit a native function that looks up the packed forms of the arguments of one device.

    Packed forms are copies of arrays in the order that kernels read. For each argument that may have one, the
    function stores what `packed_form_word` returns (0 or an address) in the table ``sources``, after the
    addresses of the inputs.
    """
    words = f.offset(sources, executable["num_inputs"], PTR)
    with f.loop(0, executable["num_packed"]) as loop:
        packed = Fields(PACKED, executable["packed"]).at(loop.index)
        storage = Fields(STORAGE, load_element(PTR, storages, packed["argument"]))
        store_element(words, loop.index, packed_form_word(f, storage, packed))


@routine(executable=EXECUTABLE, sources=PTR, storages=PTR, status=I32)
def keep_packed_forms(
    f: Function, executable: Fields, sources: Value, storages: Value, status: Value
) -> None:
    """Emit a native function that stores the packed forms written by an execution, for later executions.

    Packed forms are copies of argument arrays in the order that kernels read; the function stores their
    addresses in the arrays' storages. If ``status`` is not 0, the execution ended early, and the function
    frees the copies that the execution should have written.
    """
    words = f.offset(sources, executable["num_inputs"], PTR)
    with f.loop(0, executable["num_packed"]) as loop:
        word = load_element(I64, words, loop.index)
        with f.when(~is_zero(word & 1)):
            packed = Fields(PACKED, executable["packed"]).at(loop.index)
            storage = Fields(STORAGE, load_element(PTR, storages, packed["argument"]))
            storage.atomic("packed").store(word - (PACKED_FORM.size + 1), "release")
            with f.when(~is_zero(status)):
                forget_packed_form(f, storage)
