"""Who exchanges with whom, and when: pairs by a round-robin tournament, and rings over neighbours.

In each round a node has at most one exchange. So the rounds of 1,000 nodes take as long as those of 10.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

#: A collective of two is a pair's.
_LEAST_RING = 3


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the members do together in a round: a pair, or a ring of three and more."""

    round: int
    members: tuple[str, ...]
    #: 0 for the schedule; 1 and more for what is done again because of what was found before.
    stage: int = 0
    #: Whether two sound nodes show what is usual beside those that are done again.
    control: bool = False
    #: 1 and more where an interrupted run was resumed before this exchange was measured.
    attempt: int = 0

    @property
    def is_pair(self) -> bool:
        """Whether it has two members."""
        return len(self.members) == 2


def schedule(nodes: Sequence[str], rounds: int, ring: int, rotations: int = 2) -> tuple[Exchange, ...]:
    """Return the exchanges of all rounds: ``rounds`` of pairs, then ``rotations`` of rings with ``ring`` members.

    Neighbours are next to each other in ``nodes``. Fewer rounds are made where the nodes have no more pairs.
    """
    made = [*pairs(len(nodes), rounds), *rings(len(nodes), ring, rotations)]
    return tuple(
        Exchange(number, tuple(nodes[place] for place in members))
        for number, round_ in enumerate(made)
        for members in round_
    )


def pairs(count: int, rounds: int) -> list[list[tuple[int, ...]]]:
    """Return rounds of pairs by the circle method: no pair comes twice. Of an odd number, one node rests each round."""
    even = count + count % 2
    most = even - 1 if count > 1 else 0
    wanted = min(rounds, most)
    made = []
    for turn in range(wanted):
        # The rounds that are made are spread over all, so that a node meets others from different places.
        first = turn * most // wanted
        circle = [0, *((first + place) % most + 1 for place in range(most))]
        both = zip(circle[: even // 2], reversed(circle[even // 2 :]), strict=True)
        made.append([tuple(sorted(pair)) for pair in both if max(pair) < count])
    return made


def rings(count: int, size: int, rotations: int) -> list[list[tuple[int, ...]]]:
    """Return rotations of rings over neighbours: each begins further on, so that other nodes are together.

    What is left over, fewer than three nodes, joins the last ring.
    """
    made: list[list[tuple[int, ...]]] = []
    seen = set[frozenset[frozenset[int]]]()
    for turn in range(rotations if min(count, size) >= _LEAST_RING else 0):
        first = turn * size // rotations
        order = [(first + place) % count for place in range(count)]
        groups = [tuple(order[begin : begin + size]) for begin in range(0, count, size)]
        if len(groups) > 1 and len(groups[-1]) < _LEAST_RING:
            groups[-2:] = [groups[-2] + groups[-1]]
        same = frozenset(map(frozenset, groups))
        if same not in seen:
            made.append(groups)
        seen.add(same)
    return made


def packed(exchanges: Iterable[Exchange], first: int) -> tuple[Exchange, ...]:
    """Give each exchange the earliest round from ``first`` on in which none of its members has another."""
    busy: list[set[str]] = []
    made = []
    for each in exchanges:
        members = {*each.members}
        place = next((number for number, taken in enumerate(busy) if not taken & members), len(busy))
        if place == len(busy):
            busy.append(set())
        busy[place] |= members
        made.append(replace(each, round=first + place))
    return tuple(sorted(made, key=lambda each: each.round))
