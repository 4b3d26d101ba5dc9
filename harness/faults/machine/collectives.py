"""Collectives over the cards of a described machine: exact, or without the share of a card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

ALGORITHMS = ("nccl", "ring", "hierarchical-copy", "reduce-to-one")
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "broadcast")


def collective(
    kind: str, algorithm: str, arrays: Sequence[npt.NDArray[Any]], cards: int, dropped: Sequence[int] = ()
) -> list[npt.NDArray[Any]]:
    """Return what each of ``cards`` cards holds. The shares of the cards at the positions ``dropped`` are zeros.

    Raises:
        ValueError: the kind or the algorithm is unknown, or there is not one array for each card.
    """
    if kind not in KINDS or algorithm not in ALGORITHMS:
        accepted = f"one of {', '.join(KINDS)} by one of {', '.join(ALGORITHMS)}"
        raise ValueError(f"collective {kind!r} by {algorithm!r}; accepted: {accepted}")
    if len(arrays) != cards:
        raise ValueError(f"{len(arrays)} arrays; accepted: one for each of the {cards} cards")
    given = [np.zeros_like(array) if at in dropped else np.asarray(array) for at, array in enumerate(arrays)]
    if kind == "all-gather":
        return [np.concatenate(given, axis=0) for _ in range(cards)]
    if kind == "broadcast":
        # The first card keeps its own array; the share of another card is what should have reached it.
        return [np.zeros_like(arrays[0]) if 0 in dropped or at in dropped else given[0].copy() for at in range(cards)]
    total = np.sum(np.stack(given), axis=0, dtype=given[0].dtype)
    if kind == "all-reduce":
        return [total.copy() for _ in range(cards)]
    return [part.copy() for part in np.array_split(total, cards, axis=0)]
