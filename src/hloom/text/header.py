"""The header of a module: ``HloModule name, is_scheduled=true, entry_computation_layout={...}, ...``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from hloom.errors import HloError
from hloom.ir.cursor import KEYWORDS, Cursor
from hloom.ir.metadata import OriginalArray, frontend_attributes_text, parse_frontend_attributes
from hloom.ir.module import ALIAS_KINDS, Alias, HloModule, ModuleConfig, ShapeIndex
from hloom.ir.naming import sanitized
from hloom.ir.operation import ProgramShape
from hloom.shape.shape import Shape

if TYPE_CHECKING:
    from hloom.ir.print_options import PrintOptions

Reader: TypeAlias = Callable[[Cursor, ModuleConfig], None]

# -- reading


def parse_header_attributes(cursor: Cursor, config: ModuleConfig) -> None:
    """Parse the attributes after the module's name, each at most once and in any order."""
    seen: set[str] = set()
    while cursor.accept(","):
        cursor.skip()
        start = cursor.position
        key = cursor.key("a module attribute")
        if key in seen:
            message = f"module attribute {key!r} is given twice"
            raise cursor.error(message, rule="text.attribute-twice", position=start)
        seen.add(key)
        reader = _READERS.get(key)
        if reader is None:
            message = f"unexpected module attribute {key!r}; there are {', '.join(sorted(_READERS))}"
            raise cursor.error(message, rule="text.attribute", position=start)
        reader(cursor, config)


def _is_scheduled(cursor: Cursor, config: ModuleConfig) -> None:
    config.is_scheduled = cursor.boolean()


def _replica_count(cursor: Cursor, config: ModuleConfig) -> None:
    config.replica_count = cursor.integer()


def _num_partitions(cursor: Cursor, config: ModuleConfig) -> None:
    config.num_partitions = cursor.integer()


def _alias_passthrough_params(cursor: Cursor, config: ModuleConfig) -> None:
    config.alias_passthrough_params = cursor.boolean()


def _frontend_attributes(cursor: Cursor, config: ModuleConfig) -> None:
    config.frontend_attributes = parse_frontend_attributes(cursor)


def _to_parameters(cursor: Cursor, config: ModuleConfig) -> None:
    config.allow_spmd_sharding_propagation_to_parameters = _booleans(cursor)


def _to_output(cursor: Cursor, config: ModuleConfig) -> None:
    config.allow_spmd_sharding_propagation_to_output = _booleans(cursor)


def _booleans(cursor: Cursor) -> tuple[bool, ...]:
    """Parse ``true`` or ``{true,false}``; an empty list means false."""
    if not cursor.accept("{"):
        return (cursor.boolean(),)
    values: list[bool] = []
    while not cursor.accept("}"):
        if values:
            cursor.expect(",")
        values.append(cursor.boolean())
    return tuple(values) or (False,)


def _entry_computation_layout(cursor: Cursor, config: ModuleConfig) -> None:
    cursor.expect("{")
    cursor.expect("(")
    parameters: list[Shape] = []
    while not cursor.accept(")"):
        parameters.append(cursor.shape())
        if not cursor.accept(","):
            cursor.expect(")")
            break
    cursor.expect("->")
    config.entry_layout = ProgramShape(tuple(parameters), cursor.shape())
    cursor.expect("}")


def _input_output_alias(cursor: Cursor, config: ModuleConfig) -> None:
    """Parse ``{ {0}: (1, {}, may-alias), {1}: (0, {2}) }``, in which every output occurs once."""
    cursor.expect("{")
    while not cursor.accept("}"):
        cursor.skip()
        start = cursor.position
        output = cursor.integers()
        cursor.expect(":")
        parameter, index, kind = _aliased(cursor)
        if output in config.aliases:
            message = f"output {list(output)} is aliased twice"
            raise cursor.error(message, rule="module.alias-once", position=start)
        if parameter < 0:
            message = f"parameter number {parameter} is negative"
            raise cursor.error(message, rule="module.alias-parameter", position=start)
        config.aliases[output] = Alias(parameter, index, kind)
        if not cursor.accept(","):
            cursor.expect("}")
            break


def _aliased(cursor: Cursor) -> tuple[int, ShapeIndex, str]:
    cursor.expect("(")
    parameter = cursor.integer()
    cursor.expect(",")
    index = cursor.integers()
    kind = "may-alias"
    if cursor.accept(","):
        cursor.skip()
        start = cursor.position
        kind = cursor.name("may-alias or must-alias")
        if kind not in ALIAS_KINDS:
            message = f"expected may-alias or must-alias, found {kind!r}"
            raise cursor.error(message, rule="module.alias-kind", position=start)
    cursor.expect(")")
    return parameter, index, kind


def _buffer_donor(cursor: Cursor, config: ModuleConfig) -> None:
    cursor.expect("{")
    while not cursor.accept("}"):
        cursor.expect("(")
        parameter = cursor.integer()
        cursor.expect(",")
        donor = (parameter, cursor.integers())
        cursor.expect(")")
        if donor not in config.buffer_donors:
            config.buffer_donors.append(donor)
        if not cursor.accept(","):
            cursor.expect("}")
            break


def _origin_recovery_table(cursor: Cursor, config: ModuleConfig) -> None:
    """Parse ``{ {"lost"} : {"kept"}, "HloModule ..." }``, whose entries have no commas between them."""
    cursor.expect("{")
    while not cursor.accept("}"):
        lost = OriginalArray.parse(cursor) or OriginalArray("")
        cursor.expect(":")
        recovered = OriginalArray.parse(cursor) or OriginalArray("")
        module = None
        if cursor.accept(","):
            start = cursor.position
            try:
                module = HloModule.from_text(cursor.string())
            except HloError as error:
                raise cursor.error(
                    f"in a recovery module: {error.message}", rule=error.rule, position=start
                ) from None
        config.recovery_table.setdefault(lost, (recovered, module))


_READERS: Final[dict[str, Reader]] = {
    "is_scheduled": _is_scheduled,
    "replica_count": _replica_count,
    "num_partitions": _num_partitions,
    "input_output_alias": _input_output_alias,
    "buffer_donor": _buffer_donor,
    "alias_passthrough_params": _alias_passthrough_params,
    "entry_computation_layout": _entry_computation_layout,
    "frontend_attributes": _frontend_attributes,
    "allow_spmd_sharding_propagation_to_parameters": _to_parameters,
    "allow_spmd_sharding_propagation_to_output": _to_output,
    "origin_recovery_table": _origin_recovery_table,
}

# -- printing


def _name_text(module: HloModule) -> str:
    """Return the module's name in a form that can be parsed; names in protos need not be well formed."""
    name = sanitized(module.name) or f"module_{module.entry.name}"
    return f"%{name}" if name in KEYWORDS else name


def header_text(module: HloModule, options: PrintOptions) -> str:
    """Return the header as XLA prints it, without a final newline."""
    config = module.config
    parts = [f"HloModule {_name_text(module)}" if options.print_ids else "HloModule "]
    if config.is_scheduled:
        parts.append("is_scheduled=true")
    if config.aliases:
        entries = (
            f"{_index_text(output)}: ({a.parameter_number}, {_index_text(a.parameter_index)}, {a.kind})"
            for output, a in sorted(config.aliases.items(), key=lambda entry: entry[0])
        )
        parts.append(f"input_output_alias={{ {', '.join(entries)} }}")
    if config.buffer_donors:
        donors = (f"({number}, {_index_text(index)})" for number, index in sorted(config.buffer_donors))
        parts.append(f"buffer_donor={{ {', '.join(donors)} }}")
    if config.alias_passthrough_params:
        parts.append("alias_passthrough_params=true")
    if config.entry_layout is not None:
        layout = config.entry_layout
        parameters = Shape.tuple_(layout.parameters)
        parts.append(f"entry_computation_layout={{{parameters}->{layout.result}}}")
    for name in (
        "allow_spmd_sharding_propagation_to_parameters",
        "allow_spmd_sharding_propagation_to_output",
    ):
        flags: tuple[bool, ...] = getattr(config, name)
        if flags != (False,):
            parts.append(f"{name}={{{','.join('true' if flag else 'false' for flag in flags)}}}")
    if config.replica_count != 1:
        parts.append(f"replica_count={config.replica_count}")
    if config.num_partitions != 1:
        parts.append(f"num_partitions={config.num_partitions}")
    if config.frontend_attributes:
        parts.append("frontend_attributes=" + frontend_attributes_text(config.frontend_attributes))
    if config.recovery_table:
        parts.append("origin_recovery_table=" + _recovery_table_text(config))
    return ", ".join(parts)


def _index_text(index: ShapeIndex) -> str:
    return "{" + ",".join(map(str, index)) + "}"


def _recovery_table_text(config: ModuleConfig) -> str:
    lines = ["{"]
    table = sorted(config.recovery_table.items(), key=lambda entry: (entry[0].instruction, entry[0].index))
    for lost, (recovered, module) in table:
        if module is None:
            lines.append(f"  {lost.text()} : {recovered.text()}")
            continue
        lines.append(f"  {lost.text()} : {recovered.text()},")
        program = "\n".join("    " + line if line else "" for line in module.to_text().split("\n"))
        lines.append(f'  "\n{program}\n  "')
    return "\n".join([*lines, "}"]) + "\n"
