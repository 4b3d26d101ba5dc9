"""What a proof rests on besides the algebra: lookups that are made, so that their numbers lie within their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.proof.algebra import Algebra
from harness.proof.sizes import product
from harness.proof.terms import Atom, Poly


def without_lookup(alg: Algebra, results: Sequence[Poly]) -> set[int]:
    """The ids of the results that take numbers for numbers within rows, though no result needs their lookup.

    TensorFlow leaves out what nobody reads, and then numbers outside of their rows raise no error.
    """
    if not any(atom.op == "SegmentsOfRows" for atom in alg.atoms):
        return set()
    made = set()
    for atom in _within(alg, results, whole=True):
        if atom.op == "Gather" and (batch := atom.attrs[1]):
            table, ids = atom.args
            by_rows = (product(ids.shape[:batch]), product(ids.shape[batch:]))
            made.add((alg.reshape(ids, by_rows).id, table.shape[atom.attrs[0]]))
    return {
        result.id
        for result in results
        if any(
            atom.op == "SegmentsOfRows" and (atom.args[1].id, atom.attrs) not in made
            for atom in _within(alg, [result], whole=False)
        )
    }


def _within(alg: Algebra, values: Sequence[Poly], *, whole: bool) -> Iterator[Atom]:
    """The atoms that values are made of; with ``whole``, without those of which only some rows are needed."""
    seen: set[tuple[int, bool]] = set()
    stack = [(value, False) for value in values]
    while stack:
        value, sliced = stack.pop()
        if (value.id, sliced) in seen:
            continue
        seen.add((value.id, sliced))
        for atom in (alg.atoms[i] for mono, _ in value.terms for i in mono):
            if not (whole and sliced):
                yield atom
            stack.extend((each, atom.op == "slice") for each in alg.inner(atom))
