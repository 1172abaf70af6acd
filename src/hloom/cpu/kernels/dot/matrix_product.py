"""Emitter of dots: matrix product kernels where the operands allow it, else loops over elements.

The elementwise operations that a fusion applies to a dot become the epilogue of the product: they run on each
register tile before it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import I8, PTR, Function, Value
from hloom.codegen.llvm.module import STREAMED_LINE
from hloom.codegen.llvm.structured import choose, is_null
from hloom.codegen.loops import LoopKernel, may_stream, moves_much, root_values, stores_lines
from hloom.codegen.target import Target
from hloom.codegen.types import Element, storage_bytes
from hloom.cpu.kernels.dot.gemm import Epilogue, Gemm, product_of, rounded
from hloom.cpu.kernels.dot.gemm_amx import AmxPlan, emit_amx, plan_amx
from hloom.cpu.kernels.dot.gemm_epilogue import EpilogueArrays, ProductEpilogue
from hloom.cpu.kernels.dot.gemm_factors import FEW_ROWS, Pairs
from hloom.cpu.kernels.dot.gemm_packing import emit_heads, emit_pack_b
from hloom.cpu.kernels.dot.gemm_pairs import (
    Magnitudes,
    emit_large_enough,
    emit_smallest,
    fits_amx,
    is_pairs,
    pieces,
)
from hloom.cpu.kernels.dot.gemm_plan import BLOCK_COLUMNS, BLOCK_ROWS, TASKS, TilePlan, plan_tiles
from hloom.cpu.kernels.dot.gemm_tiles import emit_gemm
from hloom.cpu.kernels.dot.inner_product import (
    InnerProduct,
    emit_add_parts,
    emit_inner_product,
    emit_lay_out,
    inner_product_of,
)
from hloom.cpu.kernels.dot.row_stream import (
    RowStream,
    Scaled,
    emit_add_row_parts,
    emit_row_sums,
    row_stream_of,
    streams_narrow,
)
from hloom.cpu.kernels.dot.strided import Strided, is_argument, written_through
from hloom.cpu.kernels.movement.interleaving import MOST_TERMS, Rows, emit_rows_kernel, find_short_sums
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.affine import Index, Indices
from hloom.ir.instruction import HloInstruction
from hloom.operations.contraction import Dot
from hloom.operations.structure import parameter_number
from hloom.passes.layout.product_views import factor_operand, is_view
from hloom.plan.iteration import result_shapes
from hloom.plan.kernel import KernelPlan
from hloom.plan.parts import kernel_parts
from hloom.records import dataclass
from hloom.shape import element_type as et
from hloom.shape.shape import Shape

Plan = InnerProduct | RowStream | TilePlan | AmxPlan
FEWEST_BATCHES: Final = 32
"""Fewest products of tiny matrices that are computed side by side."""
DEEP_TILE: Final = 64
"""Fewest rows, columns and steps of a product whose tiles take as long as reads from memory."""


@KERNELS.register("dot", fuses=True, workspace=lambda i, target: _workspace(i, target))
def emit_dot(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit the code of a dot, or of a fusion around one: kernel calls, or loops over result elements.

    Loops are emitted if no matrix product kernel computes the dot.
    """
    i = plan.instruction
    dot, roots = plan.hero, plan.parts.roots
    gemm, product = product_of(dot, inside=i is not dot), plan_of(i, program.module.target)
    if gemm is None or product is None:
        rows = None if gemm is None else _short_rows(i, gemm, program.module.target)
        if rows is None:
            program.elements(plan)
            return
        kernel = program.shared(lambda name: emit_rows_kernel(program.module, name, plan.parts, rows))
        targets = [target.pointer for target in program.targets(i)]
        program.call(i, kernel, [*program.input_pointers(i), *targets])
        return
    a, b = (program.pointer(_outside(i, dot, o)) for o in dot.operands)
    if product.transposed:
        a, b = b, a
    placed = written_through(dot, roots[0]) if len(roots) == 1 else None
    if roots == (dot,) and gemm.in_order:
        epilogue = ProductEpilogue(1, [program.pointer(i)], _store(gemm, dot))
    elif placed is not None:
        epilogue = ProductEpilogue(1, [program.pointer(i)], _place(gemm, dot, placed))
    else:
        targets = [program.pointer(i, index) for index in program.assignment.values[i]]
        pointers = [*program.input_pointers(i), *targets]
        fused = _FusedEpilogue(gemm, dot, plan.parts.inputs, roots)
        epilogue = ProductEpilogue(
            len(pointers), pointers, fused.bind, fused.arrays(plan, program.module.target)
        )
    if isinstance(product, InnerProduct):
        _inner(program, i, product, a, b, epilogue)
        return
    if isinstance(product, RowStream):
        _stream(program, plan, product, a, b, epilogue)
        return
    space = program.workspace(i)
    if isinstance(product, AmxPlan):
        emit_amx(program, i, product, a, b, _sources(i)[1], epilogue, space)
        return
    if not is_pairs(gemm, program.module.target):
        _tiles_of_kept(program, i, product, a, b, _kept_panels(program, i, product), epilogue, space)
        return
    fast = pairs_plan(product, program.module.target)
    otherwise = partial(_tiles, program, i, product, a, b, epilogue)
    if isinstance(fast, AmxPlan):
        emit_amx(program, i, fast, a, b, _sources(i)[1], epilogue, space, otherwise)
        return
    panels = _kept_panels(program, i, fast)
    fits = _fits_pairs(program, i, fast, panels, space)
    space = program.function.offset(space, _found_bytes(i))
    with choose(program.function, fits) as choice:
        _tiles_of_kept(program, i, fast, a, b, panels, epilogue, space)
        choice.otherwise()
        otherwise(space)


def packed_before(plan: TilePlan) -> TilePlan:
    """Return the plan of the same product for a B whose panels the caller packs once and keeps between calls.

    The order of additions remains the same as that of ``plan``. Tasks that pack no rows have all rows of a
    product of few, so that each panel is read from memory once.
    """
    group = -(-plan.gemm.n // plan.panel) * plan.panel
    packed = replace(plan, pack_b="group", group_columns=group, slab=plan.steps, is_kept=True)
    if plan.pack_a or plan.gemm.m > BLOCK_ROWS:
        return packed
    rows = -(-plan.gemm.m // plan.rows) * plan.rows
    width = max(plan.panel, min(BLOCK_COLUMNS, group // TASKS) // plan.panel * plan.panel)
    return replace(packed, height=rows, width=width)


def _kept_panels(program: ProgramEmitter, i: HloInstruction, plan: TilePlan) -> Value | None:
    """Emit the address of packed panels of B that the caller keeps between calls.

    Behind the panels of bf16 pairs are the least magnitudes of B, as `emit_smallest` stores them. At run
    time, the address is null if the caller keeps none. Return None, and emit nothing, if B is not an argument
    of the program that can be kept packed.
    """
    arguments, gemm = program.packed_arguments, plan.gemm
    if arguments is None or plan.transposed or not plan.pack_b or plan.slabs > 1 or gemm.batches > 1:
        return None
    operand, count = _sources(i)[1], gemm.k * gemm.n
    is_pairs = isinstance(plan.factors, Pairs)
    is_plain = plan.factors.group == 1 and not plan.factors.headed and gemm.b_type is gemm.kind
    is_whole = gemm.b.offset == 0 and count == operand.shape.element_count
    factor = arguments.argument_operand(operand) if (is_plain or is_pairs) and is_whole else None
    if factor is None:
        return None
    packed = packed_before(plan)
    part_bytes = packed.packed_bytes + (_magnitude_bytes(count) if is_pairs else 0)

    def pack(source: Value, target: Value) -> None:
        f, module = program.function, program.module
        with f.loop(0, factor.parts) as loop:
            part = f.offset(source, loop.index * (count * storage_bytes(gemm.b_type)))
            panels = f.offset(target, loop.index * part_bytes)
            kernel = program.shared(lambda name: emit_pack_b(module, name, packed))
            program.call(i, kernel, [part, panels, f.constant(PTR, 0)])
            if is_pairs:
                kernel = program.shared(lambda name: emit_smallest(module, name, count))
                program.call(i, kernel, [part, f.offset(panels, packed.packed_bytes)])

    types = gemm.kind if is_plain else f"pairs of {gemm.b_type}"
    form = f"panels of {plan.panel} of {gemm.b} {types} {gemm.k} x {gemm.n}, {factor.parts}"
    return arguments.address(factor, part_bytes, form, pack)


def pairs_plan(plan: TilePlan, target: Target) -> TilePlan | AmxPlan:
    """Return the plan by which the bf16 dot-product instruction of x86 computes the product of ``plan``."""
    gemm = plan.gemm.transposed if plan.transposed else plan.gemm
    if fits_amx(gemm, target):
        return plan_amx(gemm)
    return plan_tiles(gemm, target, plain_result=plan.in_place, factors=Pairs)


def _found_bytes(i: HloInstruction) -> int:
    """Return the bytes of workspace for the run-time test of a bf16 dot's operands (see `_fits_pairs`)."""
    return -(-(1 + sum(pieces(o.shape.element_count) for o in _sources(i))) // 32) * 64


def _magnitude_bytes(count: int) -> int:
    """Return the bytes of the least magnitudes of ``count`` elements, in whole cache lines."""
    return -(-pieces(count) // 32) * 64


def _sources(i: HloInstruction) -> list[HloInstruction]:
    """Return the arrays that hold the two operands of a dot; if ``i`` is a fusion, its operands."""
    dot = KERNELS.hero(i)
    return [_outside(i, dot, o) for o in dot.operands]


def _fits_pairs(
    program: ProgramEmitter, i: HloInstruction, plan: TilePlan, panels: Value | None, space: Value
) -> Value:
    """Emit a run-time test of whether the bf16 dot-product instruction is exact; return the condition.

    It is exact if the magnitudes of the operands are large enough: see `hloom.cpu.kernels.dot.gemm_pairs`.
    Those of B are behind its kept ``panels``, if there are any. ``space`` is the address of the test's
    workspace.
    """
    f, module = program.function, program.module
    of_a = f.offset(space, 2)
    a, b = _sources(i)
    first, second = (pieces(o.shape.element_count) for o in (a, b))
    of_b = f.offset(of_a, 2 * first)

    def find(source: HloInstruction, least: Value) -> None:
        kernel = program.shared(lambda name: emit_smallest(module, name, source.shape.element_count))
        program.call(i, kernel, [program.pointer(source), least])

    find(a, of_a)
    with nullcontext() if panels is None else f.when(is_null(panels)):
        find(b, of_b)
    if panels is not None:
        kept = f.offset(panels, packed_before(plan).packed_bytes)
        of_b = is_null(panels).select(of_b, kept)
    kernel = program.shared(
        lambda name: emit_large_enough(module, name, Magnitudes(first), Magnitudes(second))
    )
    program.call(i, kernel, [of_a, of_b, space])
    return f.load(I8, space).compare("ne", 0)


def plan_of(i: HloInstruction, target: Target) -> Plan | None:
    """Return the plan of a dot, or of a fusion around one; None if it is computed element by element."""
    dot = KERNELS.hero(i)
    gemm = product_of(dot, inside=i is not dot)
    if gemm is None:
        return None
    narrow = gemm.is_packed or gemm.is_scaled
    if (narrow and not _streams_narrow(dot, gemm)) or _short_rows(i, gemm, target) is not None:
        return None
    inner = None if narrow else inner_product_of(gemm, target)
    if inner is not None:
        return inner
    sources = [_outside(i, dot, o) for o in dot.operands]
    stream = row_stream_of(gemm, sources, target)
    if stream is not None and not (fits_amx(gemm, target) and is_argument(sources[1])):
        return stream
    if gemm.m == gemm.n == 1:
        return None
    if gemm.kind is not et.F32 and fits_amx(gemm, target):
        return plan_amx(gemm)
    plain = kernel_parts(i).roots == (dot,) and dot.shape.element_type is gemm.kind and gemm.in_order
    return plan_tiles(gemm, target, plain_result=plain)


def _short_rows(i: HloInstruction, gemm: Gemm, target: Target) -> Rows | None:
    """Return loops of a product in which lanes are batches, if the matrices are tiny; else None."""
    is_tiny = gemm.m * gemm.n > 1 and gemm.m * gemm.n * gemm.k <= MOST_TERMS
    is_plain = gemm.kind in (et.F32, et.F64) and gemm.a_type is gemm.b_type is gemm.kind
    if not is_tiny or not is_plain or gemm.batches < FEWEST_BATCHES:
        return None
    return find_short_sums(kernel_parts(i), KERNELS.hero(i), gemm.k, target)


def _inner(
    program: ProgramEmitter,
    i: HloInstruction,
    plan: InnerProduct,
    a: Value,
    b: Value,
    epilogue: ProductEpilogue,
) -> None:
    """Emit the kernel calls of a product as inner products along k: packing, products, final sums.

    ``a`` and ``b`` are the addresses of A and B; packing and final sums are omitted if ``plan`` has none.
    """
    module, space = program.module, program.workspace(i)
    if plan.packs_columns:
        kernel = program.shared(lambda name: emit_lay_out(module, name, plan))
        program.call(i, kernel, [b, space])
        b = space
    if plan.parts == 1:
        kernel = program.shared(
            lambda name: emit_inner_product(module, name, plan, epilogue.count, epilogue.bind)
        )
        program.call(i, kernel, [a, b, *epilogue.pointers])
        return
    sums = program.function.offset(space, plan.workspace()[0])
    kernel = program.shared(lambda name: emit_inner_product(module, name, plan, 1, epilogue.bind))
    program.call(i, kernel, [a, b, sums])
    kernel = program.shared(lambda name: emit_add_parts(module, name, plan, epilogue.count, epilogue.bind))
    program.call(i, kernel, [sums, *epilogue.pointers])


def _stream(
    program: ProgramEmitter,
    kernel_plan: KernelPlan,
    plan: RowStream,
    a: Value,
    b: Value,
    epilogue: ProductEpilogue,
) -> None:
    """Emit the kernel calls of a product with few rows, for which B is read once, row by row.

    The first kernel computes partial sums over intervals of k; the second adds them and applies the epilogue.
    ``a`` and ``b`` are the addresses of A and B.
    """
    i = kernel_plan.instruction
    module, sums = program.module, program.workspace(i)
    scaled, pointers = None, [a, b, sums]
    if plan.gemm.is_scaled:
        operation = operation_of(kernel_plan.hero, Dot)
        contracting = operation.lhs_contracting_dims if plan.transposed else operation.rhs_contracting_dims
        factor = kernel_plan.hero.operands[not plan.transposed]
        scaled = Scaled(factor, contracting == (0,), kernel_plan.parts.inputs)
        pointers += program.input_pointers(i)
    program.call(i, program.shared(lambda name: emit_row_sums(module, name, plan, scaled)), pointers)
    kernel = program.shared(
        lambda name: emit_add_row_parts(module, name, plan, epilogue.count, epilogue.bind)
    )
    program.call(i, kernel, [sums, *epilogue.pointers])


def _tiles_of_kept(
    program: ProgramEmitter,
    i: HloInstruction,
    plan: TilePlan,
    a: Value,
    b: Value,
    panels: Value | None,
    epilogue: ProductEpilogue,
    space: Value,
) -> None:
    """Emit a product in register tiles, from the kept ``panels`` of B or, if they are null, from B at ``b``.

    The other parameters are those of `_tiles`.
    """
    with nullcontext() if panels is None else program.function.when(is_null(panels)):
        _tiles(program, i, plan, a, b, epilogue, space)
    if panels is not None:
        with program.function.when(panels.compare("ne", 0)), program.uncounted():
            _tiles(program, i, packed_before(plan), a, panels, epilogue, space, packs=False)


def _tiles(
    program: ProgramEmitter,
    i: HloInstruction,
    plan: TilePlan,
    a: Value,
    b: Value,
    epilogue: ProductEpilogue,
    space: Value,
    *,
    packs: bool = True,
) -> None:
    """Emit the kernel calls of a product in register tiles, one group of columns of B after the other.

    ``a`` and ``b`` are the addresses of A and B, ``space`` that of the workspace; ``packs`` is false if ``b``
    is packed already.
    """
    module, f = program.module, program.function
    packs = packs and plan.pack_b == "group"
    pack = program.shared(lambda name: emit_pack_b(module, name, plan)) if packs else None
    sums = [] if plan.in_place or plan.slabs == 1 else [f.offset(space, plan.packed_bytes)]
    kernel = program.shared(
        lambda name: emit_gemm(module, name, plan, len(sums) + epilogue.count, epilogue.bind, epilogue.arrays)
    )

    def heads() -> LoopKernel:
        return program.shared(lambda name: emit_heads(module, name, plan))

    def group(number: Value) -> None:
        if pack is not None:
            program.call(i, pack, [b, space, number])
        if packs and plan.factors.headed:
            program.call(i, heads(), [space])
        program.call(i, kernel, [a, space if packs else b, number, *sums, *epilogue.pointers])

    if plan.groups * plan.slabs == 1:
        group(f.constant(PTR, 0))
        return
    with f.loop(0, plan.groups * plan.slabs) as loop:
        group(f.convert("inttoptr", loop.index, PTR))


def _store(gemm: Gemm, dot: HloInstruction) -> Callable[[Sequence[Value]], Epilogue]:
    """Return a function that takes a kernel's pointers and returns an epilogue: it stores the dot's result.

    The only pointer is the address of the result, a dense row-major array of batches, rows and columns.
    """
    dimensions = (gemm.batches, gemm.m, gemm.n)

    def with_pointers(pointers: Sequence[Value]) -> Epilogue:
        target = View(pointers[0], dot.shape.element_type, dimensions)

        def epilogue(e: Elements, batch: Index, row: Index, column: Index, value: Element) -> None:
            e.store(target, (batch, row, column), rounded(value, gemm, dot.shape.element_type))

        return epilogue

    return with_pointers


def _place(gemm: Gemm, dot: HloInstruction, placed: Strided) -> Callable[[Sequence[Value]], Epilogue]:
    """Return a function that takes a kernel's pointers and returns an epilogue: it stores with strides.

    The only pointer is the address of the fusion's result, in which the dot's elements have the strides of
    ``placed``.
    """
    kind = dot.shape.element_type

    def with_pointers(pointers: Sequence[Value]) -> Epilogue:
        target = View(pointers[0], kind, dot.shape.dimensions, placed.strides)

        def epilogue(e: Elements, batch: Index, row: Index, column: Index, value: Element) -> None:
            e.store(target, dot_indices(e, dot, gemm, batch, row, column), rounded(value, gemm, kind))

        return epilogue

    return with_pointers


def has_kernel(i: HloInstruction) -> bool:
    """Return whether a fusion of a dot with slices, reshapes and transposes has a matrix product kernel.

    The kernel must load and store contiguous rows; otherwise the fusion would be slower than separate
    kernels.
    """
    dot = KERNELS.hero(i)
    gemm = product_of(dot, inside=True)
    if gemm is not None and (gemm.is_packed or gemm.is_scaled) and not _streams_narrow(dot, gemm):
        return False
    if gemm is None or 1 not in (gemm.a.row, gemm.a.column) or 1 not in (gemm.b.row, gemm.b.column):
        return False
    if min(gemm.m, gemm.n) >= FEW_ROWS and not gemm.is_scaled and _converts_halfway(dot, gemm):
        return False
    parts = kernel_parts(i)
    roots, members = parts.roots, parts.members
    behind = [m for m in members if is_view(m) and _follows(m, dot)]
    if not behind:
        return True
    placed = written_through(dot, roots[0])
    columns = gemm.dimensions[2]
    return placed is not None and len(roots) == 1 and len(columns) == 1 and placed.strides[columns[0]] == 1


def prefetches(dot: HloInstruction) -> bool:
    """Return whether ``dot`` is a dot whose register tiles take long enough to hide memory latency.

    If so, it pays to prefetch the arrays that a fused epilogue reads.
    """
    product = product_of(dot) if dot.opcode == "dot" else None
    return product is not None and product.in_order and min(product.m, product.n, product.k) >= DEEP_TILE


def _streams_narrow(dot: HloInstruction, gemm: Gemm) -> bool:
    """Return whether a product with a 4-bit or quantized operand has a kernel.

    The only such kernel reads B row by row (see `RowStream`); if an operand is quantized, both must be
    matrices.
    """
    return streams_narrow(gemm) and not (gemm.is_scaled and any(o.shape.rank != 2 for o in dot.operands))


def _converts_halfway(dot: HloInstruction, gemm: Gemm) -> bool:
    """Return whether a fusion converts an operand of ``dot`` to a type other than the accumulator type.

    An example is s8 converted to bf16, with sums in f32. ``gemm`` has the types before the conversion.
    """
    types = zip((o.shape.element_type for o in dot.operands), (gemm.a_type, gemm.b_type), strict=True)
    return any(wide is not narrow and wide is not gemm.kind for wide, narrow in types)


def _follows(i: HloInstruction, dot: HloInstruction) -> bool:
    return i is dot or any(_follows(o, dot) for o in i.operands)


@dataclass(frozen=True, slots=True)
class _FusedEpilogue:
    """The epilogue of a fusion: it computes the fusion's results from the elements of the dot.

    Attributes:
        gemm: the matrix product that the dot computes.
        dot: the dot in the fusion.
        inputs: the arrays that the fusion reads.
        roots: the instructions of the fusion that are its results.
    """

    gemm: Gemm
    dot: HloInstruction
    inputs: Sequence[HloInstruction]
    roots: Sequence[HloInstruction]

    def bind(self, pointers: Sequence[Value], *, streams: bool = False) -> Epilogue:
        """Return the epilogue that reads and writes arrays at ``pointers``: the inputs, then the results.

        ``streams``: the epilogue uses non-temporal stores.
        """
        gemm, dot = self.gemm, self.dot
        views = {i: View.of(p, i.shape) for i, p in zip(self.inputs, pointers, strict=False)}
        targets = [replace(target, streams=streams) for target in self._targets(pointers)]

        def epilogue(e: Elements, batch: Index, row: Index, column: Index, value: Element) -> None:
            e.views = views
            indices = dot_indices(e, dot, gemm, batch, row, column)
            e.know(dot, indices, rounded(value, gemm, dot.shape.element_type))
            for target, made in zip(targets, root_values(e, self.roots, indices), strict=True):
                e.store(target, indices, made)

        return epilogue

    def _targets(self, pointers: Sequence[Value]) -> list[View]:
        return list(map(View.of, pointers[len(self.inputs) :], result_shapes(self.roots)))

    def arrays(self, plan: KernelPlan, target: Target) -> EpilogueArrays:
        """Return which arrays the epilogue reads, and how it is emitted with non-temporal stores if they pay.

        Return the defaults of `EpilogueArrays` if the dot's result has its dimensions in an order other than
        C's.
        """
        if not self.gemm.in_order:
            return EpilogueArrays()
        dimensions = self.dot.shape.dimensions
        alike = {n: i.shape for n, i in enumerate(self.inputs) if i.shape.dimensions == dimensions}
        read = tuple((n, storage_bytes(shape.element_type)) for n, shape in alike.items())
        streams = self._streams(list(alike.values()), plan, target)
        return EpilogueArrays(read, self._streamed if streams else None)

    def _streams(self, inputs: Sequence[Shape], plan: KernelPlan, target: Target) -> bool:
        """Return whether the results are large enough for non-temporal stores, in rows of whole cache lines.

        ``inputs`` are the shapes of the arrays that the epilogue reads.
        """
        shapes, gemm = result_shapes(self.roots), self.gemm
        lanes = target.vector_bytes // storage_bytes(gemm.kind)
        rows = all(gemm.n * storage_bytes(s.element_type) % STREAMED_LINE == 0 for s in shapes)
        moves = moves_much(inputs, shapes, is_last=plan.is_last)
        return rows and moves and stores_lines(target, shapes, lanes)

    def _streamed(self, pointers: Sequence[Value]) -> tuple[Value, Epilogue]:
        """Emit a test whether addresses allow non-temporal stores; return (condition, epilogue with them).

        ``pointers`` are the addresses of the inputs, then of the results.
        """
        read = [View.of(p, i.shape) for i, p in zip(self.inputs, pointers, strict=False) if i.shape.rank]
        allowed = may_stream(Function.of(pointers[0]), read, self._targets(pointers))
        return allowed, self.bind(pointers, streams=True)


def dot_indices(
    e: Elements, dot: HloInstruction, gemm: Gemm, batch: Index, row: Index, column: Index
) -> Indices:
    """Emit the index in the dot's result of element (batch, row, column) of the matrix product."""
    sizes = dot.shape.dimensions
    places = [Index(0)] * len(sizes)
    for index, group in zip((batch, row, column), gemm.dimensions, strict=True):
        parts = (index,) if len(group) == 1 else e.divided(index, tuple(sizes[d] for d in group))
        for d, part in zip(group, parts, strict=True):
            places[d] = part
    return tuple(places)


def _outside(i: HloInstruction, member: HloInstruction, operand: HloInstruction) -> HloInstruction:
    """Return the array that holds the elements of ``operand``, an operand of ``member`` of the fusion ``i``.

    The array is an operand of the fusion; ``operand`` is computed from it by views, converts and scaling. If
    ``i`` is ``member`` itself, a dot outside any fusion, return ``operand``.
    """
    if i is member:
        return operand
    while (source := factor_operand(operand)) is not None:
        operand = source
    return i.operands[parameter_number(operand)]


def _workspace(i: HloInstruction, target: Target) -> int:
    plan = plan_of(i, target)
    if plan is None:
        return 0
    if isinstance(plan, InnerProduct):
        return sum(plan.workspace())
    if isinstance(plan, (RowStream, AmxPlan)) or not is_pairs(plan.gemm, target):
        return plan.workspace()
    fast = pairs_plan(plan, target)
    return _found_bytes(i) + max(plan.workspace(), fast.workspace())
