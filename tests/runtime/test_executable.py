"""Executables: compiling, calling, and what comes in and out."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloom
from hloom.devices.world import VirtualDevice
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.passes.pipeline import Pipeline
from hloom.runtime.backend import (
    Backend,
    CompileOptions,
    DeviceProgram,
    Program,
    backend_named,
    backend_names,
    register_backend,
    unregister_backend,
)
from tests.arrays import f32, f64
from tests.devices import executable, lists, program
from tests.evaluation import parse
from tests.reducers import ADD

DOUBLE = program("p = f32[2] parameter(0)\n ROOT r = f32[2] add(p, p)")


def refusal(call: Any) -> HloError:
    with pytest.raises(HloError) as caught:
        call()
    return caught.value


# -- calling


def test_arrays_in_and_out() -> None:
    exe = hloom.compile(parse(DOUBLE), backend="evaluator")
    result = exe(f32([1, 2]))
    assert isinstance(result, np.ndarray)
    assert (result.dtype, result.tolist()) == (np.float32, [2, 4])


@pytest.mark.parametrize("argument", [[1, 2], (1.0, 2), hloom.Literal(f32([1, 2])), f32([1, 2])])
def test_what_counts_as_an_argument(argument: Any) -> None:
    assert executable(DOUBLE)(argument).tolist() == [2, 4]


def test_python_numbers_become_the_type_of_the_parameter() -> None:
    text = program("""
      a = bf16[] parameter(0)
      b = u8[] parameter(1)
      c = pred[] parameter(2)
      d = c64[] parameter(3)
      ROOT t = (bf16[], u8[], pred[], c64[]) tuple(a, b, c, d)""")
    results = executable(text)(1.5, 200, True, 2)
    assert [r.dtype for r in results] == [ml_dtypes.bfloat16, np.uint8, np.bool_, np.complex64]
    assert [r.shape for r in results] == [()] * 4
    assert [complex(r) for r in results] == [1.5, 200, 1, 2]


def test_nested_tuples_and_tokens() -> None:
    text = program("""
      p = (f32[], (s32[2], token[])) parameter(0)
      ROOT r = ((f32[], (s32[2], token[]))) tuple(p)""")
    assert lists(executable(text)((1.0, ([1, 2], None)))) == [[1, [[1, 2], None]]]


@pytest.mark.parametrize("size", [0, 1, 4])
def test_a_dynamic_parameter_takes_any_size_up_to_its_bound(size: int) -> None:
    text = program("p = f32[<=4] parameter(0)\n ROOT r = f32[<=4] add(p, p)")
    assert executable(text)(np.ones(size, np.float32)).tolist() == [2.0] * size


def test_results_are_the_callers_own() -> None:
    text = program("""
      p = f32[2] parameter(0)
      c = f32[2] constant({1, 2})
      ROOT t = (f32[2], f32[2], f32[2]) tuple(p, c, c)""")
    exe = executable(text)
    argument = f32([5, 6])
    first, second, third = exe(argument)
    for array in (first, second, third):
        array[:] = 0
    second[0] = 9
    assert argument.tolist() == [5, 6]
    assert third.tolist() == [0, 0]
    assert lists(exe(argument)) == [[5, 6], [1, 2], [1, 2]]


def test_every_device_gets_its_own_array() -> None:
    text = program(
        "p = f32[2] parameter(0)\n ROOT r = f32[2] collective-broadcast(p), replica_groups={{0,1}}"
    )
    first, second = executable(text, replicas=2).run([[[1, 2]], [[3, 4]]])
    first[:] = 0
    assert second.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "rule", "words"),
    [
        ([], "run.argument-count", "the program takes 1 argument (p: f32[2]), got 0"),
        ([[1, 2], 3], "run.argument-count", "got 2"),
        ([f64([1, 2])], "run.argument", "argument 0 does not fit parameter %p of shape f32[2]"),
        ([f32([1, 2, 3])], "run.argument", "parameter %p"),
        ([f32([[1, 2]])], "run.argument", "parameter %p"),
        ([3.0], "run.argument", "parameter %p"),
        (["text"], "run.argument", "parameter %p"),
        ([[1, [2]]], "run.argument", "parameter %p"),
        ([None], "run.argument", "parameter %p"),
        ([{}], "run.argument", "parameter %p"),
        ([object()], "run.argument", "parameter %p"),
        ([hloom.Literal(f32([1]))], "run.argument", "a literal of shape f32[1]"),
    ],
)
def test_arguments_that_do_not_fit(arguments: list[Any], rule: str, words: str) -> None:
    error = refusal(lambda: executable(DOUBLE)(*arguments))
    assert error.rule == rule
    assert words in str(error)


@pytest.mark.parametrize(
    ("shape", "argument"),
    [
        ("s8[]", 300),
        ("u8[]", -1),
        ("s32[]", 1.5),
        ("(f32[], f32[])", (1.0,)),
        ("(f32[], f32[])", 1.0),
        ("token[]", 1),
        ("f32[<=2]", np.zeros(3, np.float32)),
        ("f32[<=2]", hloom.Literal(np.zeros(3, np.float32))),
        ("(f32[], f32[])", hloom.Literal((np.float32(1), np.int32(1)))),
        ("(f32[], f32[])", hloom.Literal((np.float32(1),))),
    ],
)
def test_values_that_do_not_fit(shape: str, argument: Any) -> None:
    exe = executable(program(f"ROOT p = {shape} parameter(0)"))
    assert refusal(lambda: exe(argument)).rule == "run.argument"


# -- several devices


def test_a_program_for_each_device() -> None:
    texts = [
        program(f"p = f32[] parameter(0)\n c = f32[] constant({n})\n ROOT r = f32[] multiply(p, c)")
        for n in (2, 3)
    ]
    assert lists(executable(*texts, replicas=2).run([[1.0], [1.0]])) == [2, 3]
    assert lists(executable(*texts, partitions=2).run([[1.0], [1.0]])) == [2, 3]
    assert executable(*texts).num_replicas == 2


def test_the_module_says_how_many_devices_it_wants() -> None:
    text = "HloModule m, replica_count=2, num_partitions=3\nENTRY e {\n ROOT r = u32[] partition-id()\n}"
    exe = hloom.compile(parse(text))
    assert (exe.num_replicas, exe.num_partitions) == (2, 3)
    assert [(d.replica, d.partition) for d in exe.devices] == [(r, p) for r in range(2) for p in range(3)]
    assert lists(exe.run([[]] * 6)) == [0, 1, 2, 0, 1, 2]
    assert repr(exe) == "<Executable m on 2 x 3 devices>"
    assert repr(exe.devices[1]) == "Device(replica=0, partition=1)"


def test_what_does_not_run_on_several_devices() -> None:
    exe = executable(DOUBLE, replicas=2)
    assert refusal(lambda: exe([1, 2])).rule == "run.one-device"
    assert refusal(lambda: exe.run([[[1, 2]]])).rule == "run.device-count"
    error = refusal(lambda: exe.run([[[1, 2]], []]))
    assert error.rule == "run.argument-count"
    assert "replica 1, partition 0: the program takes 1 argument" in str(error)


# -- compiling


@pytest.mark.parametrize(
    ("modules", "options", "rule"),
    [
        (1, {"backend": "abacus"}, "compile.backend"),
        (1, {"num_replicas": 0}, "compile.device-count"),
        (1, {"num_partitions": -1}, "compile.device-count"),
        (2, {"num_replicas": 3}, "compile.module-count"),
        (0, {}, "compile.modules"),
    ],
)
def test_what_does_not_compile(modules: int, options: dict[str, Any], rule: str) -> None:
    module = parse(DOUBLE)
    given: Any = module if modules == 1 else [module] * modules
    assert refusal(lambda: hloom.compile(given, **options)).rule == rule


def test_text_is_no_module() -> None:
    given: Any = [DOUBLE]
    assert refusal(lambda: hloom.compile(given)).rule == "compile.modules"


def test_a_program_that_breaks_a_rule() -> None:
    module = parse(program("p = f32[2] parameter(0)\n ROOT r = f32[3] add(p, p)"))
    error = refusal(lambda: hloom.compile(module))
    assert (error.rule, error.instruction) == ("instruction.shape-matches", "r")


@pytest.mark.parametrize("backend", backend_names())
def test_a_program_whose_constants_were_elided(backend: str) -> None:
    module = parse(program("ROOT c = f32[20] constant({...})"))
    error = refusal(lambda: hloom.compile(module, backend=backend)())
    assert (error.rule, error.instruction) == ("literal.elided", "c")


def test_random_numbers_go_on_from_call_to_call() -> None:
    text = program("""
      low = f32[] constant(0)
      high = f32[] constant(1)
      ROOT r = f32[4] rng(low, high), distribution=rng_uniform""")
    first, second = executable(text), executable(text)
    sequence = [first().tolist() for _ in range(2)]
    assert sequence[0] != sequence[1]
    assert [second().tolist() for _ in range(2)] == sequence


def test_a_reducer_of_another_program_may_be_used_at_the_same_time() -> None:
    """The same module may stand for several devices, and be compiled several times."""
    module = parse(program("p = f32[] parameter(0)\n ROOT r = f32[] all-reduce(p), to_apply=add", ADD))
    assert lists(hloom.compile([module, module]).run([[1.0], [2.0]])) == [3, 3]
    assert lists(hloom.compile(module, num_replicas=3).run([[1.0]] * 3)) == [3, 3, 3]


@pytest.mark.parametrize("wrong", ["text", None, 3, [], [None], {}])
def test_only_modules_are_compiled(wrong: object) -> None:
    with pytest.raises(HloError) as caught:
        hloom.compile(wrong)  # type: ignore[arg-type]
    assert caught.value.rule == "compile.modules"


@pytest.mark.parametrize("backend", ["cpu", "evaluator"])
@pytest.mark.parametrize(
    "text",
    [
        "b = f32[0,4611686018427387904] broadcast(x), dimensions={}"
        " ROOT t = f32[4611686018427387904,0] transpose(b), dimensions={1,0}",
        "b = f32[2,4611686018427387904] broadcast(x), dimensions={}"
        " ROOT t = f32[2,2] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        "b = (f32[9223372036854775807], f32[]) custom-call(x), custom_call_target=\"f\""
        " ROOT t = f32[] get-tuple-element(b), index=1",
    ],
)  # fmt: skip
def test_arrays_beyond_the_address_space_are_refused(backend: str, text: str) -> None:
    module = hloom.HloModule.from_text(f"HloModule m\nENTRY e {{ x = f32[] parameter(0) {text} }}")
    module.verify()
    with pytest.raises(HloError) as caught:
        hloom.compile(module, backend=backend)
    assert (caught.value.rule, caught.value.instruction) == ("compile.array-size", "b")


def test_the_largest_array_of_the_address_space_is_taken() -> None:
    text = """HloModule m
ENTRY e {
  x = u8[] parameter(0)
  b = (u8[9223372036854775807], u8[]) custom-call(x), custom_call_target="f"
  ROOT t = u8[] get-tuple-element(b), index=1
}"""
    hloom.compile(hloom.HloModule.from_text(text), backend="evaluator")


# -- backends


class Doubling(Backend):
    """A backend whose programs double their only argument."""

    name = "doubling"

    def __init__(self) -> None:
        self.options: list[CompileOptions] = []

    @property
    def target(self) -> None:
        return None

    def pipeline(self) -> Pipeline:
        return Pipeline([])

    def compile(self, module: HloModule, options: CompileOptions) -> Program:
        module.verify()
        self.options.append(options)
        return DoublingProgram()


class DoublingProgram(Program):
    def load(self, device: VirtualDevice) -> DeviceProgram:
        return DoublingDeviceProgram()


class DoublingDeviceProgram(DeviceProgram):
    def run(self, arguments: Any) -> Any:
        return arguments[0] * 2


def test_a_backend_of_ones_own() -> None:
    """Found by name, given whole programs and checked arguments; what it does not offer is an error."""
    backend = Doubling()
    register_backend(backend)
    try:
        assert backend_names()[0] == "cpu" and "doubling" in backend_names()
        assert backend_named("doubling") is backend
        module = parse("ENTRY e { x = f32[2] parameter(0)\n ROOT y = f32[2] add(x, x) }")
        exe = hloom.compile(module, backend="doubling", num_replicas=2)
        assert [y.tolist() for y in exe.run([[[1, 2]], [[3, 4]]])] == [[2, 4], [6, 8]]
        assert backend.options == [CompileOptions(2, 1)]
        one = hloom.compile(module, backend="doubling")
        assert one(f32([1, 2])).tolist() == [2, 4]
        with pytest.raises(HloError) as caught:
            one(f32([1, 2, 3]))
        assert caught.value.rule == "run.argument"
        for look in (lambda: one.memory, lambda: one.cost, one.to_hlo, one.to_llvm, one.to_asm):
            with pytest.raises(HloError) as caught:
                look()
            assert caught.value.rule == "compile.not-offered"
        with pytest.raises(HloError) as caught:
            one.profile(f32([1, 2]))
        assert caught.value.rule == "compile.not-offered"
        with pytest.raises(HloError) as caught:
            register_backend(Doubling())
        assert caught.value.rule == "compile.backend-registered"
    finally:
        unregister_backend("doubling")
    for action in (lambda: hloom.compile(module, "doubling"), lambda: unregister_backend("doubling")):
        with pytest.raises(HloError) as caught:
            action()
        assert caught.value.rule == "compile.backend"


def test_the_backends_tell_of_themselves() -> None:
    cpu, evaluator = backend_named("cpu"), backend_named("evaluator")
    assert cpu.target is not None and cpu.target.triple and evaluator.target is None
    assert cpu.pipeline().passes and not evaluator.pipeline().passes


@pytest.mark.parametrize("backend", ["cpu", "evaluator"])
def test_arguments_may_offer_dlpack_alone(backend: str) -> None:
    class Foreign:
        """An array of another library."""

        def __dlpack__(self, **options: Any) -> Any:
            return f32([1, 2]).__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    double = "HloModule m\nENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] add(x, x) }"
    assert hloom.compile(HloModule.from_text(double), backend=backend)(Foreign()).tolist() == [2, 4]
