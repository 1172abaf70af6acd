"""The verifier, which checks the structure of a module and then the rules of every operation.

Each check is a function named after the property that it checks, and each rule has a name. The order matters:
later checks rely on properties that earlier ones established.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hloom.errors import HloError, ShapeError, VerifyError, plural
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import Alias, HloModule, ShapeIndex
from hloom.ir.operation import Operation, ProgramShape
from hloom.shape.shape import Shape


def verify(module: HloModule) -> None:
    """Verify a module; raise HloError at the first violation, naming rule and instruction."""
    _membership(module)
    shapes = _CheckedShapes()
    for computation in module.computations:
        for instruction in _structure(computation, module):
            _operation(instruction, shapes)
    _recursion(module)
    _entry_layout(module)
    _aliases(module)


def violations(module: HloModule, unread: Collection[HloInstruction] = ()) -> list[HloError]:
    """Return the violations of a module: at most one of each instruction, and one of its structure.

    Instructions in ``unread`` stand for some that could not be read: neither they nor what depends on them is
    checked.
    """
    errors: list[HloError] = []
    damaged = {instruction.parent for instruction in unread}
    shapes = _CheckedShapes()
    try:
        _membership(module)
        for computation in module.computations:
            is_intact = computation not in damaged
            for instruction in _structure(computation, module) if is_intact else computation.instructions:
                calls_damaged = not damaged.isdisjoint(instruction.called_computations)
                if (
                    instruction in unread
                    or calls_damaged
                    or not all(o not in unread for o in instruction.operands)
                ):
                    continue
                try:
                    _operation(instruction, shapes)
                except HloError as error:
                    errors.append(error)
        if not damaged:
            _recursion(module)
            _entry_layout(module)
            _aliases(module)
    except HloError as error:
        errors.append(error)
    return errors


def _membership(module: HloModule) -> None:
    """Check that names are unique, and that instructions and operands belong to their computations."""
    if module.entry.module is not module:
        raise VerifyError("the entry is not one of the module's computations", rule="module.entry")
    _computation_names(module)
    for computation in module.computations:
        _instructions(computation)
        _operands(computation)


def _structure(computation: HloComputation, module: HloModule) -> list[HloInstruction]:
    """Check everything but the operations of a computation; return its instructions after their operands."""
    _use_lists(computation)
    _control_dependencies(computation)
    _calls(computation, module)
    _ = computation.parameters
    order = computation.post_order()
    if module.config.is_scheduled and computation.is_scheduled:
        _schedule(computation)
    return order


# -- names and membership


def _computation_names(module: HloModule) -> None:
    names: set[str] = set()
    for computation in module.computations:
        if computation.name in names:
            raise VerifyError(f"two computations are named %{computation.name}", rule="module.unique-names")
        names.add(computation.name)


def _instructions(computation: HloComputation) -> None:
    """Check that names are unique, parents are set, and the root is an instruction of the computation."""
    names: set[str] = set()
    for instruction in computation.instructions:
        if instruction.name in names:
            message = f"two instructions of %{computation.name} are named %{instruction.name}"
            raise VerifyError(message, rule="computation.unique-names", instruction=instruction.name)
        names.add(instruction.name)
        if instruction.parent is not computation:
            message = f"%{instruction.name} is in %{computation.name}, but its parent is another computation"
            raise VerifyError(message, rule="computation.parent", instruction=instruction.name)
    if computation.root not in computation:
        message = f"the root %{computation.root.name} is not in %{computation.name}"
        raise VerifyError(message, rule="computation.root", instruction=computation.root.name)


def _operands(computation: HloComputation) -> None:
    """Check that operands are in the same computation."""
    for instruction in computation.instructions:
        for operand in instruction.operands:
            if operand not in computation:
                message = f"the operand %{operand.name} is not in %{computation.name}"
                raise VerifyError(message, rule="computation.operands", instruction=instruction.name)


def _use_lists(computation: HloComputation) -> None:
    """Check that the users of every instruction are those that have it as an operand."""
    users: dict[HloInstruction, set[HloInstruction]] = {i: set() for i in computation.instructions}
    for instruction in computation.instructions:
        for operand in instruction.operands:
            users[operand].add(instruction)
    for instruction, using in users.items():
        if instruction.users.keys() != using:
            listed, real = (sorted(u.name for u in group) for group in (instruction.users, using))
            message = f"%{instruction.name} lists the users {listed}, but {real} use it"
            raise VerifyError(message, rule="computation.use-lists", instruction=instruction.name)


def _control_dependencies(computation: HloComputation) -> None:
    """Check that control dependencies stay in the computation and are recorded at both ends."""
    for instruction in computation.instructions:
        for other, back in (
            *((p, p.control_successors) for p in instruction.control_predecessors),
            *((s, s.control_predecessors) for s in instruction.control_successors),
        ):
            if other not in computation:
                message = f"the control dependency on %{other.name} leaves %{computation.name}"
                raise VerifyError(message, rule="computation.control", instruction=instruction.name)
            if instruction not in back:
                message = (
                    f"only one of %{instruction.name} and %{other.name} records their control dependency"
                )
                raise VerifyError(message, rule="computation.control", instruction=instruction.name)


def _schedule(computation: HloComputation) -> None:
    """Check that the schedule orders every instruction after its operands and control predecessors."""
    done: set[HloInstruction] = set()
    for instruction in computation.instructions:
        for needed in (*instruction.operands, *instruction.control_predecessors):
            if needed not in done:
                message = f"%{instruction.name} is scheduled before %{needed.name}, which it needs"
                raise VerifyError(message, rule="schedule.order", instruction=instruction.name)
        done.add(instruction)


# -- operations


class _CheckedShapes:
    """The shape rules found to hold, so that equal instructions are checked once.

    Operations and shapes are compared by identity, which is stable while the module is verified. Readers of
    text and protos share equal objects, so identity finds most repetitions.
    """

    def __init__(self) -> None:
        self.known: set[tuple[int, ...]] = set()

    def check(self, instruction: HloInstruction) -> None:
        """Check an instruction's shape rule unless it has been checked for an equal instruction."""
        key = (
            id(instruction.operation),
            id(instruction.shape),
            *[id(operand.shape) for operand in instruction.operands],
            *map(id, instruction.called_computations),
        )
        if key not in self.known:
            instruction.check_shape()
            self.known.add(key)


def _operation(instruction: HloInstruction, shapes: _CheckedShapes) -> None:
    """Check that operands, attributes, called computations and the stated shape agree."""
    shapes.check(instruction)
    _asynchronous_pair(instruction)
    operation = instruction.operation
    if type(operation).verify is Operation.verify:
        return
    try:
        operation.verify(instruction)
    except HloError as error:
        raise error.at(instruction=instruction.name) from error.__cause__


def _calls(computation: HloComputation, module: HloModule) -> None:
    """Check that called computations are in the module and that their number matches the roles."""
    for instruction in computation.instructions:
        roles, called = instruction.operation.roles, instruction.called_computations
        least = sum(role.required for role in roles)
        most = None if any(role.many for role in roles) else len(roles)
        if len(called) < least or (most is not None and len(called) > most):
            expected = (
                f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
            )
            message = f"{instruction.opcode} calls {expected} computations, got {len(called)}"
            raise VerifyError(message, rule="instruction.calls", instruction=instruction.name)
        for callee in called:
            if callee.module is not module:
                message = f"the called computation %{callee.name} is not in the module"
                raise VerifyError(message, rule="module.callee", instruction=instruction.name)


def _asynchronous_pair(instruction: HloInstruction) -> None:
    """Check that an asynchronous operation is ended by a single instruction, and one that fits."""
    begins = instruction.operation.begun_by
    if begins and instruction.operands[0].opcode not in begins:
        other = instruction.operands[0]
        message = f"{instruction.opcode} ends {' or '.join(begins)}, but %{other.name} is {other.opcode}"
        raise VerifyError(message, rule="async.beginning", instruction=instruction.name)
    ends = [user for user in instruction.users if instruction.opcode in user.operation.begun_by]
    if len(ends) > 1:
        names = ", ".join(f"%{user.name}" for user in ends)
        raise VerifyError(
            f"more than one instruction ends it: {names}", rule="async.one-end", instruction=instruction.name
        )


def _recursion(module: HloModule) -> None:
    """Check that no computation calls itself, directly or through others."""
    done: set[HloComputation] = set()
    for start in module.computations:
        path: dict[HloComputation, Iterator[HloComputation]] = {start: _callees(start)}
        while path:
            computation, callees = next(reversed(path.items()))
            callee = next(callees, None)
            if callee is None:
                done.add(computation)
                del path[computation]
            elif callee in path:
                cycle = [*path][[*path].index(callee) :]
                names = " -> ".join(f"%{c.name}" for c in (*cycle, callee))
                raise VerifyError(
                    f"computations call each other in a cycle: {names}", rule="module.recursion"
                )
            elif callee not in done:
                path[callee] = _callees(callee)


def _callees(computation: HloComputation) -> Iterator[HloComputation]:
    return (callee for instruction in computation.instructions for callee in instruction.called_computations)


# -- the entry


def _entry_layout(module: HloModule) -> None:
    """Check that the entry layout matches the shapes of the entry's parameters and result."""
    declared, real = module.config.entry_layout, module.entry.program_shape
    if declared is None:
        return
    if len(declared.parameters) != len(real.parameters):
        message = (
            f"the entry has {plural(len(real.parameters), 'parameter')}, "
            f"its layout {len(declared.parameters)}"
        )
        raise VerifyError(message, rule="module.entry-layout")
    for number, (ours, theirs) in enumerate(zip(real.parameters, declared.parameters, strict=True)):
        if not ours.compatible(theirs):
            message = f"parameter {number} is {ours}, but {theirs} in the entry layout"
            raise VerifyError(message, rule="module.entry-layout")
    if not real.result.compatible(declared.result):
        message = f"the result is {real.result}, but {declared.result} in the entry layout"
        raise VerifyError(message, rule="module.entry-layout")


def _aliases(module: HloModule) -> None:
    """Check that outputs share buffers with distinct parameter leaves that exist and have the same size."""
    program = module.entry.program_shape
    targets: dict[tuple[int, ShapeIndex], ShapeIndex] = {}
    for output, alias in module.config.aliases.items():
        _alias(program, output, alias)
        source = alias.parameter_number, alias.parameter_index
        if source in targets:
            message = f"outputs {list(targets[source])} and {list(output)} both share parameter {source[0]}"
            raise VerifyError(message, rule="alias.parameter-once")
        targets[source] = output
    for number, index in module.config.buffer_donors:
        if (number, index) in targets:
            message = f"parameter {number} at {list(index)} is both shared with an output and donated"
            raise VerifyError(message, rule="alias.donor-not-shared")
        if not 0 <= number < len(program.parameters) or _leaf(program.parameters[number], index) is None:
            raise VerifyError(
                f"no parameter {number} with index {list(index)} exists to donate", rule="alias.donor"
            )


def _alias(program: ProgramShape, output: ShapeIndex, alias: Alias) -> None:
    result = _leaf(program.result, output)
    if result is None:
        raise VerifyError(f"the result {program.result} has no leaf {list(output)}", rule="alias.output")
    if not 0 <= alias.parameter_number < len(program.parameters):
        message = (
            f"output {list(output)} shares parameter {alias.parameter_number} of {len(program.parameters)}"
        )
        raise VerifyError(message, rule="alias.parameter")
    parameter = _leaf(program.parameters[alias.parameter_number], alias.parameter_index)
    if parameter is None:
        message = f"parameter {alias.parameter_number} has no leaf {list(alias.parameter_index)}"
        raise VerifyError(message, rule="alias.parameter")
    if parameter.is_array and result.is_array and parameter.byte_size != result.byte_size:
        message = f"output {list(output)} is {result}, the parameter it shares is {parameter}"
        raise VerifyError(message, rule="alias.sizes")


def _leaf(shape: Shape, index: ShapeIndex) -> Shape | None:
    """Return the leaf at an index, or None if there is none: a tuple itself has no buffer to share."""
    try:
        subshape = shape.subshape(index)
    except ShapeError:
        return None
    return None if subshape.is_tuple else subshape
