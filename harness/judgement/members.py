"""Finds branches that do the same, such as members of an ensemble or of a population, that crowd on one device.

They wait for nothing of each other, so any device may run any of them, and all are done when the busiest device is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from harness.devices.name import DeviceName
from harness.evidence.op import Op
from harness.judgement.accounting import Account, is_product, of_a_batch
from harness.judgement.provenance import SEVERAL, Family
from harness.judgement.strays import Misplaced

_CROWDED = (
    "branches that do the same, such as members, crowd on one device, and the others wait for it; share them out evenly"
)
#: How many times as long as it has to the program takes from which on it is a finding: the time of the busiest device.
_TIMES = 1.3
#: The share of the work that the branches have to be: else the rest may be what the devices are balanced for.
_MOST = 0.5
#: Branches differ by at most this factor, and so do those that are still whole on one device.
_ALIKE = 0.95


def crowded(account: Account) -> Iterator[Misplaced]:
    """The work of the branches that other devices should have run."""
    busy = dict.fromkeys(account.devices, 0.0)
    for op in account.work:
        if account.places[op.name] in busy:
            busy[account.places[op.name]] += account.weight(op)
    columns = (cut.family for cut in account.cuts if not of_a_batch(cut))
    for family in (*account.branches, *_begun_otherwise(account), *columns):
        homes = _homes(account, family)
        if not homes or {*homes.values()} != {*busy} or _are_of_shards(account, family):
            continue
        numbers = Counter(homes.values())
        if max(numbers.values()) - min(numbers.values()) < 2:
            continue
        one = sum(account.weight(op) for op in account.work if family.get(op.name) in homes) / len(homes)
        if one * len(homes) < _MOST * sum(map(account.weight, account.work)):
            continue
        even = _shared_out(busy, homes, one)
        least = {device: busy[device] + (even[device] - numbers[device]) * one for device in busy}
        if max(busy.values()) < _TIMES * max(least.values()):
            continue
        for part, device in sorted(homes.items(), reverse=True):
            free = [other for other in busy if numbers[other] < even[other]]
            if numbers[device] > even[device] and free:
                numbers.subtract([device])
                numbers.update(free[:1])
                yield from (
                    Misplaced(op, free[0], _CROWDED)
                    for op in account.work
                    if family.get(op.name) == part and account.places[op.name] == device
                )
        return


def _begun_otherwise(account: Account) -> Iterator[Family]:
    """Branches whose layers are the same, and what leads to the first of them is not, as of mirrored members."""
    alike: dict[frozenset[str], list[Op]] = defaultdict(list)
    sources = account.provenance.sources
    for family in account.branches:
        work = [op for op in account.work if family.get(op.name, SEVERAL) != SEVERAL]
        first = [op for op in work if family.keys().isdisjoint(name for name, _ in sources[op.name])]
        alike[frozenset(_layer(account, op) for op in first)] += first
    for first in alike.values():
        parts: dict[tuple[str, int | None], int] = {(op.name, None): part for part, op in enumerate(first)}
        family = account.provenance.followed(parts)
        if all(family.get(op.name) == part for part, op in enumerate(first)):  # none reads another one
            yield family


def _layer(account: Account, op: Op) -> str:
    """The type of an op, and the shape of what it makes."""
    return f"{op.type} {account.trace.shapes.get(op.name)}"


def _homes(account: Account, family: Family) -> dict[int, DeviceName]:
    """The device of each branch, if each is on one of the devices, and all run the same layers.

    What does less, such as a gate that reads what the experts read, is none of them. Lookups are where their tables
    are, which the sizes of the tables decide, not the work.
    """
    work: dict[int, dict[DeviceName, float]] = defaultdict(lambda: defaultdict(float))
    kinds: dict[int, list[str]] = defaultdict(list)
    for op in account.work:
        if (part := family.get(op.name, SEVERAL)) != SEVERAL:
            work[part][account.places[op.name]] += account.weight(op)
            if is_product(op):
                kinds[part].append(_layer(account, op))
    most = max((sum(each.values()) for each in work.values()), default=0.0)
    work = {part: each for part, each in work.items() if sum(each.values()) >= _ALIKE * most}
    homes = {part: max(each, key=lambda device: each[device]) for part, each in work.items()}
    alike = len({tuple(sorted(kinds[part])) for part in homes}) == 1 and all(kinds[part] for part in homes)
    whole = all(work[part][home] >= _ALIKE * sum(work[part].values()) for part, home in homes.items())
    return homes if alike and whole and {*homes.values()} <= {*account.devices} else {}


def _are_of_shards(account: Account, family: Family) -> bool:
    """Whether branches are of different parts of a batch, whose devices theirs are."""
    names = [name for name, part in family.items() if part != SEVERAL]
    shards = (cut.family for cut in account.cuts if of_a_batch(cut))
    return any(len({each.get(name, SEVERAL) for name in names} - {SEVERAL}) > 1 for each in shards)


def _shared_out(busy: Mapping[DeviceName, float], homes: Mapping[int, DeviceName], one: float) -> dict[DeviceName, int]:
    """How many branches each device would have, if each branch went to the device that has the least to do by then."""
    numbers, now = dict.fromkeys(busy, 0), Counter(homes.values())
    rest = {device: work - now[device] * one for device, work in busy.items()}
    for _ in homes:
        numbers[min(busy, key=lambda device: rest[device] + numbers[device] * one)] += 1
    return numbers
