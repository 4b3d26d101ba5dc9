"""Says why two values are not one object, as far as the algebra shows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from harness.evidence.places import in_users, module_of, place
from harness.proof.algebra import Algebra
from harness.proof.evaluation import Lost
from harness.proof.graph import Run
from harness.proof.terms import Atom, Poly

#: Weights of more characters than this are counted, and not written out.
_LONG = 12
#: Operations whose work is that of the operations inside.
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a result is not proved; ``refuted`` if the algebra shows that it differs for some inputs."""

    why: str
    place: str = ""
    refuted: bool = False


@dataclass
class Reasons:
    """Compares the results of two runs. Atoms from ``mark`` on are of the second one alone."""

    alg: Algebra
    mark: int
    run: Run

    def __post_init__(self) -> None:
        self._known: dict[int, bool] = {}
        self._first: tuple[str, str, str] | None = None

    def of(self, p: Any, r: Any) -> Reason:
        """Why the program's result ``p`` is not proved to be the reference's ``r``."""
        if not isinstance(p, Poly) or not isinstance(r, Poly):
            lost = next((each.why for each in (p, r) if isinstance(each, Lost)), "a result that is no tensor")
            return Reason(lost, self.first()[1])
        if p.shape != r.shape or p.dtype != r.dtype:
            return Reason(f"{p.dtype}{list(p.shape)}, not {r.dtype}{list(r.shape)}", self.first()[1], refuted=True)
        unknown = self.unknown(p) or self.unknown(r)
        op, line, note = self.first()
        line = line or next((place_of(seen.op) for seen in reversed(self.run.seen) if p in seen.outputs), "")
        if unknown is not None:
            return Reason(unknown.note, line)
        shown = self._factor(p, r) or self._parts(p, r)
        if shown:
            return Reason(shown, line, refuted=True)
        if note:
            return Reason(note, line)
        return Reason(f"the result of {op} does not occur in the reference" if op else "another form", line)

    def _factor(self, p: Poly, r: Poly) -> str:
        ours, theirs = dict(p.terms), dict(r.terms)
        if not ours or ours.keys() != theirs.keys() or any(not coef for coef in (*ours.values(), *theirs.values())):
            return ""
        ratios = sorted({str(ours[mono] / theirs[mono]) for mono in ours})
        if len(ratios) == 1:
            return f"{ratios[0]} times the reference's"
        return f"some of its terms are {' or '.join(each for each in ratios if each != '1')} times the reference's"

    def _parts(self, p: Poly, r: Poly) -> str:
        found: dict[tuple[int, Any], list[tuple[Any, Any, Any]]] = {}
        places = {self.alg.atoms[i].attrs[1:] for mono, _ in r.terms for i in mono if self.alg.atoms[i].op == "part"}
        for mono, coef in p.terms:
            for i in mono:
                if self.alg.atoms[i].op == "part":
                    base, start, end, size = self.alg.atoms[i].attrs
                    if (start, end, size) in places:
                        return ""  # so does the reference sum these rows alone
                    found.setdefault((base, size), []).append((start, end, coef))
        if not self.known(p) or any(
            len([i for i in mono if self.alg.atoms[i].op == "part"]) > 1 for mono, _ in p.terms
        ):
            return ""
        # Where the reference has other terms than the sums of these parts, or two sums are one value, both programs may
        # have two forms of one value.
        sums = {self.alg.bases[base].full().id for base, _ in found}
        if found and (len(sums) < len(found) or self._of_all_rows(p) != {mono for mono, _ in r.terms}):
            return ""
        for (base, size), parts in found.items():
            known = isinstance(size, int) and self.known(self.alg.bases[base].full())
            if not known or self._are_told_apart(p, size):
                continue
            rows = sorted((start, end) for start, end, _ in parts)
            weights = list(dict.fromkeys(str(coef) for *_, coef in sorted(parts, key=lambda part: part[0])))
            if rows[0][0] == 0 and rows[-1][1] == size and all(a[1] == b[0] for a, b in itertools.pairwise(rows)):
                if len(weights) < 2:
                    return ""
                if max(map(len, weights)) > _LONG:
                    return f"shards have {len(weights)} different weights"
                return f"shards have the weights {', '.join(weights[:-1])} and {weights[-1]}"
            named = " and ".join(f"[{start}, {end})" for start, end in rows)
            if {mono for mono, _ in self.alg.bases[base].full().terms} <= {mono for mono, _ in p.terms}:
                return f"rows {named} of {size} have another weight than the others"  # the sum of all is there too
            return f"only rows {named} of {size} are summed"
        return ""

    def _of_all_rows(self, p: Poly) -> set[Any]:
        """The products of atoms in ``p``, where each part of a sum is the sum."""
        alg, found = self.alg, set[Any]()
        for mono, _ in p.terms:
            whole = alg.number(1, (), p.dtype)
            for i in mono:
                atom = alg.atoms[i]
                whole = alg.mul(whole, alg.bases[atom.attrs[0]].full() if atom.op == "part" else alg.of(atom))
            found.update(each for each, _ in whole.terms)
        return found

    def _are_told_apart(self, p: Poly, size: int) -> bool:
        """Whether some of so many rows may be zero, or equal to others: by a mask, or as copies."""
        seen: set[int] = set()
        stack = [p]
        while stack:
            for i in {i for mono, _ in stack.pop().terms for i in mono} - seen:
                atom = self.alg.atoms[i]
                seen.add(i)
                if atom.op == "Tile" or (atom.op == "const" and size in atom.shape):
                    return True
                stack.extend(self.alg.inner(atom))
        return False

    def unknown(self, p: Poly) -> Atom | None:
        """An atom in ``p`` that is equal to nothing."""
        seen: set[int] = set()
        stack = [p]
        while stack:
            each = stack.pop()
            if each.id in seen:
                continue
            seen.add(each.id)
            for i in {i for mono, _ in each.terms for i in mono}:
                if self.alg.atoms[i].op == "unknown":
                    return self.alg.atoms[i]
                stack.extend(self.alg.atoms[i].args)
        return None

    def known(self, p: Any) -> bool:
        """Whether the atoms of a value occur in the reference."""
        if not isinstance(p, Poly):
            return not isinstance(p, Lost)
        if p.id not in self._known:
            self._known[p.id] = all(self._is_known(self.alg.atoms[i]) for mono, _ in p.terms for i in mono)
        return self._known[p.id]

    def _is_known(self, atom: Atom) -> bool:
        if atom.op == "slice":
            return self.known(atom.args[0])
        if atom.op in ("part", "MaximumPart", "MinimumPart"):
            return self.known(self.alg.bases[atom.attrs[0]].full())
        return atom.id < self.mark or atom.op == "const"

    def first(self) -> tuple[str, str, str]:
        """(type, line, note) of the first operation with a result that does not occur in the reference."""
        if self._first is None:
            self._first = self._find_first()
        return self._first

    def _find_first(self) -> tuple[str, str, str]:
        for seen in self.run.seen:
            if seen.op.type in _CALLS:
                continue
            fresh = [value for value in seen.outputs if not self.known(value)]
            if fresh and all(map(self.known, seen.inputs)):
                polys = [value for value in fresh if isinstance(value, Poly)]
                atoms = [self.alg.atoms[i] for value in polys for mono, _ in value.terms for i in mono]
                notes = [atom.note for atom in atoms if atom.note]
                return seen.op.type, place_of(seen.op), notes[0] if notes else ""
        return "", "", ""


def place_of(op: Any) -> str:
    """The line of the user's program that made an operation."""
    for frame in reversed(op.traceback or ()):
        if in_users(module_of(frame.filename), frame.filename):
            return place(frame.filename, frame.lineno)
    return ""
