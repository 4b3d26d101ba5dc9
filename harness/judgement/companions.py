"""Finds which parts of two tensors are always used together: work on either belongs on the device of both.

As the rows of a batch and what a teacher is to make of them, or images and their captions.
"""

from __future__ import annotations

from harness.devices.name import DeviceName
from harness.judgement.accounting import has_weights
from harness.judgement.provenance import SEVERAL
from harness.judgement.shards import Shards


def live_with(shards: Shards, other: Shards) -> None:
    """Take over the homes of another family where each part of this one is always used with one part of that."""
    met = _met(shards, other)
    mine, theirs = set(met), set(met.values())
    if shards is other or not len(mine) == len(theirs) > 1:
        return
    if (other, met) not in shards.companions:
        shards.companions.append((other, met))
    if not theirs <= set(other.homes):
        return
    alone = all(len(set(other.homes[part])) == 1 for part in theirs)
    apart = len(set[DeviceName]().union(*(other.homes[part] for part in theirs))) == len(theirs)
    if alone and apart and len(set[DeviceName]().union(*shards.homes.values())) < 2:
        shards.homes = {part: set(other.homes[their]) for part, their in met.items()}


def _met(shards: Shards, other: Shards) -> dict[int, int]:
    """The only part of another family that each part of this one meets; empty if one meets several.

    Of two arguments whose parts meet only where all of this one are joined, such as captions and their images, the
    parts that have the same number.
    """
    both = [(shards.family[name], other.family[name]) for name in shards.family.keys() & other.family.keys()]
    pairs = {(part, their) for part, their in both if SEVERAL not in (part, their)}
    mine, theirs = sorted(set(shards.parts.values())), sorted(set(other.parts.values()))
    joined = any(part == SEVERAL != their for part, their in both)
    if not pairs and joined and mine == theirs and are_an_unscoped_model(shards) and _is_argument(other):
        return dict(zip(mine, theirs, strict=True))
    met = dict(pairs)
    return met if len(met) == len(pairs) else {}


def are_an_unscoped_model(shards: Shards) -> bool:
    """Whether these are parts of an argument, and layers of a model work on them in no scope."""
    unscoped = all(op.requested is None for op in shards.worked)
    return _is_argument(shards) and unscoped and any(map(has_weights, shards.worked))


def _is_argument(shards: Shards) -> bool:
    """Whether these are the parts of one argument of the program."""
    return shards.whole is not None and shards.whole.startswith("argument[")
