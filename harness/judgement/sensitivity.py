"""Measures how much each result of the reference changes when its inputs change in the last place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.judgement.rounding import rounded
from harness.judgement.runs import Mode, Program, Result, as_result, differentiable
from harness.judgement.state import Snapshot, put
from harness.judgement.tolerance import Sensitivity, epsilon_of, move, replays

#: Rounding errors that are replayed, in units in the last place: with larger ones what is rounded to steps jumps too.
_SIZES = (1, 8)


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

    def add(self, expected: Result, moved: Result, size: int = 1) -> None:
        """Add one run whose inputs, or whose roundings, were moved by ``size`` units in the last place.

        A floating result moves in proportion. A whole number jumps or stays: it jumps sooner if moved further.
        """
        for own, base, other in zip(
            (self.outputs, self.gradients, self.state), _parts(expected), _parts(moved), strict=True
        ):
            for index, (one, two) in enumerate(zip(base, other, strict=True)):
                if one is None or two is None or one.shape != two.shape:
                    continue
                if epsilon_of(one.dtype) or one.dtype.kind in "iub":
                    wide = np.complex128 if np.iscomplexobj(one) else np.float64
                    with np.errstate(invalid="ignore"):
                        change = np.abs(two.astype(wide) - one.astype(wide))
                    change = change / size if epsilon_of(one.dtype) else change
                    own[index] = Sensitivity(np.fmax(own[index].change, change), own[index].terms)


@dataclass
class Measuring:
    """Measures the sensitivity of the reference on first use: by moving its inputs, then by moving each op's result."""

    single: Program
    mode: Mode
    expected: Result
    snapshot: Snapshot
    watched: Sequence[Any]
    #: The number of terms in the longest sum.
    terms: int
    #: The largest epsilon of the dtypes that the reference computes in.
    arithmetic: float
    _moved: Spread | None = None
    _rounded: Spread | None = None

    def __call__(self) -> Spread:
        """Sensitivities to moves of one unit in the last place of the inputs and variables."""
        if self._moved is None:
            self._moved = self._measured()
        return self._moved

    def _measured(self) -> Spread:
        random = np.random.default_rng(self.single.seed + 1)
        spread = Spread.start(self.expected, self.terms)
        try:
            for _ in range(replays()):
                self.snapshot.restore()  # a generator's state, say, which is no floating variable
                leaves = [self._leaf_moved(leaf, random) for leaf in self.single.leaves()]
                for variable, value in zip(self.snapshot.variables, self.snapshot.values, strict=True):
                    if self._moves(epsilon_of(value.dtype)) and getattr(variable, "trainable", True):
                        put(variable, move(value, random, self.arithmetic))
                raw = self.single.runner(self.mode)(*self.single.arguments(self.mode, leaves))
                spread.add(self.expected, as_result(raw, self.watched))
        finally:
            self.snapshot.restore()
        return spread

    def _moves(self, epsilon: float) -> bool:
        """Whether to move numbers of this epsilon: one of a coarser type than the arithmetic has no rounding error."""
        return 0.0 < epsilon <= (self.arithmetic or epsilon)

    def _leaf_moved(self, leaf: Any, random: np.random.Generator) -> Any:
        """A leaf of the inputs, its floating numbers moved; those of ragged and of sparse tensors too."""
        import tensorflow as tf

        def moved(tensor: Any) -> Any:
            if not tf.is_tensor(tensor) or isinstance(tensor, tf.Variable) or not differentiable(tensor):
                return tensor
            array = tensor.numpy()
            if not self._moves(epsilon_of(array.dtype)):
                return tensor
            return tf.constant(move(array, random, self.arithmetic), tensor.dtype)

        return tf.nest.map_structure(moved, leaf, expand_composites=True)

    def rounded(self) -> Spread:
        """The same, or more where the rounding errors of the ops themselves move the results further."""
        if self._rounded is None:
            self._rounded = self._with_rounding(self())
        return self._rounded

    def _with_rounding(self, spread: Spread) -> Spread:
        spread = Spread(list(spread.outputs), list(spread.gradients), list(spread.state))
        self.snapshot.restore()
        try:
            run = rounded(self.single)
            for seed in range(replays()):
                for size in _SIZES:
                    self.snapshot.restore()
                    spread.add(self.expected, as_result(run(seed, size), self.watched), size)
        except Exception:  # noqa: BLE001 - not every program can be built as a graph; the moved inputs remain
            return self()
        finally:
            self.snapshot.restore()
        return spread


def _parts(result: Result) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    return result.outputs, result.gradients, result.state
