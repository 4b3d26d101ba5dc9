"""Which op types the gradient of an op type is made of."""

from __future__ import annotations

#: Types that hand the arriving gradient on unchanged, so that no op is made.
PASSED_THROUGH = frozenset({"Add", "AddN", "AddV2", "BiasAdd", "EnsureShape", "Identity", "IdentityN", "Snapshot", "Sub"})

MADE: dict[str, frozenset[str]] = {}
_STRONG: dict[str, frozenset[str]] = {}


def may_make(forward: str, backward: str) -> bool:
    """Whether the gradient of a ``forward`` op can have a ``backward`` op."""
    return True
