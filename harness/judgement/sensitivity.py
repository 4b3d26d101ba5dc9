"""Measures how much each result of the reference changes when its inputs change in the last place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.judgement.runs import Result
from harness.judgement.tolerance import Sensitivity, epsilon_of


@dataclass
class Spread:
    """Sensitivities of every result of the reference."""

    outputs: list[Sensitivity]
    gradients: list[Sensitivity]
    state: list[Sensitivity]

    @classmethod
    def start(cls, expected: Result, terms: int) -> Spread:
        """No change yet; ``terms`` is the number of terms in the longest sum."""

        def nothing(array: NDArray[Any] | None) -> Sensitivity:
            return Sensitivity(np.zeros(() if array is None else array.shape), terms)

        return cls(*([nothing(array) for array in part] for part in _parts(expected)))

    @property
    def results(self) -> list[Sensitivity]:
        """Those of the outputs, then those of the gradients."""
        return [*self.outputs, *self.gradients]

    def add(self, expected: Result, moved: Result) -> None:
        """Add one run with changed inputs."""
        for own, base, other in zip(
            (self.outputs, self.gradients, self.state), _parts(expected), _parts(moved), strict=True
        ):
            for index, (one, two) in enumerate(zip(base, other, strict=True)):
                if one is not None and two is not None and one.shape == two.shape and epsilon_of(one.dtype):
                    wide = np.complex128 if np.iscomplexobj(one) else np.float64
                    with np.errstate(invalid="ignore"):
                        change = np.abs(two.astype(wide) - one.astype(wide))
                    own[index] = Sensitivity(np.fmax(own[index].change, change), own[index].terms)


class Lazy:
    """Measures the sensitivity once, on first use."""

    def __init__(self, measure: Callable[[], Spread]) -> None:
        self.measure = measure
        self.spread: Spread | None = None

    def __call__(self) -> Spread:
        """The measured sensitivities."""
        if self.spread is None:
            self.spread = self.measure()
        return self.spread


def _parts(result: Result) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    return result.outputs, result.gradients, result.state
