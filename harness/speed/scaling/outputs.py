"""Compares the outputs of a program on each device set: the curve of a wrong program means nothing.

Each process writes the outputs of its first call to a file.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from harness.errors import OutputsDiffer
from harness.plural import plural
from harness.speed.outputs import compare_outputs

Arrays = Mapping[str, NDArray[Any] | None]

#: Larger outputs are not kept: they would fill the disk, and take longer than the measurement.
MOST_BYTES = 256 * 1024 * 1024


def save_outputs(arrays: Arrays, path: Path) -> bool:
    """Write the arrays, also of TensorFlow's own dtypes; false if they are too large."""
    if sum(array.nbytes for array in arrays.values() if array is not None) > MOST_BYTES:
        return False
    path.write_bytes(pickle.dumps(dict(arrays)))
    return True


def load_outputs(path: Path) -> dict[str, NDArray[Any] | None]:
    """Read the arrays that a process of this run has written."""
    arrays: dict[str, NDArray[Any] | None] = pickle.loads(path.read_bytes())  # noqa: S301 - our own process wrote it
    return arrays


def difference(want: Arrays, have: Arrays) -> str | None:
    """Describe how two sets of outputs differ; ``None`` if they do not, or if there are none."""
    if want.keys() != have.keys():
        return f"single has {plural(len(want), 'output')}, parallel {len(have)}"
    if not any(array is not None and array.size for array in (*want.values(), *have.values())):
        return None
    try:
        compare_outputs(dict(want), dict(have))
    except OutputsDiffer as error:
        return str(error)
    return None
