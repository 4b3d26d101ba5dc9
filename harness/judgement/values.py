"""Compares the results of the program under test with those of the reference, element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.judgement.tolerance import LEAST_ULPS, REPLAYS, Sensitivity, blocks_of, epsilon_of
from harness.judgement.verification import Comparison
from harness.proof.programs import names_of as names_of
from harness.records import Finding

#: The rule of comparisons to the last bit.
EXACT = "exact arithmetic"
#: An element whose bound is wider than this share of it could hide a fault; such elements prove nothing.
_WIDEST_BOUND = 1e-2
#: This many units in the last place are no difference, without measuring: each measured bound allows them.
_FREE_ULPS = LEAST_ULPS
#: An error that exceeds its bound by more than this factor is not measured again: rounding does not explain it. Where
#: no input moves an element, nothing is known: a sum of constants that cancel, as in a gradient of a linear program.
_FAR = 1e4

#: Gives a sensitivity from so many replays.
Measure = Callable[[int], Sensitivity]


@dataclass
class Judged:
    """What comparing came to: findings, comparisons, and what could not be judged."""

    findings: list[Finding] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    #: The largest epsilon of the dtypes that the programs compute in; results of a finer dtype are no better.
    arithmetic: float = 0.0

    @property
    def compared(self) -> int:
        """Elements in which a fault would have been seen."""
        return sum(comparison.compared for comparison in self.comparisons)


@dataclass(frozen=True)
class Subject:
    """The tensor that is compared: its kind of finding, its name, its mode, and what it is compared with."""

    kind: str
    where: str
    mode: str
    against: str = "the single-device run"


def compare(
    judged: Judged,
    subject: Subject,
    found: NDArray[Any] | None,
    expected: NDArray[Any] | None,
    *,
    exact: bool,
    measure: Measure,
    rounded: Callable[[], Sensitivity] | None = None,
    scale: Callable[[], float] = float,
) -> None:
    """Compare two arrays and add what was seen to ``judged``; ``None`` is a result that a program lacks.

    ``scale`` is the magnitude of the results that these are among: what is nothing but rounding error, such as the
    gradient of a bias before a softmax or a normalisation, which is 0, proves nothing, and hides nothing either while
    rounding error is small on that scale.

    ``measure`` gives the sensitivity of the expected array from a number of replays; it is called only where the two
    differ by more than a few units in the last place, with more replays only where fewer do not explain the difference.
    ``rounded``, which costs more, only where they differ by more than all of them allow, or where these allow all; if
    some arithmetic is coarser than the result, it alone knows whether the result depends on it.
    """
    if found is None or expected is None:
        judged.findings += _lacking(subject, found, expected)
        return
    if found.shape != expected.shape:
        judged.findings.append(_finding("shape", subject, str(expected.shape), str(found.shape), "the shape differs"))
        return
    if found.dtype != expected.dtype:
        judged.findings.append(_finding("dtype", subject, expected.dtype.name, found.dtype.name, "the dtype differs"))
        return
    epsilon = epsilon_of(found.dtype)
    if epsilon == 0.0:
        _compare_discrete(judged, subject, found, expected, measure, None if exact else rounded)
    else:
        _compare_floats(judged, subject, found, expected, epsilon, exact, measure, rounded, scale)


def _lacking(subject: Subject, found: Any, expected: Any) -> list[Finding]:
    """What is wrong where one of the programs lacks a result. A gradient of zeros is as good as none."""
    if found is None and expected is None:
        return []
    if subject.kind != "gradient":
        return [_finding("structure", subject, str(expected), str(found), "one of the two results is None")]
    if found is None:
        shape = f"a gradient of shape {expected.shape}"
        return [_finding("missing-gradient", subject, shape, "None", "the gradient is missing")]
    if not np.any(found != 0):
        return []
    values = f"values up to {np.max(np.abs(found))}"
    return [_finding("gradient", subject, "None", values, "the reference has no gradient")]


def _widest_bound(epsilon: float) -> float:
    """1 % of the element; in float16 a quarter, in bfloat16 half: their rounding leaves no less in a few steps."""
    return min(0.5, max(_WIDEST_BOUND, 256.0 * epsilon))


def _compare_discrete(
    judged: Judged,
    subject: Subject,
    found: NDArray[Any],
    expected: NDArray[Any],
    measure: Measure,
    rounded: Callable[[], Sensitivity] | None,
) -> None:
    wrong = np.asarray(found != expected)
    sure = np.ones(found.shape, bool)
    if wrong.any() and rounded is not None and found.dtype.kind in "iub":
        # Where rounding errors make the reference itself jump from one number to another, either is right.
        jumps = np.broadcast_to(np.fmax(measure(REPLAYS).change, rounded().change), found.shape)
        off = np.abs(found.astype(np.float64) - expected.astype(np.float64))
        sure = jumps == 0.0
        wrong = off > jumps
    seen, error = int((sure | wrong).sum()), float(wrong.any())
    judged.comparisons.append(
        Comparison(subject.mode, subject.where, found.dtype.name, found.size, seen, error, 0.0, "equal")
    )
    if wrong.any():
        first = int(np.argmax(wrong))
        judged.findings.append(_worst(subject, found, expected, first, int(wrong.sum()), 0.0, "not floating-point"))


def _compare_floats(
    judged: Judged,
    subject: Subject,
    found: NDArray[Any],
    expected: NDArray[Any],
    epsilon: float,
    exact: bool,
    measure: Measure,
    rounded: Callable[[], Sensitivity] | None,
    scale: Callable[[], float],
) -> None:
    coarse = max(epsilon, judged.arithmetic)
    errors = _Errors(found, expected)
    free = 0.0 if exact else _FREE_ULPS * epsilon
    bound: _Bound = lambda block: free * block.magnitude  # noqa: E731
    rule = EXACT if exact else f"{_FREE_ULPS:g} units in the last place"
    if not exact and errors.exceed(bound):
        rule, exceeded = "rounding", True
        # Where each op's rounding can be measured, a result of coarser arithmetic is wider by that, and others are not.
        own, mixed = (coarse, False) if rounded is None else (epsilon, coarse > epsilon)
        for wanted in range(1, 2 if mixed else REPLAYS + 1):
            sensitivity = measure(wanted)
            bound = errors.measured(sensitivity, own)
            exceeded = errors.exceed(bound)
            if not exceeded:
                break
        if rounded is not None and exceeded and (mixed or not errors.far_exceed(bound, sensitivity)):
            moved, sensitivity = bound, rounded()
            more, rule = errors.measured(sensitivity, own), f"{rule}{sensitivity.note}"
            bound = lambda block: np.maximum(moved(block), more(block))  # noqa: E731

    def could_hide_a_fault(seen: _Seen) -> bool:
        bounded = seen.decisive or seen.no_numbers or not found.size
        return not bounded and seen.widest_bound > _widest_bound(coarse) * scale()

    seen = errors.seen(bound, coarse)
    if rounded is not None and rule.startswith("rounding") and not seen.wrong and could_hide_a_fault(seen):
        # Moved inputs may have crossed a step, such as one at 1.0, and both programs have stood on the same side of it.
        narrow = errors.measured(rounded(), epsilon)
        if not errors.exceed(narrow):
            seen = errors.seen(narrow, coarse)
    if seen.no_numbers:
        judged.undecided.append(
            f"{subject.where} ({subject.mode}): {subject.against} is NaN at {seen.no_numbers:,} of "
            f"{found.size:,} elements"
        )
    judged.comparisons.append(
        Comparison(
            mode=subject.mode,
            where=subject.where,
            dtype=found.dtype.name,
            elements=found.size,
            compared=seen.compared,
            largest_error=seen.closest[1],
            bound=seen.closest[2],
            rule=rule,
        )
    )
    if seen.wrong:
        judged.findings.append(_worst(subject, found, expected, seen.worst, seen.wrong, seen.bound, rule))
    elif could_hide_a_fault(seen):
        judged.undecided.append(
            f"{subject.where} ({subject.mode}): ill-conditioned; rounding alone can change it by "
            f"{seen.widest_bound:.3g}, which could hide a fault"
        )


@dataclass(frozen=True)
class _Block:
    """Some elements of two arrays, flattened: which, the error of each, and the magnitude of what is expected."""

    at: slice
    want: NDArray[Any]
    error: NDArray[np.float64]
    magnitude: NDArray[np.float64]
    no_number: NDArray[np.bool_]


_Bound = Callable[[_Block], NDArray[np.float64]]


class _Errors:
    """The errors of a result, a block at a time: wide copies of a model's largest gradient take much memory."""

    def __init__(self, found: NDArray[Any], expected: NDArray[Any]) -> None:
        self.found, self.expected = found.reshape(-1), expected.reshape(-1)
        self.typical = typical_magnitude(expected)
        self._places = blocks_of(found.size)
        #: Those of a small result are kept.
        self._kept = [self._block(place) for place in self._places] if len(self._places) == 1 else None

    def blocks(self) -> Iterable[_Block]:
        return map(self._block, self._places) if self._kept is None else self._kept

    def _block(self, at: slice) -> _Block:
        have, want = wide(self.found[at]), wide(self.expected[at])
        no_number = np.isnan(want)
        skipped = no_number | (np.isinf(want) & (have == want))
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.where(skipped, 0.0, np.abs(have - want))
        error = np.where(~skipped & ~(np.isfinite(have) & np.isfinite(want)), np.inf, error)
        return _Block(at, want, error, np.where(np.isfinite(want), np.abs(want), 0.0), no_number)

    def exceed(self, bound: _Bound) -> bool:
        """Whether an error is larger than its bound."""
        return any(bool(np.any(block.error > bound(block))) for block in self.blocks())

    def far_exceed(self, bound: _Bound, sensitivity: Sensitivity) -> bool:
        """Whether an error of an element that inputs move is so much larger than its bound that it is no rounding."""
        pairs = ((block.error > _FAR * bound(block), sensitivity.moves(block.at)) for block in self.blocks())
        return any(bool(np.any(far & moves)) for far, moves in pairs)

    def seen(self, bound: _Bound, epsilon: float) -> _Seen:
        """What is seen in all blocks, of results that were computed with this epsilon."""
        seen, widest = _Seen(), _widest_bound(epsilon)
        for block in self.blocks():
            seen.add(block, bound(block), widest, self.typical)
        return seen

    def measured(self, sensitivity: Sensitivity, epsilon: float) -> _Bound:
        return lambda block: sensitivity.bound(block.want, epsilon, block.at, self.typical)


@dataclass
class _Seen:
    """What was seen in all blocks of a result."""

    no_numbers: int = 0
    compared: int = 0
    wrong: int = 0
    decisive: bool = False
    #: Of the element whose error is the largest share of its bound: that share, the error, and the bound.
    closest: tuple[float, float, float] = (-1.0, 0.0, 0.0)
    widest_bound: float = 0.0
    #: The element that exceeds its bound most, or comes closest to it, and its bound.
    worst: int = 0
    bound: float = 0.0
    _excess: float = -np.inf

    def add(self, block: _Block, bound: NDArray[np.float64], widest: float, typical: float) -> None:
        """Add a block whose elements may have errors of ``bound`` each."""
        wrong = block.error > bound
        decisive = ~block.no_number & (bound <= widest * np.maximum(block.magnitude, typical))
        excess = np.where(np.isfinite(block.error), block.error, np.finfo(float).max) - bound
        at = int(np.argmax(excess))
        if excess[at] > self._excess:
            self._excess, self.bound, self.worst = float(excess[at]), float(bound[at]), block.at.start + at
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(block.error > 0.0, block.error / bound, 0.0)
        near = int(np.argmax(share))
        if share[near] > self.closest[0]:
            self.closest = float(share[near]), float(block.error[near]), float(bound[near])
        self.no_numbers += int(block.no_number.sum())
        self.compared += int((decisive | wrong).sum())
        self.wrong += int(wrong.sum())
        self.decisive |= bool(decisive.any())
        self.widest_bound = max(self.widest_bound, float(bound.max()))


def wide(array: NDArray[Any]) -> NDArray[Any]:
    """The array in double precision."""
    return array.astype(np.complex128 if np.iscomplexobj(array) else np.float64)


def typical_magnitude(array: NDArray[Any]) -> float:
    """Root mean square of the finite elements, in units of the array; 0.0 where there are none."""
    flat, total, count = array.reshape(-1), 0.0, 0
    for at in blocks_of(array.size):
        size = np.abs(wide(flat[at]))
        finite = size[np.isfinite(size)]
        with np.errstate(over="ignore"):
            total += float(np.sum(np.square(finite)))
        count += finite.size
    return float(np.sqrt(total / count)) if count else 0.0


def largest_magnitude(results: Iterable[NDArray[Any] | None]) -> float:
    """The largest typical magnitude of floating results; 0.0 where there are none."""
    floating = (array for array in results if array is not None and epsilon_of(array.dtype))
    return max(map(typical_magnitude, floating), default=0.0)


def _worst(
    subject: Subject,
    found: NDArray[Any],
    expected: NDArray[Any],
    worst: int,
    wrong: int,
    bound: float,
    rule: str,
) -> Finding:
    index = [int(part) for part in np.unravel_index(worst, found.shape)]
    which = f"{wrong:,} of {found.size:,} elements differ" if index else "it differs"
    return _finding(
        subject.kind,
        subject,
        f"{expected[tuple(index)]!s}",
        f"{found[tuple(index)]!s}",
        f"{which} from {subject.against}{f', worst at {index}' if index else ''}; tolerance {bound:.2g} ({rule})",
    )


def _finding(kind: str, subject: Subject, expected: str, found: str, message: str) -> Finding:
    return Finding(kind, subject.where, None, expected, found, message, mode=subject.mode)
