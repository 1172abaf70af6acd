"""Direct access to the fields of numpy arrays: calls of numpy's C API take longer than small programs."""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I32, I64, PTR, VOID, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import load_element
from hloom.codegen.llvm.routines import External, routine
from hloom.codegen.llvm.structured import is_null, is_zero
from hloom.cpu.runtime.numpy_interface import ALIGNED, ARRAY, C_CONTIGUOUS, OWNS_DATA, WRITABLE
from hloom.cpu.runtime.routines.memory import hloom_give, hloom_take
from hloom.cpu.runtime.structs import DESCRIPTOR, INPUT, OUTPUT

_SMALL_BYTES: Final = 1024
"""Size from which arrays use recycled memory."""
_FLAGS: Final = C_CONTIGUOUS | ALIGNED
add_reference: Final = External("Py_IncRef", VOID, PTR)


@routine(PTR, array=ARRAY, type=PTR, expected=INPUT)
def matching_data(f: Function, array: Fields, type: Value, expected: Fields) -> Value:
    """Emit a routine that returns the address of the data of an argument, a Python object.

    It returns null unless the argument is an aligned, row-major array with the element type and the sizes of
    ``expected``. ``type`` is the Python type ``numpy.ndarray``.
    """
    f.return_if(array["type"].compare("ne", type), 0)
    rank = array["rank"].cast("sext", I64)
    matches = array["dtype"].compare("eq", expected["dtype"]) & rank.compare("eq", expected["rank"])
    f.return_if(~(matches & (array["flags"] & _FLAGS).compare("eq", _FLAGS)), 0)
    sizes, expected_sizes = array["dimensions"], expected["dimensions"]
    with f.loop(0, rank) as loop:
        size, expected_size = (load_element(I64, s, loop.index) for s in (sizes, expected_sizes))
        f.return_if(size.compare("ne", expected_size), 0)
    return array["data"]


@routine(I32, descriptor=DESCRIPTOR, objects=PTR, sources=PTR)
def may_donate(f: Function, descriptor: Fields, objects: Value, sources: Value) -> Value:
    """Emit a routine that returns whether donated arguments are writable and overlap no other argument.

    It returns 1 if so, else 0. ``objects`` is the table of the arguments, ``sources`` that of the addresses
    of their data.
    """
    inputs, count = Fields(INPUT, descriptor["inputs"]), descriptor["input_count"]
    with f.loop(0, count) as loop, f.when(inputs.at(loop.index)["donated"].compare("ne", 0)):
        array = Fields(ARRAY, load_element(PTR, objects, loop.index))
        f.return_if((array["flags"] & WRITABLE).compare("eq", 0), 0)
        begin = load_element(PTR, sources, loop.index)
        end = f.offset(begin, inputs.at(loop.index)["bytes"])
        with f.loop(0, count) as others, f.when(others.index.compare("ne", loop.index)):
            other = load_element(PTR, sources, others.index)
            other_end = f.offset(other, inputs.at(others.index)["bytes"])
            f.return_if(begin.compare("ult", other_end) & other.compare("ult", end), 0)
    return f.constant(I32, 1)


@routine(PTR, descriptor=DESCRIPTOR, output=OUTPUT)
def new_array(f: Function, descriptor: Fields, output: Fields) -> Value:
    """Emit a routine that returns a new NumPy array for a program's result, described by ``output``.

    If out of memory, it returns null with an exception set.
    """
    dtype = output["dtype"]
    add_reference(f, dtype)  # owned by the new array

    def call_numpy(data: Value | int, flags: int) -> Value:
        none = f.constant(PTR, 0)
        rank, sizes = output["rank"].cast("trunc", I32), output["dimensions"]
        memory, bits = f.operand(PTR, data), f.constant(I32, flags)
        function, type = descriptor["new_from_descr"], descriptor["array_type"]
        return f.call_pointer(PTR, function, type, dtype, rank, sizes, none, memory, bits, none)

    with f.when(output["bytes"].compare("ult", _SMALL_BYTES)):
        f.return_value(call_numpy(0, 0))
    memory = descriptor["memory"]
    data = hloom_take(f, memory, output["bytes"])
    with f.when(is_null(data)):
        f.return_value(call_numpy(0, 0))
    array = Fields(ARRAY, call_numpy(data, _FLAGS | WRITABLE))
    with f.when(is_null(array.pointer)):
        hloom_give(f, memory, data)
        f.return_value(0)
    array["flags"] = array["flags"] | OWNS_DATA
    add_reference(f, descriptor["handler"])
    array["handler"] = descriptor["handler"]
    return array.pointer


@routine(PTR, descriptor=DESCRIPTOR, output=OUTPUT, objects=PTR)
def output_array(f: Function, descriptor: Fields, output: Fields, objects: Value) -> Value:
    """Emit a routine that returns a new reference to the array for a program's result.

    The array is a donated argument, or a new array. If out of memory, the routine returns null with an
    exception set. ``output`` describes the result, ``objects`` is the table of the arguments.
    """
    donor = output["donor"]
    with f.when(is_zero(donor)):
        f.return_value(new_array(f, descriptor, output))
    array = load_element(PTR, objects, donor - 1)
    add_reference(f, array)
    return array
