"""What the gradient of each op type is made of, as TensorFlow's registered gradient functions make it.

The table is in ``derivatives.txt``, one op type a line (further lines indented): ``Cos: Neg Neg+Sin>Mul`` says that
the gradient of Cos has a Neg that reads the gradient that arrives, and a Mul that reads that Neg and a Sin. A star
behind the type says that its gradient reads the op's own output; a dot before a word, that this op is read by no other.
It was read off the graphs of some 250 small functions, with static and with unknown shapes, of first and second
derivatives, in which each backward op's forward op was known. A type that is not listed can be made of anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

#: Types that can hand the arriving gradient on unchanged, without an op of its own.
PASSED_THROUGH = frozenset(
    {"Add", "AddN", "AddV2", "BiasAdd", "EnsureShape", "Identity", "IdentityN", "ReadVariableOp", "Snapshot", "Sub"}
)


@dataclass(frozen=True, slots=True)
class Derivative:
    """The gradient of an op type.

    ``first`` are the types that read the gradient that arrives, ``inner`` the pairs of types of which the second
    reads the first, ``types`` all of them.
    """

    first: frozenset[str]
    inner: frozenset[tuple[str, str]]
    types: frozenset[str]
    reads_output: bool


@lru_cache(maxsize=1)
def _table() -> dict[str, Derivative]:
    text = (Path(__file__).parent / "derivatives.txt").read_text(encoding="utf-8")
    return dict(map(_parse, text.replace("\n  ", " ").splitlines()))


def _parse(line: str) -> tuple[str, Derivative]:
    name, _, words = line.partition(": ")
    first, types, inner = set[str](), set[str](), set[tuple[str, str]]()
    for word in words.split():
        makers, arrow, reader = word.partition(">")
        if arrow:
            inner.update((maker, reader) for maker in makers.split("+"))
            types.update((*makers.split("+"), reader))
        else:
            types.add(word.removeprefix("."))
            if not word.startswith("."):
                first.add(word)
    return name.removesuffix("*"), Derivative(frozenset(first), frozenset(inner), frozenset(types), name.endswith("*"))


def derivative_of(op_type: str) -> Derivative | None:
    """What the gradient of an op of this type is made of, or ``None`` where that is not known."""
    return _table().get(op_type)


def may_make(forward: str, backward: str) -> bool:
    """Whether the gradient of a ``forward`` op can have a ``backward`` op."""
    known = derivative_of(forward)
    return known is None or backward in known.types


def may_begin(forward: str, backward: str) -> bool:
    """Whether a ``backward`` op can read the gradient that arrives at a ``forward`` op."""
    known = derivative_of(forward)
    return known is None or backward in known.first


def may_go_on(forward: str, maker: str, reader: str) -> bool:
    """Whether in the gradient of a ``forward`` op a ``reader`` op can read what a ``maker`` op made."""
    known = derivative_of(forward)
    return known is None or (maker, reader) in known.inner


def reads_output(forward: str) -> bool:
    """Whether the gradient of a ``forward`` op can read that op's own output."""
    known = derivative_of(forward)
    return known is None or known.reads_output
