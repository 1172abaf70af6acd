"""Declarations of LAPACK routines: operands, results and arguments, as a table in text.

A routine is ``names: operands -> results``, followed by indented lines. A name may be followed by the letters
of its types, as in ``orgqr/sd``.

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
from dataclasses import field
from typing import Any, Final, TypeAlias

from hloom.errors import HloError
from hloom.records import dataclass
from hloom.regex import regex

Sizes: TypeAlias = Mapping[str, int]
Attributes: TypeAlias = Mapping[str, Any]
Size: TypeAlias = Callable[[Sizes, Attributes], "int | None"]
"""Computes a size from those of the operands and the attributes; None leaves it open."""

_TABLE: Final = """
potrf: a[N,N] -> a info:i[]
  arguments @uplo:LU N a ld(a) info
  rows_first ~uplo:LU N a ld(a) info
getrf: a[M,N] -> a pivots:i[K] info:i[]
  arguments M N a ld(a) pivots info
geqrf: a[M,N] -> a tau[K]
  arguments M N a ld(a) tau work lwork info
geqp3: a[M,N] columns:i[N] -> a columns tau[K]
  arguments M N a ld(a) columns tau work lwork rwork info
  scratch rwork:r[R]
  sizes R=2N
orgqr/sd ungqr/cz: a[M,N] tau[J] -> a
  arguments M N J a ld(a) tau work lwork info
ormqr/sd unmqr/cz: a[P,R] tau[J] c[M,N] -> c
  arguments ?left:LR ?transpose:HN M N J a ld(a) tau c ld(c) work lwork info
  sizes P=left?M:N
  columns_at_least R J

trsm: a[P,P] b[M,N] -> b
  arguments @side:LR @uplo:LU @trans_x:NTC @diag:NU M N one a ld(a) b ld(b)
  rows_first ~side:LR ~uplo:LU @trans_x:NTC @diag:NU N M one a ld(a) b ld(b)
  sizes P=side?M:N
gtsv: lower[N] diagonal[N] upper[N] b[N,M] -> lower diagonal upper b info:i[]
  arguments N M lower+1 diagonal upper b ld(b) info

gesdd: a[M,N] -> a s:r[K] u[M,X] vt[Y,N] info:i[]
  arguments @mode:ANS M N a ld(a) s u ld(u) vt ld(vt) work lwork rwork iwork info
  scratch rwork:r[R] iwork:i[I]
  sizes X=mode?M:K Y=mode?N:K R=gesdd I=8K
gesvd: a[M,N] -> a s:r[K] u[M,X] vt[Y,N] info:i[]
  arguments @mode:ANS @mode:ANS M N a ld(a) s u ld(u) vt ld(vt) work lwork rwork info
  scratch rwork:r[R]
  sizes X=mode?M:K Y=mode?N:K R=5K

syevd/sd heevd/cz: a[N,N] -> a w:r[N] info:i[]
  arguments @mode:NV @uplo:LU N a ld(a) w work lwork rwork lrwork iwork liwork info
geev/sd: a[N,N] -> wr[N] wi[N] left:c[N,N] right:c[N,N] info:i[]
  arguments @compute_left:NV @compute_right:NV N a ld(a) wr wi vl ld(vl) vr ld(vr) work lwork info
  scratch vl[N,N] vr[N,N]
  finite a
  pairs vl,left,wi,compute_left vr,right,wi,compute_right
geev/cz: a[N,N] -> w[N] left[N,N] right[N,N] info:i[]
  arguments @compute_left:NV @compute_right:NV N a ld(a) w left ld(left) right ld(right) work lwork rwork info
  scratch rwork:r[R]
  sizes R=2N
  finite a
gees/sd: a[N,N] -> a vectors[N,N] wr[N] wi[N] selected:i[] info:i[]
  arguments @mode:NV @sort:N null N a ld(a) selected wr wi vectors ld(vectors) work lwork rwork bwork info
  scratch rwork:r[N] bwork:i[N]
gees/cz: a[N,N] -> a vectors[N,N] w[N] selected:i[] info:i[]
  arguments @mode:NV @sort:N null N a ld(a) selected w vectors ld(vectors) work lwork rwork bwork info
  scratch rwork:r[N] bwork:i[N]

gehrd: a[N,N] -> a tau[H] info:i[]
  arguments N #low #high a ld(a) tau work lwork info
  sizes H=N-1
sytrd/sd hetrd/cz: a[N,N] -> a d:r[N] e:r[H] tau[H] info:i[]
  arguments @uplo:LU N a ld(a) d e tau work lwork info
  sizes H=N-1
"""
"""Triangular and orthogonal factors; linear equations; singular values; eigenvalues; condensed forms.

The transpose of a Hermitian matrix is its conjugate, whose factor is the conjugate of the factor: potrf can
read rows first. The lower diagonal of gtsv begins at the operand's second element; the upper one excludes the
last.
"""


def _is(letter: str, attribute: str, attributes: Attributes) -> bool:
    return attributes.get(attribute) == ord(letter)


def _vectors(full: str) -> Size:
    """Count singular vectors: all (A), those of singular values (S), or as many as the result has."""
    return lambda s, a: s[full] if _is("A", "mode", a) else s["K"] if _is("S", "mode", a) else None


def _gesdd_workspace(sizes: Sizes, attributes: Attributes) -> int:
    """Return the length of gesdd's real workspace, from its documentation."""
    least, most = sizes["K"], max(sizes["M"], sizes["N"])
    if _is("N", "mode", attributes):
        return 7 * least
    return max(5 * least * least + 7 * least, 2 * most * least + 2 * least * least + least)


_SIZES: Final[dict[str, Size]] = {
    "N-1": lambda s, _: max(0, s["N"] - 1),
    "2N": lambda s, _: 2 * s["N"],
    "5K": lambda s, _: 5 * s["K"],
    "8K": lambda s, _: 8 * s["K"],
    "left?M:N": lambda s, a: s["M"] if a.get("left") else s["N"],
    "side?M:N": lambda s, a: s["M"] if _is("L", "side", a) else s["N"],
    "mode?M:K": _vectors("M"),
    "mode?N:K": _vectors("N"),
    "gesdd": _gesdd_workspace,
}
"""The formulas of the table."""


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
    operands: tuple[Declared, ...]
    results: tuple[Declared, ...]
    arguments: tuple[str, ...]
    rows_first: tuple[str, ...] = ()
    scratch: tuple[Declared, ...] = ()
    sizes: Mapping[str, Size] = field(default_factory=dict[str, Size])
    columns_at_least: tuple[str, ...] = ()
    finite: str = ""
    pairs: tuple[ConjugatePairs, ...] = ()


ROUTINES: Final[dict[str, LapackRoutine]] = {}
"""The routines by the target of their custom calls."""

_ARRAY: Final = regex(r"(\w+)(?::([tric]))?(?:\[([A-Z,]*)\])?")


def _arrays(words: Sequence[str], known: Sequence[Declared] = ()) -> tuple[Declared, ...]:
    operands, arrays = {array.name: array for array in known}, list[Declared]()
    for word in words:
        match = _ARRAY.fullmatch(word)
        if match is None:
            raise HloError(f"{word!r} declares no array", rule="lapack.declaration")
        name, kind, sizes = match.groups()
        if sizes is None and name not in operands:
            raise HloError(f"{name} has no sizes and is no operand", rule="lapack.declaration")
        stated = Declared(name, kind or "t", tuple(filter(None, (sizes or "").split(","))))
        arrays.append(stated if sizes is not None else operands[name])
    return tuple(arrays)


_FIELDS: Final[dict[str, Callable[[Sequence[str]], Any]]] = {
    "arguments": tuple,
    "rows_first": tuple,
    "columns_at_least": tuple,
    "finite": "".join,
    "scratch": _arrays,
    "sizes": lambda words: {word[0]: _SIZES[word[2:]] for word in words},
    "pairs": lambda words: tuple(ConjugatePairs(*word.split(",")) for word in words),
}
"""Readers of the indented lines, by the field that each one sets."""


def _declare(table: str) -> None:
    """Add the routines of a table."""
    for declaration in re.findall(r"^\S.*\n(?: .*\n)*", table, re.MULTILINE):
        header, *lines = declaration.splitlines()
        names, results = header.split(" -> ")
        names, operands = names.split(": ")
        arrays = _arrays(operands.split())
        fields = {word: _FIELDS[word](words) for word, *words in map(str.split, lines)}
        for name in names.split():
            name, _, prefixes = name.partition("/")
            routine = LapackRoutine(name, arrays, _arrays(results.split(), arrays), **fields)
            ROUTINES.update({f"lapack_{prefix}{name}_ffi": routine for prefix in prefixes or "sdcz"})


_declare(_TABLE)
