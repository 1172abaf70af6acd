"""The entry from Python to programs: a builtin function (METH_FASTCALL) of numpy arrays.

The ``self`` of the builtin is a numpy array that holds the descriptor of the program. Arguments that are not
arrays of exactly the expected type and layout go to the fallback, a Python callable that converts them or
raises an error.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I32, I64, PTR, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import load_element, store_element
from hloom.codegen.llvm.routines import External, routine
from hloom.codegen.llvm.structured import LocalVariable, choose, is_null, is_zero
from hloom.cpu.runtime.numpy_interface import ARRAY
from hloom.cpu.runtime.routines.host import call_object, drop_object
from hloom.cpu.runtime.routines.interruption import hloom_execute
from hloom.cpu.runtime.routines.memory import hloom_give, hloom_take
from hloom.cpu.runtime.routines.numpy_arrays import matching_data, may_donate, output_array
from hloom.cpu.runtime.structs import DESCRIPTOR, INPUT, OUTPUT

new_tuple: Final = External("PyTuple_New", PTR, I64)
set_item: Final = External("PyTuple_SetItem", I32, PTR, I64, PTR)


@routine(PTR, descriptor=DESCRIPTOR)
def borrow_arena(f: Function, descriptor: Fields) -> Value:
    """Emit a routine that returns an arena, the memory of all temporaries of a run; null if out of memory.

    It is the arena that ``descriptor`` keeps between the program's runs, or a new one while another run uses
    that.
    """
    bytes, memory = descriptor["arena_bytes"], descriptor["memory"]
    with f.when(descriptor["arena_used"].compare("ne", 0)):
        f.return_value(hloom_take(f, memory, bytes))
    with f.when(is_null(descriptor["arena"])):
        descriptor["arena"] = hloom_take(f, memory, bytes)
        f.return_if(is_null(descriptor["arena"]), 0)
    descriptor["arena_used"] = 1
    return descriptor["arena"]


@routine(descriptor=DESCRIPTOR, arena=PTR)
def return_arena(f: Function, descriptor: Fields, arena: Value) -> None:
    """Emit a routine that ends the use of an arena that `borrow_arena` has returned.

    The arena that ``descriptor`` keeps is marked as unused; any other arena is freed.
    """
    with choose(f, descriptor["arena"].compare("eq", arena)) as choice:
        descriptor["arena_used"] = 0
        choice.otherwise()
        hloom_give(f, descriptor["memory"], arena)


@routine(arrays=PTR, count=I64)
def drop_arrays(f: Function, arrays: Value, count: Value) -> None:
    """Emit a routine that releases the references to the ``count`` NumPy arrays in a table."""
    with f.loop(0, count) as loop:
        drop_object(f, load_element(PTR, arrays, loop.index))


@routine(I32, inline=True, descriptor=DESCRIPTOR, sources=PTR, targets=PTR, arena=PTR)
def run_program(f: Function, descriptor: Fields, sources: Value, targets: Value, arena: Value) -> Value:
    """Emit a routine that runs the program of ``descriptor``; it returns the status, 0 for success.

    If the program runs for long, the GIL is released meanwhile. ``sources`` and ``targets`` are tables of the
    addresses of arguments and results, ``arena`` is the memory of temporaries.
    """
    program, context = descriptor["program"], descriptor["context"]
    with f.when(is_zero(descriptor["long"])):
        f.return_value(f.call_pointer(I32, program, sources, targets, arena, context))
    return hloom_execute(f, program, sources, targets, arena, context)


@routine(PTR, arrays=PTR, count=I64)
def tuple_of(f: Function, arrays: Value, count: Value) -> Value:
    """Emit a routine that returns a new Python tuple of the ``count`` NumPy arrays in a table.

    The tuple takes over the references to the arrays. If out of memory, the routine releases them and returns
    null.
    """
    items = new_tuple(f, count)
    with f.when(is_null(items)):
        drop_arrays(f, arrays, count)
        f.return_value(0)
    with f.loop(0, count) as loop:
        set_item(f, items, loop.index, load_element(PTR, arrays, loop.index))
    return items


@routine(PTR, exported=True, self=ARRAY, objects=PTR, count=I64)
def hloom_call(f: Function, self: Fields, objects: Value, count: Value) -> Value:
    """Emit the routine that Python calls to run a program on ``count`` objects, its arguments.

    ``self`` is a NumPy array that holds the struct `DESCRIPTOR` of the program. The routine returns the
    result, or null with an exception set. If the arguments are not arrays of exactly the expected types,
    shapes and layouts, it calls the fallback function in the descriptor.
    """
    descriptor = Fields(DESCRIPTOR, self["data"])
    inputs, outputs = descriptor["input_count"], descriptor["output_count"]
    sources, targets, arrays = (
        f.allocate_bytes(number * PTR.size, align=PTR.size) for number in (inputs, outputs, outputs)
    )

    def call_fallback() -> None:
        f.return_value(call_object(f, descriptor["fallback"], objects, count, 0))

    with f.when(count.compare("ne", inputs)):
        call_fallback()
    with f.loop(0, inputs) as loop:
        expected = Fields(INPUT, descriptor["inputs"]).at(loop.index)
        argument = load_element(PTR, objects, loop.index)
        source = matching_data(f, argument, descriptor["array_type"], expected)
        with f.when(is_null(source)):
            call_fallback()
        store_element(sources, loop.index, source)
    with f.when(is_zero(may_donate(f, descriptor, objects, sources))):
        call_fallback()  # raises the error
    with f.loop(0, outputs) as loop:
        output = Fields(OUTPUT, descriptor["outputs"]).at(loop.index)
        array = Fields(ARRAY, output_array(f, descriptor, output, objects))
        with f.when(is_null(array.pointer)):
            drop_arrays(f, arrays, loop.index)
            f.return_value(0)
        store_element(arrays, loop.index, array.pointer)
        store_element(targets, loop.index, array["data"])
    arena = LocalVariable(f, PTR, 0)
    with f.when(descriptor["arena_bytes"].compare("ne", 0)):
        arena.set(borrow_arena(f, descriptor))
        with f.when(is_null(arena.get())):
            drop_arrays(f, arrays, outputs)
            call_fallback()  # raises the error
    status = run_program(f, descriptor, sources, targets, arena.get())
    with f.when(~is_null(arena.get())):
        return_arena(f, descriptor, arena.get())
    with f.when(status.compare("ne", 0)):
        drop_arrays(f, arrays, outputs)
        f.return_value(0)
    f.return_if(is_zero(descriptor["is_tuple"]), f.load(PTR, arrays))
    return tuple_of(f, arrays, outputs)
