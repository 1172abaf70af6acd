"""Declarations of LAPACK routines: operands, results and arguments, in a notation of one line each.

Arrays are written with their sizes: ``a[M,N]``, ``pivots:i[K]``, ``info:i[]``. The letter is the element
type: ``t`` (the default) of the matrices, ``r`` of their real parts, ``c`` the complex type, ``i`` s32. Sizes
are equal wherever their letter is; K is the smaller one of M and N. A result of an operand's name is the
operand after LAPACK has overwritten it.

Arguments are

- a name of an array: its address; ``name+1`` is that of its second element,
- a size: an integer,
- ``ld(a)``: the leading dimension,
- ``@uplo:LU``: the letter whose code is the attribute, one of those listed; ``#low``: an integral attribute,
- ``~uplo:LU``: the other one of two letters than that of the attribute,
- ``?left:LR``: one of two letters by a truth value; ``H`` is T for real matrices, else C,
- ``one``, ``null``: the number 1 of type t, and no address,
- ``work lwork``: a workspace of type t, of the length that LAPACK wants, and this length. ``rwork`` is of
  type r and passed for complex matrices only, ``iwork`` of type i. ``info`` is there even if it is no result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from hloom.errors import HloError

Sizes: TypeAlias = Mapping[str, int]
Attributes: TypeAlias = Mapping[str, Any]
Size: TypeAlias = Callable[[Sizes, Attributes], "int | None"]
"""Computes a size from those of the operands and the attributes; None leaves it open."""

_ARRAY: Final = re.compile(r"(\w+)(?::([tric]))?(?:\[([A-Z,]*)\])?")


@dataclass(frozen=True, slots=True)
class Declared:
    """An array of a declaration: its name, the letter of its type, and its sizes."""

    name: str
    kind: str
    sizes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConjugatePairs:
    """Complex vectors that real routines write as pairs of columns, for real and imaginary parts.

    Attributes:
        packed: the matrix that LAPACK writes.
        vectors: the complex result.
        imaginary: the imaginary parts of the eigenvalues, which are not zero at pairs.
        wanted: the attribute that is ``V`` if the vectors are computed.
    """

    packed: str
    vectors: str
    imaginary: str
    wanted: str


@dataclass(frozen=True, slots=True)
class LapackRoutine:
    """A routine of LAPACK or BLAS.

    Attributes:
        name: without the letter of its type.
        prefixes: of the types that there are.
        operands, results, scratch: the arrays.
        arguments: in LAPACK's order.
        rows_first: arguments with which the routine computes the same on matrices whose rows are contiguous,
            which it takes for their transposes; empty if there are none. It only reads those operands that
            are no results.
        sizes: sizes that follow from others.
        columns_at_least: a pair of sizes of which the first is not smaller.
        finite: an operand on which the routine may not end if there is NaN or an infinity; info is then -4.
        pairs: results to unpack.
    """

    name: str
    prefixes: str
    operands: tuple[Declared, ...]
    results: tuple[Declared, ...]
    scratch: tuple[Declared, ...]
    arguments: tuple[str, ...]
    rows_first: tuple[str, ...]
    sizes: Mapping[str, Size]
    columns_at_least: tuple[str, str] | None
    finite: str
    pairs: tuple[ConjugatePairs, ...]


ROUTINES: Final[dict[str, LapackRoutine]] = {}
"""The routines by the target of their custom calls."""


def _declare(
    name: str,
    operands: str,
    results: str,
    arguments: str,
    *,
    rows_first: str = "",
    prefixes: str = "sdcz",
    scratch: str = "",
    sizes: Mapping[str, Size] | None = None,
    columns_at_least: tuple[str, str] | None = None,
    finite: str = "",
    pairs: Sequence[ConjugatePairs] = (),
) -> None:
    given = _arrays(operands, {})
    routine = LapackRoutine(
        name, prefixes, given, _arrays(results, {a.name: a for a in given}), _arrays(scratch, {}),
        tuple(arguments.split()), tuple(rows_first.split()), sizes or {}, columns_at_least, finite,
        tuple(pairs),
    )  # fmt: skip
    for prefix in prefixes:
        ROUTINES[f"lapack_{prefix}{name}_ffi"] = routine


def _arrays(text: str, known: Mapping[str, Declared]) -> tuple[Declared, ...]:
    found: list[Declared] = []
    for word in text.split():
        match = _ARRAY.fullmatch(word)
        if match is None:
            raise HloError(f"{word!r} declares no array", rule="lapack.declaration")
        name, kind, sizes = match.groups()
        if sizes is None and name not in known:
            raise HloError(f"{name} has no sizes and is no operand", rule="lapack.declaration")
        stated = Declared(name, kind or "t", tuple(filter(None, (sizes or "").split(","))))
        found.append(stated if sizes is not None else known[name])
    return tuple(found)


def _is(letter: str, attribute: str, attributes: Attributes) -> bool:
    return attributes.get(attribute) == ord(letter)


# -- triangular and orthogonal factors

# The transpose of a Hermitian matrix is its conjugate, whose factor is the conjugate of the factor.
_declare(
    "potrf", "a[N,N]", "a info:i[]", "@uplo:LU N a ld(a) info", rows_first="~uplo:LU N a ld(a) info",
)  # fmt: skip
_declare("getrf", "a[M,N]", "a pivots:i[K] info:i[]", "M N a ld(a) pivots info")
_declare("geqrf", "a[M,N]", "a tau[K]", "M N a ld(a) tau work lwork info")
_declare(
    "geqp3", "a[M,N] columns:i[N]", "a columns tau[K]",
    "M N a ld(a) columns tau work lwork rwork info", scratch="rwork:r[R]",
    sizes={"R": lambda s, _: 2 * s["N"]},
)  # fmt: skip
for _name, _types in (("orgqr", "sd"), ("ungqr", "cz")):
    _declare(_name, "a[M,N] tau[J]", "a", "M N J a ld(a) tau work lwork info", prefixes=_types)
for _name, _types in (("ormqr", "sd"), ("unmqr", "cz")):
    _declare(
        _name, "a[P,R] tau[J] c[M,N]", "c",
        "?left:LR ?transpose:HN M N J a ld(a) tau c ld(c) work lwork info",
        prefixes=_types, sizes={"P": lambda s, a: s["M"] if a.get("left") else s["N"]},
        columns_at_least=("R", "J"),
    )  # fmt: skip

# -- linear equations

_declare(
    "trsm", "a[P,P] b[M,N]", "b", "@side:LR @uplo:LU @trans_x:NTC @diag:NU M N one a ld(a) b ld(b)",
    rows_first="~side:LR ~uplo:LU @trans_x:NTC @diag:NU N M one a ld(a) b ld(b)",
    sizes={"P": lambda s, a: s["M"] if _is("L", "side", a) else s["N"]},
)  # fmt: skip
# LAPACK's lower diagonal begins at the operand's second element; its upper one excludes the last.
_declare(
    "gtsv", "lower[N] diagonal[N] upper[N] b[N,M]", "lower diagonal upper b info:i[]",
    "N M lower+1 diagonal upper b ld(b) info",
)  # fmt: skip

# -- singular values


def _wide(sizes: Sizes, attributes: Attributes) -> int:
    """Return the length of gesdd's real workspace, from its documentation."""
    least, most = sizes["K"], max(sizes["M"], sizes["N"])
    if _is("N", "mode", attributes):
        return 7 * least
    return max(5 * least * least + 7 * least, 2 * most * least + 2 * least * least + least)


_SINGULAR: Final = "a s:r[K] u[M,X] vt[Y,N] info:i[]"
_VECTORS: Final[dict[str, Size]] = {
    "X": lambda s, a: s["M"] if _is("A", "mode", a) else s["K"] if _is("S", "mode", a) else None,
    "Y": lambda s, a: s["N"] if _is("A", "mode", a) else s["K"] if _is("S", "mode", a) else None,
}
_declare(
    "gesdd", "a[M,N]", _SINGULAR, "@mode:ANS M N a ld(a) s u ld(u) vt ld(vt) work lwork rwork iwork info",
    scratch="rwork:r[R] iwork:i[I]", sizes={**_VECTORS, "R": _wide, "I": lambda s, _: 8 * s["K"]},
)  # fmt: skip
_declare(
    "gesvd", "a[M,N]", _SINGULAR, "@mode:ANS @mode:ANS M N a ld(a) s u ld(u) vt ld(vt) work lwork rwork info",
    scratch="rwork:r[R]", sizes={**_VECTORS, "R": lambda s, _: 5 * s["K"]},
)  # fmt: skip

# -- eigenvalues

for _name, _types in (("syevd", "sd"), ("heevd", "cz")):
    _declare(
        _name, "a[N,N]", "a w:r[N] info:i[]",
        "@mode:NV @uplo:LU N a ld(a) w work lwork rwork lrwork iwork liwork info", prefixes=_types,
    )  # fmt: skip
_declare(
    "geev", "a[N,N]", "wr[N] wi[N] left:c[N,N] right:c[N,N] info:i[]",
    "@compute_left:NV @compute_right:NV N a ld(a) wr wi vl ld(vl) vr ld(vr) work lwork info", prefixes="sd",
    scratch="vl[N,N] vr[N,N]", finite="a",
    pairs=(
        ConjugatePairs("vl", "left", "wi", "compute_left"),
        ConjugatePairs("vr", "right", "wi", "compute_right"),
    ),
)  # fmt: skip
_declare(
    "geev", "a[N,N]", "w[N] left[N,N] right[N,N] info:i[]",
    "@compute_left:NV @compute_right:NV N a ld(a) w left ld(left) right ld(right) work lwork rwork info",
    prefixes="cz", scratch="rwork:r[R]", sizes={"R": lambda s, _: 2 * s["N"]}, finite="a",
)  # fmt: skip
for _types, _values, _names in (("sd", "wr[N] wi[N]", "wr wi"), ("cz", "w[N]", "w")):
    _declare(
        "gees", "a[N,N]", f"a vectors[N,N] {_values} selected:i[] info:i[]",
        f"@mode:NV @sort:N null N a ld(a) selected {_names} vectors ld(vectors) work lwork rwork bwork info",
        prefixes=_types, scratch="rwork:r[N] bwork:i[N]",
    )  # fmt: skip

# -- condensed forms

_declare(
    "gehrd", "a[N,N]", "a tau[H] info:i[]", "N #low #high a ld(a) tau work lwork info",
    sizes={"H": lambda s, _: max(0, s["N"] - 1)},
)  # fmt: skip
for _name, _types in (("sytrd", "sd"), ("hetrd", "cz")):
    _declare(
        _name, "a[N,N]", "a d:r[N] e:r[H] tau[H] info:i[]", "@uplo:LU N a ld(a) d e tau work lwork info",
        prefixes=_types, sizes={"H": lambda s, _: max(0, s["N"] - 1)},
    )  # fmt: skip
