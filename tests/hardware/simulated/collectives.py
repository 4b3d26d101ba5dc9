"""Collectives over the cards of a described machine: exact, or without the share of a card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.hardware.collectives.judge import expected

if TYPE_CHECKING:
    import numpy.typing as npt

ALGORITHMS = ("nccl", "ring", "hierarchical-copy", "reduce-to-one")


def collective(
    kind: str, algorithm: str, arrays: Sequence[npt.NDArray[Any]], cards: int, dropped: Sequence[int] = ()
) -> list[npt.NDArray[Any]]:
    """Return what each of ``cards`` cards holds. The shares of the cards at the positions ``dropped`` are zeros.

    Raises:
        ValueError: the kind or the algorithm is unknown, or there is not one array for each card.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm {algorithm!r}; accepted: {', '.join(ALGORITHMS)}")
    if len(arrays) != cards:
        raise ValueError(f"{len(arrays)} arrays; accepted: one for each of the {cards} cards")
    given = [np.zeros_like(array) if at in dropped else np.asarray(array) for at, array in enumerate(arrays)]
    made = [part.copy() for part in expected(kind, given)]
    # The first card keeps its own array; the share of another card is what should have reached it.
    lost = dropped if kind == "broadcast" else ()
    return [np.zeros_like(part) if at in lost else part for at, part in enumerate(made)]
