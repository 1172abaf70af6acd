"""The named rules of an operation, read from the source: the errors that its methods can raise.

The walk follows the methods of the operation's class into the functions that they call. A rule's name is
often composed of the opcode and an argument (`f"{opcode}.{name}-sorted"`), so constants are propagated along
the calls.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

from hloom.ir.operation import REGISTRY, Operation
from hloom.records import dataclass

SOURCE: Final = Path(__file__).parents[2]
_ENTRANCES: Final = ("infer", "check", "verify", "parse_operands", "evaluate")
_FOLLOWED: Final = ("hloom.operations", "hloom.ir", "hloom.shape")
_MAKERS: Final = ("rule", "broken")
_PYTHON: Final = ("self", "list", "tuple", "map", "str", "len", "sorted", "max", "min", "sum", "set", "type")
_BELOW: Final = ("element-type", "shape", "layout", "literal", "cursor")
"""Prefixes of rules of the data model, which all operations share."""

Function: TypeAlias = ast.FunctionDef
Known: TypeAlias = Mapping[str, frozenset[str]]
"""The possible constant strings of each variable."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of an operation.

    Attributes:
        name: such as ``gather.offset_dims-count``.
        message: the error message, with variable parts in braces.
        where: the method or function that raises the error.
    """

    name: str
    message: str
    where: str


def rules_of(opcode: str) -> list[Rule]:
    """Return the rules that an operation's methods can raise, in the order of the checks."""
    walk = _Walk(REGISTRY[opcode])
    for name in _ENTRANCES:
        walk.method(name, {})
    rules = {rule.name: rule for rule in walk.rules if rule.name.split(".")[0] not in _BELOW}
    if REGISTRY[opcode].arity() == 1:
        rules = {name: rule for name, rule in rules.items() if ".same-" not in name}
    return list(rules.values())


def named_in_source(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the rules that a file names by literal strings, with their line numbers."""
    text = path.read_text()
    if not any(name in text for name in _MAKERS):  # parsing takes long
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = _rule_argument(node)
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value:
                yield name.value, node.lineno


# -- following the calls


@dataclass
class _Walk:
    """The walk over the functions that an operation calls, each once for each set of constant arguments."""

    operation: type[Operation]
    rules: list[Rule] = field(default_factory=list[Rule])
    seen: set[Any] = field(default_factory=set[Any])

    def method(self, name: str, known: Known, above: type | None = None) -> None:
        """Walk a method of the operation's class, or of the classes after `above` in its MRO."""
        bases = self.operation.__mro__
        start = 0 if above is None else bases.index(above) + 1
        for base in bases[start:]:
            if name in vars(base) and base.__module__.startswith(_FOLLOWED):
                definition = _class(base).get(name)
                if definition is not None:
                    self.function(definition, importlib.import_module(base.__module__), known, base)
                return

    def function(self, definition: Function, module: ModuleType, known: Known, owner: type | None) -> None:
        key = (module.__name__, definition.name, definition.lineno, tuple(sorted(known.items())))
        if key in self.seen:
            return
        self.seen.add(key)
        scope = _Scope(self.operation, module, owner, {**_defaults(definition), **known})
        where = definition.name
        for node in scope.live(definition):
            if (
                isinstance(node, ast.Assign)
                and len(node.targets) == 1
                and isinstance(node.targets[0], ast.Name)
            ):
                scope.assign(node.targets[0].id, node.value)
            elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
                scope.loop(node.target.id, node.iter)
            elif isinstance(node, ast.Call):
                self.call(node, scope, where)

    def call(self, node: ast.Call, scope: _Scope, where: str) -> None:
        name = _rule_argument(node)
        if name is not None:
            others = [argument for argument in node.args if argument is not name]
            message = others[0] if others else name
            for text in sorted(scope.texts(name)):
                self.rules.append(Rule(text, scope.words(message), where))
        target = scope.target(node.func)
        if target is None:
            return
        callee, module, owner = target
        if owner is not None and callee is None:
            self.method(module.__name__, scope.arguments(node, None), owner if owner is not object else None)
        elif callee is not None:
            self.function(callee, module, scope.arguments(node, callee), None)


@dataclass
class _Scope:
    """The constant values of variables in one function."""

    operation: type[Operation]
    module: ModuleType
    owner: type | None
    values: dict[str, frozenset[str]]
    messages: dict[str, ast.expr] = field(default_factory=dict[str, ast.expr])

    def assign(self, name: str, value: ast.expr) -> None:
        self.messages[name] = value
        texts = self.texts(value)
        if texts:
            self.values[name] = texts

    def loop(self, name: str, over: ast.expr) -> None:
        if isinstance(over, ast.Tuple | ast.List):
            self.values[name] = frozenset(text for element in over.elts for text in self.texts(element))

    def texts(self, node: ast.expr) -> frozenset[str]:
        """Return the possible constant strings of an expression; empty if it is not constant."""
        if isinstance(node, ast.Constant):
            return frozenset((str(node.value),) if isinstance(node.value, str | bool) else ()) - {""}
        if isinstance(node, ast.Name):
            return (
                frozenset((self.operation.opcode,))
                if node.id == "opcode"
                else self.values.get(node.id, frozenset())
            )
        if isinstance(node, ast.IfExp):
            return self.texts(node.body) | self.texts(node.orelse)
        if isinstance(node, ast.Attribute):
            value = getattr(self.operation, node.attr, None)
            if node.attr == "opcode":
                return frozenset((self.operation.opcode,))
            return frozenset((value,)) if isinstance(value, str) else frozenset()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 2:
            old, new = (a.value if isinstance(a, ast.Constant) else "" for a in node.args)
            replaced = self.texts(node.func.value) if node.func.attr == "replace" else ()
            return frozenset(text.replace(str(old), str(new)) for text in replaced)
        if isinstance(node, ast.JoinedStr):
            prefixes = {""}
            for part in node.values:
                inner = self.texts(part.value if isinstance(part, ast.FormattedValue) else part)
                prefixes = {prefix + suffix for prefix in prefixes for suffix in inner}
            return frozenset(prefixes)
        return frozenset()

    def live(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes of a function in source order, without dead branches of this operation."""
        for child in ast.iter_child_nodes(node):
            yield child
            if isinstance(child, ast.If) and self.never(child.test):
                for other in child.orelse:
                    yield other
                    yield from self.live(other)
            else:
                yield from self.live(child)

    def never(self, test: ast.expr) -> bool:
        """Return whether a condition is always false for this operation."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return any(self.never(value) for value in test.values)
        if isinstance(test, ast.Name):
            return self.values.get(test.id) == frozenset(("False",))
        if isinstance(test, ast.Attribute):
            return getattr(self.operation, test.attr, None) is False
        if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "getattr":
            name = test.args[1]
            return isinstance(name, ast.Constant) and not hasattr(self.operation, str(name.value))
        return False

    def words(self, node: ast.expr) -> str:
        """Return the text of a message expression, with variables in braces."""
        if isinstance(node, ast.Name) and node.id in self.messages:
            node = self.messages[node.id]
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.JoinedStr):
            return "".join(
                self._variable(part.value) if isinstance(part, ast.FormattedValue) else self.words(part)
                for part in node.values
            )
        return _placeholder(node)

    def _variable(self, value: ast.expr) -> str:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "plural":
            count, *nouns = value.args
            noun = self.words(nouns[-1])
            return f"{self._variable(count)} {noun if nouns[1:] else noun + 's'}"
        texts = self.texts(value)
        return next(iter(texts)) if len(texts) == 1 else _placeholder(value)

    def target(self, node: ast.expr) -> tuple[Function | None, Any, type | None] | None:
        """Return the callee: a function (definition, module, None) or a method (None, its name, above)."""
        if isinstance(node, ast.Name):
            return _function_of(getattr(self.module, node.id, None))
        if not isinstance(node, ast.Attribute):
            return None
        holder = node.value
        if isinstance(holder, ast.Name) and holder.id in ("self", "cls"):
            return None, _Named(node.attr), object
        if isinstance(holder, ast.Call) and isinstance(holder.func, ast.Name) and holder.func.id == "super":
            return None, _Named(node.attr), self.owner or object
        if isinstance(holder, ast.Name) and inspect.isclass(getattr(self.module, holder.id, None)):
            function = getattr(getattr(self.module, holder.id), node.attr, None)
            return _function_of(function)
        return None

    def arguments(self, node: ast.Call, callee: Function | None) -> dict[str, frozenset[str]]:
        """Return the constant arguments of a call, by the callee's parameters."""
        names: list[str] = []
        if callee is None and isinstance(node.func, ast.Attribute):
            method = inspect.getattr_static(self.operation, node.func.attr, None)
            method = getattr(method, "__func__", method)
            names = [
                n
                for n in getattr(getattr(method, "__code__", None), "co_varnames", ())
                if n not in ("self", "cls")
            ]
        elif callee is not None:
            names = [a.arg for a in callee.args.args]
            if names[:1] == ["self"] and not (node.args and ast.unparse(node.args[0]) == "self"):
                names = names[1:]
        pairs = [*zip(names, node.args, strict=False), *((k.arg or "", k.value) for k in node.keywords)]
        return {name: texts for name, value in pairs if name and (texts := self.texts(value))}


@dataclass(frozen=True)
class _Named:
    """A stand-in for the module of a method that `_Walk.method` looks up by name."""

    __name__: str


def _function_of(value: object) -> tuple[Function | None, Any, type | None] | None:
    value = getattr(value, "__func__", value)
    module = getattr(value, "__module__", None) or ""
    if not inspect.isfunction(value) or not module.startswith(_FOLLOWED):
        return None
    line = value.__code__.co_firstlineno
    definition = next(
        (d for d in _functions(module) if d.name == value.__name__ and _first_line(d) == line), None
    )
    return None if definition is None else (definition, importlib.import_module(module), None)


def _placeholder(node: ast.expr) -> str:
    """Return the main variable of an expression in braces, for a message."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return "{" + (node.attr if node.value.id == "self" else ast.unparse(node)) + "}"
    inside = [n for n in ast.walk(node) if isinstance(n, ast.Attribute)]
    attributes = [n.attr for n in inside if ast.unparse(n.value) == "self"]
    names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id not in _PYTHON]
    return "{" + ([*attributes, *names] or ["..."])[0] + "}"


# -- reading the source


def _rule_argument(node: ast.Call) -> ast.expr | None:
    """Return the rule argument of a call that creates an error; None for other calls."""
    for keyword in node.keywords:
        if keyword.arg == "rule":
            return keyword.value
    if isinstance(node.func, ast.Name) and node.func.id in _MAKERS and node.args:
        return node.args[0]
    return None


def _defaults(definition: Function) -> dict[str, frozenset[str]]:
    """Return the boolean defaults of a function's parameters, as constant strings."""
    arguments = definition.args
    places = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    pairs = [*zip(places, arguments.defaults), *zip(arguments.kwonlyargs, arguments.kw_defaults)]
    return {
        parameter.arg: frozenset((str(default.value),))
        for parameter, default in pairs
        if isinstance(default, ast.Constant) and isinstance(default.value, bool)
    }


def _first_line(definition: Function) -> int:
    return min([definition.lineno, *(d.lineno for d in definition.decorator_list)])


@cache
def _functions(module: str) -> tuple[Function, ...]:
    tree = _tree(module)
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@cache
def _tree(module: str) -> ast.Module:
    path = importlib.import_module(module).__file__
    assert path is not None
    return ast.parse(Path(path).read_text())


@cache
def _class(cls: type) -> dict[str, Function]:
    for node in _tree(cls.__module__).body:
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
    return {}
