"""Measures how much each result of the reference changes when its inputs change in the last place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.judgement.rounding import rounded
from harness.judgement.runs import Mode, Program, Result, differentiable, parts_of
from harness.judgement.state import Snapshot, put
from harness.judgement.tolerance import REPLAYS, Sensitivity, epsilon_of, move
from harness.lazy import tf

#: Rounding errors that are replayed, in units in the last place: with larger ones what is rounded to steps jumps too.
_SIZES = (1, 8)


@dataclass
class Spread:
    """Sensitivities of every result of the reference."""

    outputs: list[Sensitivity]
    gradients: list[Sensitivity]
    state: list[Sensitivity]
    #: How often the reference ran with moved inputs.
    replays: int = 0

    @classmethod
    def start(cls, expected: Result, terms: int) -> Spread:
        """No change yet; ``terms`` is the number of terms in the longest sum."""

        def nothing(array: NDArray[Any] | None) -> Sensitivity:
            return Sensitivity(np.broadcast_to(np.float32(0.0), () if array is None else array.shape), terms)

        outputs, gradients, state = ([nothing(array) for array in part] for part in _parts(expected))
        return cls(outputs, gradients, state)

    @property
    def results(self) -> list[Sensitivity]:
        """Those of the outputs, then those of the gradients."""
        return [*self.outputs, *self.gradients]

    def fits(self, expected: Result) -> bool:
        """Whether these are sensitivities of results of such shapes."""
        own = [[each.change.shape for each in part] for part in _parts(self)]
        return own == [[() if array is None else array.shape for array in part] for part in _parts(expected)]

    def noted(self, note: str) -> Spread:
        """The same, with what could not be measured."""
        outputs, gradients, state = ([replace(each, note=note) for each in part] for part in _parts(self))
        return Spread(outputs, gradients, state, self.replays)

    def add(self, expected: Result, moved: Sequence[Iterable[Any]], size: int = 1) -> None:
        """Add one run whose inputs, or whose roundings, were moved by ``size`` units in the last place.

        ``moved`` are its outputs, gradients and state, taken one by one.
        A floating result moves in proportion. A whole number jumps or stays: it jumps sooner if moved further.
        """
        for own, base, other in zip(_parts(self), _parts(expected), moved, strict=True):
            # The state is left out of runs in which nobody asks for it.
            for index, (one, two) in enumerate(zip(base, other, strict=False)):
                if one is None or two is None or one.shape != two.shape:
                    continue
                if epsilon_of(one.dtype) or one.dtype.kind in "iub":
                    # As exact as it need be, and no larger than the results themselves: of a model there are many.
                    wide = np.result_type(one.dtype, np.float32) if one.dtype.kind in "fc" else np.float64
                    with np.errstate(invalid="ignore", over="ignore"):
                        difference = two.astype(wide, copy=False) - one.astype(wide, copy=False)
                    change = np.abs(difference)
                    if epsilon_of(one.dtype) and size > 1:
                        change /= size
                    largest = np.fmax(own[index].change.astype(change.dtype), change)
                    # Three digits are enough for a bound, and half the memory.
                    kept = largest.astype(tf.bfloat16.as_numpy_dtype) if largest.dtype == np.float32 else largest
                    own[index] = Sensitivity(kept, own[index].terms)


@dataclass
class Measuring:
    """Measures the sensitivity of the reference on first use: by moving its inputs, then by moving each op's result.

    Inputs and variables are moved in their own last place. What is computed in a coarser dtype than theirs shows in
    :attr:`of_rounding` alone, for the results that it leads to: :meth:`whole`.
    """

    single: Program
    mode: Mode
    expected: Result
    snapshot: Snapshot
    watched: Sequence[Any]
    #: The number of terms in the longest sum.
    terms: int
    #: The largest epsilon of the dtypes that the reference computes in.
    arithmetic: float
    progress: Callable[[str], None]
    #: What moving the inputs has shown so far; of the same results of another mode, to begin with.
    spread: Spread | None

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.single.seed + 1)
        earlier, self.spread = self.spread, None
        if earlier is not None and earlier.fits(self.expected):
            # One replay at least in this mode before its results are found to differ.
            replays = min(earlier.replays, REPLAYS - 1)
            self.spread = Spread(list(earlier.outputs), list(earlier.gradients), list(earlier.state), replays)

    def __call__(self, wanted: int = REPLAYS) -> Spread:
        """Sensitivities to moves of one unit in the last place of the inputs and variables, of ``wanted`` replays."""
        if self.spread is None:
            self.spread = Spread.start(self.expected, self.terms)
        while self.spread.replays < wanted:
            self.spread.replays += 1
            self.progress(f"measuring rounding errors, replay {self.spread.replays} of at most {REPLAYS}")
            self._replay(self.spread)
        return self.spread

    def whole(self, wanted: int = REPLAYS) -> Spread:
        """Sensitivities to all rounding errors: to moves, or to those of each op where some op has a coarser dtype."""
        results = (array for part in _parts(self.expected) for array in part if array is not None)
        finest = min(filter(None, (epsilon_of(array.dtype) for array in results)), default=self.arithmetic)
        return self.of_rounding if self.arithmetic > finest else self(wanted)

    def _replay(self, spread: Spread, at_least: float = 0.0) -> None:
        moving = {
            id(variable)
            for variable, value in zip(self.snapshot.variables, self.snapshot.values, strict=True)
            if self._moves(epsilon_of(value.dtype)) and getattr(variable, "trainable", True)
        }
        try:
            # A generator's state, say, which is no floating variable.
            self.snapshot.restore(lambda variable: id(variable) in moving)
            leaves = [self._leaf_moved(leaf, at_least) for leaf in self.single.leaves()]
            for variable, value in zip(self.snapshot.variables, self.snapshot.values, strict=True):
                if id(variable) in moving:
                    put(variable, move(value, self._random, at_least))
            raw = self.single.runner(self.mode)(*self.single.arguments(self.mode, leaves))
            spread.add(self.expected, parts_of(raw, self.watched))
        finally:
            self.snapshot.restore()

    def _moves(self, epsilon: float) -> bool:
        """Whether to move numbers of this epsilon: one of a coarser type than the arithmetic has no rounding error."""
        return 0.0 < epsilon <= (self.arithmetic or epsilon)

    def _leaf_moved(self, leaf: Any, at_least: float) -> Any:
        """A leaf of the inputs, its floating numbers moved; those of ragged and of sparse tensors too."""

        def moved(tensor: Any) -> Any:
            if not tf.is_tensor(tensor) or isinstance(tensor, tf.Variable) or not differentiable(tensor):
                return tensor
            array = tensor.numpy()
            if not self._moves(epsilon_of(array.dtype)) or _is_mask(array):
                return tensor
            return tf.constant(move(array, self._random, at_least), tensor.dtype)

        return tf.nest.map_structure(moved, leaf, expand_composites=True)

    @cached_property
    def of_rounding(self) -> Spread:
        """Sensitivities to the rounding errors of the ops themselves; those to moves where these cannot be measured.

        These moves are by one unit in the last place of the coarsest dtype that the reference computes in.
        """
        spread = Spread.start(self.expected, self.terms)
        self.progress("measuring rounding errors of each op")
        self.snapshot.restore()
        try:
            try:
                run = rounded(self.single)
            except Exception as error:  # noqa: BLE001 - the user's code may raise anything where it is built as a graph
                return self._coarse(f"; the reference's ops could not be replayed as a graph: {type(error).__name__}")
            for seed in range(REPLAYS):
                for size in _SIZES:
                    self.snapshot.restore()
                    spread.add(self.expected, parts_of(run(seed, size), self.watched), size)
        except tf.errors.OpError as error:
            return self._coarse(f"; the reference's ops could not be replayed: {type(error).__name__}")
        finally:
            self.snapshot.restore()
        return spread

    def _coarse(self, note: str) -> Spread:
        spread = Spread.start(self.expected, self.terms)
        for _ in range(REPLAYS):
            self._replay(spread, self.arithmetic)
        return spread.noted(note)


def _is_mask(array: NDArray[Any]) -> bool:
    """Whether numbers are zeros and ones, which nobody has rounded."""
    return bool(np.any(array == 0) and np.any(array == 1) and np.all((array == 0) | (array == 1)))


def _parts(of: Result | Spread) -> tuple[Any, Any, Any]:
    return of.outputs, of.gradients, of.state
