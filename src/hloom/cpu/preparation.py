"""Division of a program into what depends on kept arguments only, which is computed once, and the rest.

The kept arguments are arrays that the caller does not change, such as weights. Values that follow from them
alone are computed once if they take no more memory than the arguments that they replace. So are the panels
in which the kernels of products read a factor: products that pack a factor of the type of their sums at every
call find it packed. Numbers of four bits are packed two in a byte (`hloom.cpu.packed_numbers`). Other narrow
factors stay as they are: their conversion is part of packing, and packed wide they would be read at the rate
of the wide type.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.analysis.loops import TupleLoop, element_number
from hloom.analysis.purity import is_pure
from hloom.codegen.target import Target
from hloom.cpu.kernels.dot.gemm_plan import TilePlan
from hloom.cpu.kernels.dot.matrix_product import plan_of
from hloom.cpu.packed_numbers import pack_numbers
from hloom.cpu.pipeline import CANONICALIZATION, EXPANSION, SIMPLIFICATION
from hloom.ir.cloning import clone_module
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule, ModuleConfig
from hloom.operations.contraction import Dot
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.operations.movement import Transpose
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant, Parameter, Tuple
from hloom.passes.loops.while_loop_dot_layout import WhileLoopDotLayout
from hloom.passes.loops.while_loop_invariant_code_motion import (
    WhileLoopInvariantCodeMotion,
    frontier,
)
from hloom.passes.loops.while_loops import loops_of, rebuild
from hloom.passes.pipeline import Pipeline
from hloom.passes.simplify.common_subexpressions import CommonSubexpressionElimination
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.passes.writing import Writer
from hloom.runtime.backend import SplitProgram
from hloom.shape.shape import Shape

LEAST_PANEL: Final = 16
"""Fewest columns of a panel that products read as rows of a matrix."""

_PIPELINE: Final = Pipeline(
    [
        EXPANSION,
        SIMPLIFICATION,
        CANONICALIZATION,
        SIMPLIFICATION,
        WhileLoopDotLayout(),
        WhileLoopInvariantCodeMotion(),
        CommonSubexpressionElimination(),
    ],
    title="preparation",
)


def divided(module: HloModule, kept: AbstractSet[int], target: Target) -> SplitProgram:
    """Split a module of static shapes into one that precomputes values, and one that uses them in every run.

    ``kept``: the numbers of the parameters whose arguments do not change from run to run; the precomputed
    values depend on these only.
    """
    module = clone_module(module)
    module.config = _keeping(module.config, kept)
    _PIPELINE.run(module)
    pack_factors(module, kept, target)
    packed = pack_numbers(module, kept_values(module.entry, kept), _pays)
    values = kept_values(module.entry, kept, stop_at=packed)
    names = {i.name for i in frontier(module.entry, values) if _pays(i)}
    return SplitProgram(*_preparing(module, names), *_remaining(module, names, kept))


def _keeping(config: ModuleConfig, kept: AbstractSet[int]) -> ModuleConfig:
    """Return a copy of a module configuration that donates no parameter whose number is in ``kept``."""
    aliases = {
        output: alias for output, alias in config.aliases.items() if alias.parameter_number not in kept
    }
    donors = [donor for donor in config.buffer_donors if donor[0] not in kept]
    return replace(config, aliases=aliases, buffer_donors=donors)


def kept_values(
    entry: HloComputation, kept: AbstractSet[int], stop_at: Sequence[HloInstruction] = ()
) -> set[HloInstruction]:
    """Return the entry computation's instructions that depend only on constants and parameters ``kept``.

    Only instructions with static arrays as values are returned. ``kept``: the numbers of the parameters;
    ``stop_at``: instructions whose users, direct and indirect, are not returned.
    """
    values: set[HloInstruction] = set()
    for i in entry.post_order():
        if i.has_control_dependencies or not i.shape.is_array or i.shape.is_dynamic:
            continue
        if isinstance(i.operation, Parameter):
            is_kept = i.operation.parameter_number in kept
        else:
            is_kept = isinstance(i.operation, Constant) or (
                is_pure(i) and all(o in values and o not in stop_at for o in i.operands)
            )
        if is_kept:
            values.add(i)
    return values


def _pays(i: HloInstruction) -> bool:
    """Return whether a value takes no more memory than all parameters on which it depends together.

    Returns false for parameters, and for values that depend on none.
    """
    sources: set[HloInstruction] = set()
    waiting, seen = [i], {i}
    while waiting:
        node = waiting.pop()
        if isinstance(node.operation, Parameter):
            sources.add(node)
        fresh = [o for o in node.operands if o not in seen]
        seen.update(fresh)
        waiting.extend(fresh)
    is_parameter = isinstance(i.operation, Parameter)
    return not is_parameter and 0 < i.shape.byte_size <= sum(s.shape.byte_size for s in sources)


# -- panels


def pack_factors(module: HloModule, kept: AbstractSet[int], target: Target) -> None:
    """Rewrite ``dot(x, w)`` to ``reshape(dot(x, panels))``; the panels hold w as the dot's kernel reads it.

    Does so only if w depends on parameters that do not change between runs, with their numbers in ``kept``,
    and if the kernel would otherwise pack w into panels in every run.
    """
    values = kept_values(module.entry, kept)
    for loop in loops_of(module):
        if loop.instruction.parent is module.entry:
            for dot in loop.body.post_order():
                _pack_slices(dot, loop, values, target)
    for dot in module.entry.post_order():
        if isinstance(dot.operation, Dot) and dot.operands[1] in values:
            columns = panel(dot, target)
            if columns:
                _multiply(dot, _packed(dot, dot.operands[1], columns))


def panel(dot: HloInstruction, target: Target) -> int:
    """Return the width in columns of the panels into which a dot's kernel packs its right operand.

    Returns 0 if it packs none, if packing also converts the operand, if the operand's columns are not a
    multiple of the width, or if the left operand is stored by columns, as the kernel then packs both operands
    a block of the contracted dimension at a time.
    """
    operation = operation_of(dot, Dot)
    right = dot.operands[1].shape
    if right.rank != 2 or operation.lhs_batch_dims or len(operation.rhs_contracting_dims) != 1:
        return 0
    plan = plan_of(dot, target)
    if not isinstance(plan, TilePlan) or plan.transposed or not plan.pack_b or plan.gemm.a.column != 1:
        return 0
    is_converted = plan.factors.group > 1 or plan.factors.headed or plan.gemm.b_type is not plan.gemm.kind
    columns = max(LEAST_PANEL, plan.panel)
    return columns if not is_converted and plan.gemm.n % columns == 0 else 0


def _packed(dot: HloInstruction, factor: HloInstruction, columns: int) -> HloInstruction:
    """Add instructions that copy a dot's right operand into panels; return the copy.

    Its dimensions are (..., panel, k, column in the panel). ``factor``: the operand, or an array that stacks
    the operands of a loop's iterations in leading dimensions; ``columns``: the width of a panel.
    """
    (contracted,) = operation_of(dot, Dot).rhs_contracting_dims
    *stack, first, second = factor.shape.dimensions
    depth = len(stack)
    w = Writer(factor)
    if contracted == 0:
        sizes, order = (first, second // columns, columns), (1, 0, 2)
    else:
        sizes, order = (first // columns, columns, second), (0, 2, 1)
    divided = w.op(Reshape(), factor, shape=factor.shape.with_dimensions((*stack, *sizes)))
    return w.op(Transpose(dimensions=(*range(depth), *(depth + d for d in order))), divided)


def _multiply(dot: HloInstruction, panels: HloInstruction) -> None:
    """Replace a dot by a reshape of its product with ``panels``, which hold its right operand."""
    operation, w = operation_of(dot, Dot), Writer(dot)
    free = [
        s for d, s in enumerate(dot.operands[0].shape.dimensions) if d not in operation.lhs_contracting_dims
    ]
    count, _, columns = panels.shape.dimensions
    shape = dot.shape.with_dimensions((*free, count, columns))
    product = w.op(operation.replace(rhs_contracting_dims=(1,)), dot.operands[0], panels, shape=shape)
    w.replace(w.op(Reshape(), product, shape=dot.shape))


def _pack_slices(
    dot: HloInstruction, loop: TupleLoop, values: AbstractSet[HloInstruction], target: Target
) -> None:
    """Pack the right operands of a dot in a loop into panels, if iterations slice them from one array.

    The array, packed as a whole before the loop, must be one of ``values``: the entry computation's
    instructions that do not change between runs.
    """
    if not isinstance(dot.operation, Dot):
        return
    slice = dot.operands[1]
    if not isinstance(slice.operation, Reshape):
        return
    (slice,) = slice.operands
    if not isinstance(slice.operation, DynamicSlice) or slice.operation.dynamic_slice_sizes[0] != 1:
        return
    stack, start = slice.operands[:2]
    number = element_number(stack, loop.state)
    if number is None or not loop.is_invariant(number) or loop.initial(number) not in values:
        return
    sizes = slice.shape.dimensions
    if sizes[1:] != dot.operands[1].shape.dimensions or stack.shape.dimensions[1:] != sizes[1:]:
        return
    columns = panel(dot, target)
    if not columns:
        return
    (panels,) = rebuild(loop, range(loop.count), [_packed(dot, loop.initial(number), columns)])
    w = Writer(dot)
    zero = w.scalar(0, start.shape.element_type)
    _, *part = panels.shape.dimensions
    one = w.op(DynamicSlice(dynamic_slice_sizes=(1, *part)), panels, start, zero, zero, zero)
    _multiply(dot, w.op(Reshape(), one, shape=one.shape.with_dimensions(part)))


# -- the two programs


def _preparing(module: HloModule, names: AbstractSet[str]) -> tuple[HloModule, tuple[int, ...]]:
    """Return a module whose result is the tuple of ``module``'s instructions named in ``names``.

    Also returns, for each of its parameters, the number of the corresponding parameter of ``module``.
    """
    result = clone_module(module)
    values = [i for i in result.entry.post_order() if i.name in names]
    name = result.unique_name("prepared")
    shape = Shape.tuple_(i.shape for i in values)
    result.entry.root = result.entry.add(HloInstruction(name, Tuple(), shape, values))
    result.config = replace(result.config, aliases={}, buffer_donors=[])
    DeadCodeElimination().run(result)
    return result, _restrict(result, [p for p in result.entry.parameters if p.users])


def _remaining(
    module: HloModule, names: AbstractSet[str], kept: AbstractSet[int]
) -> tuple[HloModule, tuple[int, ...]]:
    """Return a copy of a module in which new parameters replace the instructions named in ``names``.

    Its parameters are those whose old numbers are not in ``kept``, then those in ``kept`` that are still
    used, then the new ones. Also returns the old numbers of the parameters before the new ones.
    """
    result = clone_module(module)
    entry = result.entry
    parameters = entry.parameters
    prepared: list[HloInstruction] = []
    for i in entry.post_order():
        if i.name in names:
            number = Parameter(parameter_number=len(parameters) + len(prepared))
            prepared.append(entry.add(HloInstruction(result.unique_name(i.name), number, i.shape)))
            i.replace_all_uses_with(prepared[-1])
    SIMPLIFICATION.run(result)  # loops carry no stack of which they read prepared values only
    others = [p for n, p in enumerate(parameters) if n not in kept]
    used = [p for n, p in enumerate(parameters) if n in kept and (p.users or p.is_root)]
    return result, _restrict(result, [*others, *used, *prepared])[: len(others) + len(used)]


def _restrict(module: HloModule, parameters: Sequence[HloInstruction]) -> tuple[int, ...]:
    """Remove the entry computation's parameters other than ``parameters``, and number these in this order.

    Returns their old numbers.
    """
    entry = module.entry
    for parameter in entry.parameters:
        if parameter not in parameters:
            entry.remove(parameter)
    numbers = [operation_of(p, Parameter).parameter_number for p in parameters]
    for number, parameter in enumerate(parameters):
        parameter.operation = operation_of(parameter, Parameter).replace(parameter_number=number)
    changed = {old: new for new, old in enumerate(numbers)}
    config = module.config
    aliases = {
        output: replace(alias, parameter_number=changed[alias.parameter_number])
        for output, alias in config.aliases.items()
        if alias.parameter_number in changed
    }
    donors = [(changed[n], index) for n, index in config.buffer_donors if n in changed]
    module.config = replace(config, entry_layout=None, aliases=aliases, buffer_donors=donors)
    return tuple(numbers)
