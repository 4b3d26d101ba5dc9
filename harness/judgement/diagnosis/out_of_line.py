"""An op that runs once for each device, with constants that are evenly spaced but for one, such as offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from harness.judgement.diagnosis.recorded import Step
from harness.judgement.diagnosis.wording import listed

if TYPE_CHECKING:
    from harness.judgement.diagnosis.search import Search

#: Of fewer runs, two are evenly spaced always.
_FEWEST = 4


def out_of_line(search: Search) -> tuple[Step, str] | None:
    """The run whose constant alone is not evenly spaced with those of the others, and what is to be said.

    Shards of different sizes have offsets that are not evenly spaced. What the reference runs too is not for devices.
    """
    if len(set(search.partners.sizes)) > 1:
        return None
    for steps in _runs(search):
        for number in steps[0].constants:
            values = [each.constants[number].item() for each in steps if _is_whole(each.constants.get(number))]
            odd = unevenly_spaced(values) if len(values) == len(steps) else None
            if odd is not None:
                at, wanted = odd
                texts = listed([str(value) for value in values])
                runs = f"its {len(values)} runs read the constants {texts}"
                return steps[at], f"{runs}; evenly spaced, run {at + 1} would read {wanted} instead of {values[at]}"
    return None


def _runs(search: Search) -> Iterator[list[Step]]:
    """The steps of each line of the program's own, and of each type, that run as often as there are devices."""
    lines: dict[tuple[str, str | None], list[Step]] = {}
    for step in search.steps:
        if step.place not in search.shared and not step.gradient_of:
            lines.setdefault((step.kind, step.place), []).append(step)
    for steps in lines.values():
        if len(steps) == len(search.question.devices) >= _FEWEST and len({each.device for each in steps}) in (
            1,
            len(steps),
        ):
            yield steps


def _is_whole(array: np.ndarray | None) -> bool:
    return array is not None and array.size == 1 and array.dtype.kind in "iu"


def unevenly_spaced(values: Sequence[int]) -> tuple[int, int] | None:
    """Which of some numbers alone is not evenly spaced with the others, and what it would be.

    The first or the last number may be the next one around a ring, or that of a device at the end of a row, again.
    """
    found = []
    for at in range(len(values)):
        first, second = [number for number in range(len(values)) if number != at][:2]
        step, rest = divmod(values[second] - values[first], second - first)
        line = [values[first] + step * (number - first) for number in range(len(values))]
        unlike = [number for number, (one, other) in enumerate(zip(values, line, strict=True)) if one != other]
        around = step and (values[at] - line[at]) % (step * len(values)) == 0
        at_end = values[at] == (values[1] if at == 0 else values[-2] if at == len(values) - 1 else None)
        if step and not (rest or around or at_end) and unlike == [at]:
            found.append((at, line[at]))
    return found[0] if len(found) == 1 else None
