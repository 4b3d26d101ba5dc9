"""Causes that many machines share: the same fault on most machines with the same driver, rack or image is of that.

One rule for all: a fault that most machines with a value of a fact have, and far fewer of the others, belongs to the
fact. A bad driver, a slow rack and a check that fails everywhere are cases of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from harness.fleet.seen import Seen
from harness.fleet.statistics import binomial_tail

#: Fewer machines with the same fault share it by chance.
_LEAST = 3
#: How unlikely it has to be that the machines with a value have the fault by the chance that the others have it.
_CHANCE = 1e-6
#: The fact that all machines have in common.
EVERYWHERE = "the whole fleet"

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Common:
    """A value of a fact that explains a fault on some machines."""

    fact: str
    value: str
    #: Positions of the machines that are explained, and how many machines have the value.
    affected: frozenset[int]
    of: int

    @property
    def name(self) -> str:
        """Name the fact with its value."""
        return f"{self.fact} {self.value}".strip()


def facts_of(runs: Sequence[Seen]) -> dict[tuple[str, str], frozenset[int]]:
    """Return the machines by each value of each fact."""
    found: dict[tuple[str, str], set[int]] = defaultdict(set)
    for number, seen in enumerate(runs):
        found[EVERYWHERE, ""].add(number)
        for fact, value in _facts(seen):
            if value:
                found[fact, value].add(number)
    return {key: frozenset(members) for key, members in found.items()}


def explain(
    affected: Iterable[int], exercised: Iterable[int], facts: Mapping[tuple[str, str], frozenset[int]], share: float
) -> list[Common]:
    """Return the values of facts that explain a fault on ``affected`` of the ``exercised`` machines, the best first."""
    left, among, made = frozenset(affected), frozenset(exercised), list[Common]()
    left &= among
    while len(left) >= _LEAST:
        fitting = []
        for order, ((fact, value), members) in enumerate(facts.items()):
            having, both = members & among, members & left
            if len(both) < _LEAST or len(both) < share * len(having):
                continue
            others, outside = len(among - having), len(left - both)
            # Of the others, one more than seen may have it: few machines say little.
            chance = (outside + 1) / (others + 2)
            if others and binomial_tail(len(both), len(having), chance) > _CHANCE:
                continue
            fitting.append((len(both) / len(having | left), -order, Common(fact, value, both, len(having))))
        if not fitting:
            break
        best = max(fitting, key=lambda each: each[:2])[2]
        made.append(best)
        left -= best.affected
        among -= best.affected
    return made


def _facts(seen: Seen) -> list[tuple[str, str | None]]:
    """List the facts of a machine, from the one that says most to the one that says least."""
    found, cohort = seen.record.fingerprint, seen.cohort
    facts: list[tuple[str, str | None]] = [("rack", seen.rack)]
    if cohort is not None:
        facts += [("driver", cohort.driver), ("VBIOS", cohort.vbios), ("card", cohort.card)]
    if found is not None:
        facts += [("CUDA", found.cuda), ("cuDNN", found.cudnn), ("TensorFlow", found.tensorflow)]
        facts += [("operating system", found.operating_system)]
    return [*facts, ("harness", seen.record.harness)]
