"""jax.profiler shows the instructions of hloom's programs."""

from __future__ import annotations

import numpy as np
import pytest

import hloom
from hloom.cpu.native import compile_or_load
from tests.agreement import same
from tests.jax_platform.process import run_program

TRACE = """
import glob, tempfile, threading
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

def layer(x):
    with jax.named_scope("layer"):
        return jax.lax.fori_loop(0, 3, lambda i, y: jnp.sin(y @ y), x) @ x

dense = jax.jit(layer)
x = jnp.eye(32)
row = NamedSharding(jax.make_mesh((2,), ("d",)), P("d"))
total = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, "d"), mesh=row.mesh, in_specs=P("d"), out_specs=P()))
call = jax.jit(lambda v: jax.pure_callback(lambda a: np.asarray(a) * 2, v, v))
put = jax.device_put(jnp.arange(4.0), row)
run = lambda: [np.asarray(f(v)).tolist() for f, v in ((dense, x), (total, put), (call, x))]
wanted = run()

def planes():
    folder = tempfile.mkdtemp()
    with jax.profiler.trace(folder):
        print(run() == wanted)
        thread = threading.Thread(target=lambda: dense(x).block_until_ready())
        thread.start()
        thread.join()
    (path,) = glob.glob(folder + "/**/*.xplane.pb", recursive=True)
    data = jax.profiler.ProfileData.from_file(path)
    return {p.name: list(p.lines) for p in data.planes if "hloom" in p.name}

planes()
found = planes()
print(sorted(found))
lines = found["/device:CUSTOM:hloom:0"]
print(len(lines), [line.name.startswith("hloom thread ") for line in lines])
rows = [[(e.name, e.start_ns, e.start_ns + e.duration_ns) for e in line.events] for line in lines]
(main,) = [r for r in rows if any("pure_callback" in name for name, *_ in r)]
outer, begin, end = main[0]
inner = [name for name, first, last in main[1:] if begin <= first <= last <= end]
print(outer, sum("layer/while/body" in n and "dot_general" in n for n in inner), inner[-1])
print(sorted(n.split("/")[-1] for r in rows for n, *_ in r if "psum" in n or "pure_callback" in n))
print(run() == wanted)
"""


def test_a_trace_holds_the_instructions_of_every_device_and_thread() -> None:
    lines = run_program(TRACE, "cpu", XLA_FLAGS="--xla_force_host_platform_device_count=2").splitlines()
    assert lines[:2] == ["True", "True"]
    assert lines[2] == "['/device:CUSTOM:hloom:0', '/device:CUSTOM:hloom:1']"
    assert lines[3] == "3 [True, True, True]", "the caller's, the thread's, and that of device 0"
    assert lines[4].startswith("jit_layer 3 ")
    assert lines[4].endswith("layer/dot_general")
    assert lines[5] in ("['psum', 'pure_callback']", "['psum_invariant', 'pure_callback']")
    assert lines[6] == "True"


LOOP = """HloModule loop
body {
  s = (s32[], f32[300]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[300] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = f32[300] sine(x)
  ROOT t = (s32[], f32[300]) tuple(n, y)
}
condition {
  s = (s32[], f32[300]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(20)
  ROOT c = pred[] compare(i, limit), direction=LT
}
ENTRY main {
  p = (s32[], f32[300]) parameter(0)
  ROOT w = (s32[], f32[300]) while(p), condition=condition, body=body
}"""


def test_records_without_room_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    native = compile_or_load(hloom.HloModule.from_text(LOOP))
    arguments = [np.int32(0), np.ones(300, np.float32)]
    results, whole = native.inspection.recorded.record(native.caller, arguments)
    same(results, native.caller.run(arguments))
    assert whole.lost == 0
    assert whole.records[-1, 0] == -1
    assert (whole.records[:, 1] <= whole.records[:, 2]).all()
    assert (np.diff(whole.records[:, 2]) >= 0).all()
    assert len(whole.records) > 20
    monkeypatch.setattr("hloom.cpu.timed_program._RECORDS", 8)
    _, part = native.inspection.recorded.record(native.caller, arguments)
    assert (part.records[:, 0] == whole.records[:8, 0]).all()
    assert part.lost == len(whole.records) - 8


def test_an_xspace_is_read_by_jaxlib() -> None:
    program = """
import jax, numpy as np, hloom
from hloom.cpu.native import compile_or_load
from hloom.jax.programs.xspace import space
sine = "ROOT n = f32[300] sine(p), metadata={op_name=\\"a/b\\"}"
module = hloom.HloModule.from_text("HloModule m\\nENTRY e { p = f32[300] parameter(0) " + sine + " }")
native = compile_or_load(module)
_, recording = native.inspection.recorded.record(native.caller, [np.zeros(300, np.float32)])
data = jax.profiler.ProfileData.from_serialized_xspace(space([recording], 5_000_000_000))
(plane,) = data.planes
(line,) = plane.lines
whole, event = line.events
print(plane.name, line.name == f"hloom thread {recording.thread}", whole.name, event.name)
begin, end = (int(n) for n in recording.records[0, 1:])
print(round(event.start_ns) - begin, round(event.duration_ns) == end - begin)
"""
    assert run_program(program, "cpu").splitlines() == [
        "/device:CUSTOM:hloom:0 True m a/b",
        "5000000000 True",
    ]
