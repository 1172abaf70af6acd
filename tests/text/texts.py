# ruff: noqa: E501  (lines of HLO are as long as they are)
"""Programs in many spellings, all of which XLA reads. Tests print, compare and mutate them."""

from __future__ import annotations

from typing import Final

from tests.reducers import ADD

LOOP: Final = """HloModule loop, is_scheduled=true

%body (p: (s32[], f32[12])) -> (s32[], f32[12]) {
  %p = (s32[], f32[12]{0}) parameter(0)
  %i = s32[] get-tuple-element((s32[], f32[12]{0}) %p), index=0
  %one = s32[] constant(1)
  %next = s32[] add(s32[] %i, s32[] %one), metadata={op_name="jit(f)/while/add" source_file="f.py" source_line=7}
  %x = f32[12]{0} get-tuple-element(%p), index=1
  %y = f32[12]{0} multiply(%x, %x), sharding={devices=[2]<=[2]}, metadata={op_name="jit(f)/while/mul"}
  ROOT %t = (s32[], f32[12]{0}) tuple(%next, %y)
}

%cond (p.1: (s32[], f32[12])) -> pred[] {
  %p.1 = (s32[], f32[12]{0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%p.1), index=0
  %limit = s32[] constant(10)
  ROOT %less = pred[] compare(%i.1, %limit), direction=LT
}

ENTRY %main (q: f32[12]) -> (s32[], f32[12]) {
  %q = f32[12]{0} parameter(0), sharding={devices=[2]0,1}, frontend_attributes={a="b",c={"d":1}}
  %zero = s32[] constant(0)
  %start = (s32[], f32[12]{0}) tuple(%zero, %q)
  ROOT %w = (s32[], f32[12]{0}) while(%start), condition=%cond, body=%body, backend_config={"n":{"trips":"10"}}
}
"""

TEXTS: Final = {
    "header": """HloModule m.1-x, input_output_alias={ {1}: (0, {1}, must-alias), {0}: (0, {0}) },
  buffer_donor={ (1, {}) }, alias_passthrough_params=true, replica_count=2, num_partitions=4,
  allow_spmd_sharding_propagation_to_parameters={true,false}, allow_spmd_sharding_propagation_to_output=true,
  entry_computation_layout={((f32[8,8]{0,1}, f32[]), s32[2])->(f32[8,8]{0,1}, f32[])},
  frontend_attributes={b="c",a={"d":[1,2]}},
  origin_recovery_table={ {"lost" {1}} : {"kept"}, "ENTRY e { ROOT p = f32[] parameter(0) }" {"a"} : {"b"} }
ENTRY e { p = (f32[8,8], f32[]) parameter(0) q = s32[2] parameter(1) ROOT r = (f32[8,8], f32[]) copy(p) }""",
    "many parameters": """HloModule m
ENTRY e (a: f32[], b: f32[], c: f32[], d: f32[], f: f32[], g: f32[]) -> (f32[], f32[], f32[], f32[], f32[], f32[]) {
  %a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2) d = f32[] parameter(3)
  f = f32[] parameter(4) g = f32[] parameter(5)
  ROOT t = (f32[], f32[], f32[], f32[], f32[], /*index=5*/f32[]) tuple(a, b, c, d, f, /*index=5*/ f32[] %g)
}""",
    "one line": "HloModule m ENTRY e { p = f32[2]{0} parameter(0) ROOT n = f32[2]{0} negate(f32[2]{0} p) }",
    "no header": "ENTRY e { ROOT p = f32[] parameter(0) }",
    "no header, no entry": f"{ADD}\nmain {{ x = f32[] parameter(0) ROOT y = f32[] call(x, x), to_apply=add }}",
    "one instruction": '%r = f32[3]{0} add(f32[3]{0} %x, f32[3]{0} %y), metadata={op_name="n"}',
    "no left-hand side": "f32[] fusion(f32[3]), kind=kLoop, calls={ p = f32[3] parameter(0) ROOT s = f32[] constant(0) }",
    "nested operands": f"HloModule m\n{ADD}\nENTRY e {{ p = f32[3] parameter(0) z = f32[] constant(0) "
    "ROOT r = f32[] negate(reshape(f32[1] reshape(f32[] abs(f32[] negate(z))))) }".replace(
        "reshape(f32[1] reshape(f32[] abs(f32[] negate(z))))", "abs(f32[] negate(z))"
    ),
    "nested computations": "HloModule m\nENTRY e { p = f32[3] parameter(0) z = f32[] constant(0) ROOT r = f32[] "
    "reduce(p, z), dimensions={0}, to_apply={ a = f32[] parameter(0) b = f32[] parameter(1) "
    "ROOT c = f32[] add(a, b) } }",
    "names": "HloModule m\na { x = f32[] parameter(0) x.1 = f32[] abs(x) ROOT x.3 = f32[] abs(x.1) }\n"
    "b { x = f32[] parameter(0) x.1 = f32[] abs(x) x.0 = f32[] abs(x.1) x.007 = f32[] abs(x) "
    "%inf = f32[] abs(x) ROOT x.b = f32[] add(%inf, x.1) }\n"
    "ENTRY %__xla_e { x: = f32[] parameter(0) y = f32[] call(x), to_apply=a ROOT z = f32[] call(y), to_apply=%b }",
    "comments": "// first\nHloModule m /* a\n b */ // c\nENTRY e { /* { */ ROOT p = f32[] /*x*/ parameter( 0 ) // }\n}",
    "loop": LOOP,
    "order": """HloModule m
ENTRY e {
  p = f32[] parameter(0)
  z = f32[] floor(p)
  b = f32[] sine(p)
  c = f32[] cosine(p)
  dead = f32[] abs(p)
  a = f32[] tanh(p)
  ROOT r = f32[] add(a, c), control-predecessors={b, z}
}""",
    "computation order": f"""HloModule m
{ADD}
u {{ a = f32[] parameter(0) ROOT c = f32[] call(a, a), to_apply=add }}
v {{ a = f32[] parameter(0) b = f32[] call(a), to_apply=u ROOT c = f32[] call(b, b), to_apply=add }}
ENTRY e {{ p = f32[] parameter(0) q = pred[] parameter(1)
  ROOT r = f32[] conditional(q, p, p), true_computation=u, false_computation=v }}
unused {{ a = f32[] parameter(0) ROOT c = f32[] call(a), to_apply=u }}""",
    "annotations": """HloModule m
ENTRY e {
  p = (f32[2], s32[]) parameter(0), parameter_replication={true,false}, sharding={{replicated}, {maximal device=1}}
  q = f32[2] get-tuple-element(p), index=0, metadata={op_type="t" op_name="n" source_file="f\\"\\303\\251" source_line=1
    source_end_line=2 source_column=3 source_end_column=4 profile_type={1,2} deduplicated_name="d" scheduling_name="s"
    metadata_payload="x"}
  r = f32[2] negate(q), statistics={visualizing_index=1,flops=3,bytes=1e+10}, origin={({"a"}, {"b" {1}})}
  s = f32[2] negate(r), origin={[synthetic_call]}, backend_config="not json \\n 'x'"
  ROOT t = f32[2] negate(s), backend_config="{\\"json\\":\\"}\\"}", frontend_attributes={b="1",_a.b-c="q'"}
}""",
    "stack frames": """HloModule m
FileNames
1 "a.py"
2 "b.py"
FunctionNames
1 "f"
FileLocations
1 {file_name_id=1 function_name_id=1 line=2 end_line=3 column=4 end_column=5}
2 {file_name_id=2 function_name_id=1 line=6 end_line=7 column=8 end_column=9}
StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=1 parent_frame_id=1}
ENTRY e { p = f32[] parameter(0), metadata={op_name="x" stack_frame_id=2}
  ROOT q = f32[] negate(p), metadata={stack_frame_id=3} }""",
    "asynchronous": f"""HloModule m
{ADD}
w {{ p = f32[8] parameter(0) ROOT c = f32[4] custom-call(p), custom_call_target="f", frontend_attributes={{k="v"}} }}
w2 {{ p = f32[8] parameter(0) n = f32[8] negate(p) ROOT c = f32[8] abs(n) }}
ENTRY e {{
  x = f32[8] parameter(0)
  s = ((f32[8]), f32[4], s32[]) async-start(x), async_execution_thread="t", calls=w, metadata={{op_name="a"}}
  u = ((f32[8]), f32[4], s32[]) custom-call-update(s)
  d = f32[4] async-done(u), calls=w
  sb = ((f32[8]), f32[4]) reduce-scatter-start(x), dimensions={{0}}, replica_groups={{{{0,1}}}}, to_apply=add
  db = f32[4] reduce-scatter-done(sb)
  sc = ((f32[8]), f32[8]) async-start(x), calls=w2
  dc = f32[8] async-done(sc)
  ROOT t = (f32[4], f32[4], f32[8]) tuple(d, db, dc)
}}""",
    "stated in vain": """HloModule m
ENTRY e {
  tok = token[] after-all()
  x = f32[4] parameter(0)
  in = (f32[2], token[]) infeed(tok), infeed_config="c"
  out = (f32[9]) outfeed(x, tok), outfeed_config="o"
  s = (s8[1], u32[], token[]) send(x, tok), channel_id=1
  sd = (s8[1], token[]) send-done(s), channel_id=1
  c = s4[2]{0:E(4)} constant({1, -2})
  ROOT m = s32[] constant(7)
}""",
    "inferred": """HloModule m
ENTRY e {
  p = f32[2,3]{0,1:S(1)} parameter(0)
  q = f32[2,3] parameter(1)
  a = add(p, q)
  b = transpose(a), dimensions={1,0}
  c = compare(p, q), direction=GE
  d = select(c, q, p)
  t = tuple(b, d)
  g = get-tuple-element(t), index=0
  ROOT h = concatenate(g, g), dimensions={0}
}""",
}
"""Every text by what it shows."""
