"""What each operation of a program computes: numbers that are equal for every input are one object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from harness.proof.graph import Run
from harness.proof.terms import Poly


class Computed(NamedTuple):
    """The values that a program's operations give, by the ways to them through calls, and how often there are others.

    ``reference`` says how often the reference computes a value, ``results`` how often it is a result.
    """

    values: Mapping[str, Sequence[Any]]
    reference: Mapping[int, int]
    results: Mapping[int, int]

    def value(self, name: str, port: int = 0) -> int | None:
        """The number of the value that an operation of a trace gives at one of its outputs, where it is known.

        The program is traced within a function of its own, with which all names begin.
        """
        known = self._known(name, port)
        return known.id if known is not None else None

    def rows(self, name: str, port: int = 0) -> int | None:
        """How many rows that value has, if they are known. The optimizer may have fused the op that computes it."""
        known = self._known(name, port)
        size = known.shape[0] if known is not None and known.shape else None
        return size if isinstance(size, int) else None

    def is_constant(self, name: str, port: int = 0) -> bool:
        """Whether the value at an output of an operation is one and the same number, whatever the inputs are."""
        known = self._known(name, port)
        return known is not None and all(not atoms for atoms, _ in known.terms)

    def _known(self, name: str, port: int) -> Poly | None:
        found = self.values.get(name.partition("/")[2], ())
        known = found[port] if port < len(found) else None
        return known if isinstance(known, Poly) else None

    @classmethod
    def of(cls, program: Run, reference: Run, results: Sequence[Any]) -> Computed:
        """From both evaluations, and the results of the program."""
        values = {seen.name: seen.outputs for seen in program.seen}
        others = (seen.outputs[0] for seen in reference.seen if seen.outputs)
        return cls(
            values,
            Counter(value.id for value in others if isinstance(value, Poly)),
            Counter(value.id for value in results if isinstance(value, Poly)),
        )
