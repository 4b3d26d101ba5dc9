"""Compares the results of the program under test with those of the reference, element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.judgement.tolerance import Sensitivity, epsilon_of, replays
from harness.judgement.verification import Comparison
from harness.records import Finding

#: An element whose bound is wider than this share of it could hide a fault; such elements prove nothing.
_WIDEST_BOUND = 1e-2
#: Unless a measured bound is asked for, this many units in the last place are no difference (FAULTS V21).
_FREE_ULPS = 4.0
#: An error that exceeds its bound by more than this factor is not measured again: rounding does not explain it.
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
    found: NDArray[Any],
    expected: NDArray[Any],
    *,
    exact: bool,
    measure: Measure,
    rounded: Callable[[], Sensitivity] | None = None,
    check_dtype: bool = True,
    scale: Callable[[], float] = float,
) -> None:
    """Compare two arrays and add what was seen to ``judged``.

    ``scale`` is the magnitude of the results that these are among: what is nothing but rounding error, such as the
    gradient of a bias before a softmax or a normalisation, which is 0, proves nothing, and hides nothing either while
    rounding error is small on that scale.

    ``measure`` gives the sensitivity of the expected array from a number of replays; it is called only where the two
    differ by more than a few units in the last place, with more replays only where fewer do not explain the difference.
    ``rounded``, which costs more, only where they differ by more than all of them allow.
    """
    if found.shape != expected.shape:
        judged.findings.append(_finding("shape", subject, str(expected.shape), str(found.shape), "the shape differs"))
        return
    if check_dtype and found.dtype != expected.dtype:
        judged.findings.append(_finding("dtype", subject, expected.dtype.name, found.dtype.name, "the dtype differs"))
        return
    epsilon = epsilon_of(found.dtype)
    if epsilon == 0.0:
        _compare_discrete(judged, subject, found, expected, None if exact else rounded)
    else:
        _compare_floats(judged, subject, found, expected, epsilon, exact, measure, rounded, scale)


def _widest_bound(epsilon: float) -> float:
    """1 % of the element; in float16 a quarter, in bfloat16 half: their rounding leaves no less in a few steps."""
    return min(0.5, max(_WIDEST_BOUND, 256.0 * epsilon))


def _compare_discrete(
    judged: Judged,
    subject: Subject,
    found: NDArray[Any],
    expected: NDArray[Any],
    rounded: Callable[[], Sensitivity] | None,
) -> None:
    wrong = np.asarray(found != expected)
    sure = np.ones(found.shape, bool)
    if wrong.any() and rounded is not None and found.dtype.kind in "iub":
        # Where rounding errors make the reference itself jump from one number to another, either is right.
        jumps = np.broadcast_to(rounded().change, found.shape)
        off = np.abs(found.astype(np.float64) - expected.astype(np.float64))
        sure = jumps == 0.0
        wrong = off > jumps
    judged.comparisons.append(
        Comparison(
            subject.mode,
            subject.where,
            found.dtype.name,
            found.size,
            int((sure | wrong).sum()),
            float(wrong.any()),
            0.0,
            "equal",
        )
    )
    if wrong.any():
        error = wrong.astype(float)
        judged.findings.append(_worst(subject, found, expected, error, np.zeros_like(error), wrong, "not a float"))


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
    wide = np.complex128 if np.iscomplexobj(found) else np.float64
    have, want = found.astype(wide), expected.astype(wide)
    coarse = max(epsilon, judged.arithmetic)
    no_number = np.isnan(want)
    if no_number.any():
        judged.undecided.append(
            f"{subject.where} ({subject.mode}): {subject.against} is NaN at {int(no_number.sum()):,} of "
            f"{want.size:,} elements"
        )
    skipped = no_number | (np.isinf(want) & (have == want))
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(skipped, 0.0, np.abs(have - want))
    not_finite = ~skipped & ~np.isfinite(have)
    no_target = ~skipped & ~np.isfinite(want)
    error = np.where(not_finite | no_target, np.inf, error)
    magnitude = np.where(np.isfinite(want), np.abs(want), 0.0)
    if exact:
        bound, rule = np.zeros_like(magnitude), "exact arithmetic"
    else:
        bound, rule = _FREE_ULPS * epsilon * magnitude, f"{_FREE_ULPS:g} units in the last place"
        if np.any(error > bound):
            rule = "rounding"
            for wanted in range(1, replays() + 1):
                bound = measure(wanted).bound(want, coarse)
                if not np.any(error > bound):
                    break
            beyond = error > bound
            if rounded is not None and np.any(beyond) and np.all(error[beyond] < _FAR * bound[beyond]):
                sensitivity = rounded()
                bound, rule = np.maximum(bound, sensitivity.bound(want, coarse)), f"{rule}{sensitivity.note}"
    wrong = error > bound
    typical = typical_magnitude(want)
    widest = _widest_bound(coarse)
    decisive = ~no_number & (bound <= widest * np.maximum(magnitude, typical))
    finite_error = np.where(np.isfinite(error), error, np.finfo(float).max)
    at = int(np.argmax(finite_error - bound)) if error.size else 0
    judged.comparisons.append(
        Comparison(
            mode=subject.mode,
            where=subject.where,
            dtype=found.dtype.name,
            elements=found.size,
            compared=int((decisive | wrong).sum()),
            largest_error=float(error.max()) if error.size else 0.0,
            bound=float(bound.flat[at]) if error.size else 0.0,
            rule=rule,
        )
    )
    if wrong.any():
        judged.findings.append(_worst(subject, found, expected, finite_error, bound, wrong, rule))
    elif error.size and not decisive.any() and not no_number.any() and float(np.max(bound)) > widest * scale():
        judged.undecided.append(
            f"{subject.where} ({subject.mode}): ill-conditioned; rounding alone can change it by "
            f"{float(np.max(bound)):.3g}, which could hide a fault"
        )


def typical_magnitude(array: NDArray[Any]) -> float:
    """Root mean square of the finite elements, in units of the array; 0.0 where there are none."""
    wide = np.abs(array.astype(np.complex128 if np.iscomplexobj(array) else np.float64))
    finite = wide[np.isfinite(wide)]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


def _worst(
    subject: Subject,
    found: NDArray[Any],
    expected: NDArray[Any],
    error: NDArray[Any],
    bound: NDArray[Any],
    wrong: NDArray[np.bool_],
    rule: str,
) -> Finding:
    worst = int(np.argmax(np.where(wrong, error - bound, -np.inf)))
    index = [int(part) for part in np.unravel_index(worst, found.shape)]
    which = f"{int(wrong.sum()):,} of {found.size:,} elements differ" if index else "it differs"
    return _finding(
        subject.kind,
        subject,
        f"{expected[tuple(index)]!s}",
        f"{found[tuple(index)]!s}",
        f"{which} from {subject.against}{f', most at {index}' if index else ''}; "
        f"tolerance {float(bound.flat[worst]):.2g} ({rule})",
    )


def _finding(kind: str, subject: Subject, expected: str, found: str, message: str) -> Finding:
    return Finding(kind, f"{subject.where} ({subject.mode})", None, expected, found, message)


def expected_or_missing(
    judged: Judged, subject: Subject, found: Any, expected: Any
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The two gradients as arrays, or ``None`` where one of them is missing; a missing one is noted."""
    if found is None and expected is None:
        return None
    if found is None:
        judged.findings.append(
            _finding(
                "missing-gradient",
                subject,
                f"a gradient of shape {expected.shape}",
                "None",
                "the gradient is missing",
            )
        )
        return None
    if expected is None:
        if np.any(found != 0):
            judged.findings.append(
                _finding(
                    "gradient",
                    subject,
                    "None",
                    f"values up to {np.max(np.abs(found))}",
                    "the reference has no gradient",
                )
            )
        return None
    return found, expected


def names_of(structure: Any, prefix: str = "output") -> list[str]:
    """Names for the leaves of a nest in TensorFlow's order: ``output`` alone, ``output[1]``, ``output['mean']``."""
    if isinstance(structure, Mapping):
        return [name for key in sorted(structure) for name in names_of(structure[key], f"{prefix}[{key!r}]")]
    if isinstance(structure, (list, tuple)):
        fields = getattr(structure, "_fields", None)
        places = [f".{field}" for field in fields] if fields else [f"[{index}]" for index in range(len(structure))]
        return [
            name for place, part in zip(places, structure, strict=True) for name in names_of(part, f"{prefix}{place}")
        ]
    return [prefix]
