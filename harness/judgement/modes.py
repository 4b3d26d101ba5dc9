"""Checks that a reference gives the same results in eager code and in a graph; otherwise it proves nothing.

Some of TensorFlow's graph rewrites are wrong (TF 2.21 moves ``tanh`` from behind a split to before it, so that a
``reduce_max`` sees the whole), and a program with the same rewrite would match such a reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from harness.judgement.runs import Result
from harness.judgement.tolerance import epsilon_of
from harness.judgement.values import largest_magnitude, names_of, typical_magnitude, wide

#: Results of two modes may differ by this share of an output's typical magnitude: other kernels, other orders.
_SHARE = 1e-2
#: And by this many units in the last place of the largest output: one that cancels to 0 is nothing but rounding error.
_ULPS = 8.0


def judge_modes(expected: Mapping[str, Result], mode: str, arithmetic: float) -> Iterator[str]:
    """Yield each output of the reference that differs in ``mode`` from the first mode.

    ``arithmetic`` is the epsilon that the reference computes with.
    """
    first = next(iter(expected))
    if first == mode:
        return
    one, other = expected[first], expected[mode]
    if len(one.outputs) != len(other.outputs):
        return
    scale = largest_magnitude(one.outputs)
    for name, had, has in zip(names_of(one.structure), one.outputs, other.outputs, strict=True):
        if had is None or has is None or had.shape != has.shape or not epsilon_of(had.dtype):
            continue
        with np.errstate(invalid="ignore"):  # both infinite: the same
            error = np.abs(wide(had) - wide(has))
        allowed = max(_SHARE, 256.0 * arithmetic) * np.maximum(np.abs(had).astype(np.float64), typical_magnitude(had))
        if np.any(error > np.maximum(allowed, _ULPS * max(arithmetic, epsilon_of(had.dtype)) * scale)):
            yield (
                f"{name} of the reference differs by {np.nanmax(error):.3g} between {first} and {mode} mode: "
                "one of them is wrong"
            )
