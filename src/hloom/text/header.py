"""The header of a module: ``HloModule name, is_scheduled=true, entry_computation_layout={...}, ...``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from hloom.errors import HloError
from hloom.ir.cursor import KEYWORDS, Cursor
from hloom.ir.metadata import OriginalArray, frontend_attributes_text, parse_frontend_attributes
from hloom.ir.module import ALIAS_KINDS, Alias, HloModule, ModuleConfig, ShapeIndex
from hloom.ir.naming import sanitized
from hloom.ir.operation import ProgramShape
from hloom.shape.shape import Shape

if TYPE_CHECKING:
    from hloom.ir.print_options import PrintOptions

# -- reading


def parse_header_attributes(cursor: Cursor, config: ModuleConfig) -> None:
    """Parse the attributes after the module's name, each at most once and in any order."""
    seen: set[str] = set()
    while cursor.accept(","):
        start = cursor.start()
        key = cursor.key("a module attribute")
        if key in seen:
            message = f"module attribute {key!r} is given twice"
            raise cursor.error(message, rule="text.attribute-twice", position=start)
        seen.add(key)
        if key in _FIELDS:
            setattr(config, key, _FIELDS[key](cursor))
        elif key in _READERS:
            _READERS[key](cursor, config)
        else:
            message = (
                f"unexpected module attribute {key!r}; there are {', '.join(sorted(_FIELDS | _READERS))}"
            )
            raise cursor.error(message, rule="text.attribute", position=start)


def _booleans(cursor: Cursor) -> tuple[bool, ...]:
    """Parse ``true`` or ``{true,false}``; an empty list means false."""
    if not cursor.peek("{"):
        return (cursor.boolean(),)
    return tuple([cursor.boolean() for _ in cursor.items()]) or (False,)


def _entry_computation_layout(cursor: Cursor, config: ModuleConfig) -> None:
    cursor.expect("{")
    parameters = tuple([cursor.shape() for _ in cursor.items("(", ")", last_comma=True)])
    cursor.expect("->")
    config.entry_layout = ProgramShape(parameters, cursor.shape())
    cursor.expect("}")


def _input_output_alias(cursor: Cursor, config: ModuleConfig) -> None:
    """Parse ``{ {0}: (1, {}, may-alias), {1}: (0, {2}) }``, in which every output occurs once."""
    for start in cursor.items(last_comma=True):
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


def _aliased(cursor: Cursor) -> tuple[int, ShapeIndex, str]:
    cursor.expect("(")
    parameter = cursor.integer()
    cursor.expect(",")
    index = cursor.integers()
    kind = "may-alias"
    if cursor.accept(","):
        start = cursor.start()
        kind = cursor.name("may-alias or must-alias")
        if kind not in ALIAS_KINDS:
            message = f"expected may-alias or must-alias, found {kind!r}"
            raise cursor.error(message, rule="module.alias-kind", position=start)
    cursor.expect(")")
    return parameter, index, kind


def _buffer_donor(cursor: Cursor, config: ModuleConfig) -> None:
    for _ in cursor.items(last_comma=True):
        cursor.expect("(")
        parameter = cursor.integer()
        cursor.expect(",")
        donor = (parameter, cursor.integers())
        cursor.expect(")")
        if donor not in config.buffer_donors:
            config.buffer_donors.append(donor)


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


_FIELDS: Final[dict[str, Callable[[Cursor], object]]] = {
    "is_scheduled": Cursor.boolean,
    "replica_count": Cursor.integer,
    "num_partitions": Cursor.integer,
    "alias_passthrough_params": Cursor.boolean,
    "frontend_attributes": parse_frontend_attributes,
    "allow_spmd_sharding_propagation_to_parameters": _booleans,
    "allow_spmd_sharding_propagation_to_output": _booleans,
}
"""Attributes that are fields of the configuration of this name."""
_READERS: Final[dict[str, Callable[[Cursor, ModuleConfig], None]]] = {
    "input_output_alias": _input_output_alias,
    "buffer_donor": _buffer_donor,
    "entry_computation_layout": _entry_computation_layout,
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
